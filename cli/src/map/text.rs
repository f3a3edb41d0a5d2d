// SPDX-License-Identifier: Apache-2.0
//! The map for a terminal: rows of 64 cells, a letter for each node.

use super::{Map, MappedRange, Part};
use crate::table::Table;
use ipam::interval::Interval;
use std::collections::BTreeMap;
use std::fmt::Write;

const WIDTH: u128 = 64;
const ROWS: u128 = 16;

/// The letters of the nodes. The remaining nodes share the mark `+`.
const LETTERS: &str = "abcdefghijklmnopqstuvwyz";

/// The whole map.
pub fn render(map: &Map) -> String {
    let letters: BTreeMap<&str, char> = map
        .nodes
        .keys()
        .map(String::as_str)
        .zip(LETTERS.chars().chain(std::iter::repeat('+')))
        .collect();
    let mut text = format!("pool {}\n", map.pool);
    for range in &map.ranges {
        let cell = cell_size(range.whole().count());
        let each = if cell == 1 {
            "an address".to_owned()
        } else {
            format!("{cell} addresses")
        };
        let _ = writeln!(text, "\n{}, each character {each}", range.subnet);
        text.push_str(&rows(range, cell, &letters));
    }
    let mut legend = Table::new(&["", "NODE", "ADDRESSES", "USED"]);
    for (node, (addresses, used)) in &map.nodes {
        let letter = letters.get(node.as_str()).copied().unwrap_or('+');
        legend.row([
            letter.to_string(),
            node.clone(),
            addresses.to_string(),
            used.to_string(),
        ]);
    }
    if !legend.is_empty() {
        let _ = write!(text, "\n{}", legend.render());
    }
    text.push_str("\n.  free   x  excluded   r  reserved   -  never allocated   #  block of another pool   CAPITAL or *  in use, at least one address\n");
    text
}

/// The number of addresses for each character: a power of two.
fn cell_size(addresses: u128) -> u128 {
    addresses
        .div_ceil(WIDTH * ROWS)
        .checked_next_power_of_two()
        .unwrap_or(u128::MAX)
}

fn rows(range: &MappedRange, cell: u128, letters: &BTreeMap<&str, char>) -> String {
    let (whole, family) = (range.whole(), range.family());
    let mut held = range.held.clone();
    held.sort_unstable();
    let mut text = String::new();
    let mut start = whole.first;
    loop {
        let _ = write!(text, "  {:<15} ", family.address(start).to_string());
        let mut at = start;
        for _ in 0..WIDTH {
            let end = at.saturating_add(cell - 1).min(whole.last);
            let mark = mark(range, Interval { first: at, last: end }, letters);
            let next = held.partition_point(|number| *number < at);
            let has = held.get(next).is_some_and(|number| *number <= end);
            text.push(if has { in_use(mark) } else { mark });
            if end >= whole.last {
                text.push('\n');
                return text;
            }
            at = end + 1;
        }
        text.push('\n');
        start = at;
    }
}

/// The mark of a cell with an address in use: the capital letter, or a star if `mark` is no letter.
fn in_use(mark: char) -> char {
    if mark.is_ascii_lowercase() {
        mark.to_ascii_uppercase()
    } else {
        '*'
    }
}

/// The mark of a cell. If any address of the cell is in a block, it is the letter of the block's node; otherwise it is
/// the mark of what most addresses of the cell are.
fn mark(range: &MappedRange, cell: Interval, letters: &BTreeMap<&str, char>) -> char {
    let from = range
        .segments
        .partition_point(|segment| segment.at.last < cell.first);
    let inside = range.segments[from..]
        .iter()
        .take_while(|segment| segment.at.first <= cell.last);
    let weight = |at: Interval| at.last.min(cell.last) - at.first.max(cell.first);
    let most = inside.max_by_key(|segment| (matches!(segment.part, Part::Block { .. }), weight(segment.at)));
    match most.map(|segment| &segment.part) {
        Some(Part::Block { node, .. }) => letters.get(node.as_str()).copied().unwrap_or('+'),
        Some(Part::Excluded) => 'x',
        Some(Part::Reserved) => 'r',
        Some(Part::OtherPool { .. }) => '#',
        Some(Part::Free) => '.',
        Some(Part::Never) | None => '-',
    }
}
