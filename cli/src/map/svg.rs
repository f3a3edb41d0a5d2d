// SPDX-License-Identifier: Apache-2.0
//! The map as a self-contained SVG drawing: no script, no embedded font, light and dark according to the reader's
//! setting.

use super::{Map, MappedRange, Part, Segment};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The width of a row of addresses, in pixels.
const WIDTH: f64 = 768.0;
const LEFT: f64 = 150.0;
const ROW: f64 = 22.0;
const ROWS: u128 = 16;
/// A block is drawn at least this wide.
const LEAST: f64 = 2.0;
/// From this width on, each address in use is drawn separately.
const SINGLE: f64 = 3.0;
/// The most nodes in the legend.
const NAMED: usize = 40;
const COLUMNS: usize = 4;

const STYLE: &str = "\
text{font:12px ui-sans-serif,system-ui,sans-serif;fill:#1f2328}.t{font-size:16px;font-weight:600}.m{fill:#59636e}\
.a{font:11px ui-monospace,monospace;fill:#59636e;text-anchor:end}.l{font-size:11px;fill:#fff;text-anchor:middle}\
.bg{fill:#fff}.free{fill:#eef1f4}.never{fill:#c8d1da}.other{fill:#818b98}.excluded{fill:url(#x)}.reserved{fill:#fff;stroke:#9a6700;stroke-dasharray:3 2}\
.line{stroke:#fff;stroke-width:1}.held{fill:#000;fill-opacity:.45}.gone{fill-opacity:.45}.xb{fill:#d8dee4}.xl{stroke:#818b98;stroke-width:1.5}\
@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.m,.a{fill:#9198a1}.l{fill:#fff}.bg{fill:#0d1117}.free{fill:#21262d}.never{fill:#484f58}.other{fill:#6e7681}\
.reserved{fill:#0d1117;stroke:#d29922}.line{stroke:#0d1117}.held{fill:#fff;fill-opacity:.6}.xb{fill:#30363d}.xl{stroke:#9198a1}}";

/// The whole drawing.
pub fn render(map: &Map) -> String {
    let hues: BTreeMap<&str, usize> = map
        .nodes
        .keys()
        .enumerate()
        .map(|(i, node)| (node.as_str(), i))
        .collect();
    let mut body = String::new();
    let mut y = 28.0;
    let _ = writeln!(
        body,
        r#"<text class="t" x="16" y="{y}">pool {}</text>"#,
        escaped(&map.pool)
    );
    for range in &map.ranges {
        y += 30.0;
        y = draw(&mut body, range, &hues, y);
    }
    y = legend(&mut body, map, &hues, y + 26.0);
    let (width, height) = (LEFT + WIDTH + 16.0, y + 8.0);
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">
<title>pool {}: who owns which addresses</title>
<style>{STYLE}</style>
<defs><pattern id="x" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="xb" width="6" height="6"/><path class="xl" d="M0 0V6"/></pattern></defs>
<rect class="bg" width="{width}" height="{height}"/>
{body}</svg>
"#,
        escaped(&map.pool)
    )
}

/// The colour of a node. The hues are as far apart as possible, in three shades, so that neighbours in the list differ.
fn colour(index: usize) -> String {
    let hue = (212 + index * 137) % 360;
    let lightness = [42, 34, 50][index / 12 % 3];
    format!("hsl({hue} 58% {lightness}%)")
}

/// Draws one range, with a row for each sixteenth of it. Returns the position of its end.
fn draw(body: &mut String, range: &MappedRange, hues: &BTreeMap<&str, usize>, top: f64) -> f64 {
    let (whole, family) = (range.whole(), range.family());
    let row = whole
        .count()
        .div_ceil(ROWS)
        .checked_next_power_of_two()
        .unwrap_or(u128::MAX)
        .max(16.min(whole.count()));
    let _ = writeln!(
        body,
        r#"<text x="16" y="{top}">{}</text><text class="m" x="{LEFT}" y="{top}">{} per row</text>"#,
        range.subnet,
        amount(row)
    );
    let mut y = top + 10.0;
    let mut start = whole.first;
    loop {
        let end = start.saturating_add(row - 1).min(whole.last);
        let _ = writeln!(
            body,
            r#"<text class="a" x="{}" y="{}">{}</text>"#,
            LEFT - 8.0,
            y + 14.0,
            family.address(start)
        );
        let from = range.segments.partition_point(|segment| segment.at.last < start);
        let inside: Vec<&Segment> = range.segments[from..]
            .iter()
            .take_while(|segment| segment.at.first <= end)
            .collect();
        let place = |first: u128, last: u128| {
            let x = share(first.max(start) - start, row);
            let to = share(last.min(end) - start + 1, row);
            (LEFT + x, to - x)
        };
        // Wide parts are drawn first, so that a block narrower than a pixel stays visible on top.
        let (blocks, ground): (Vec<&Segment>, Vec<&Segment>) = inside
            .into_iter()
            .partition(|segment| matches!(segment.part, Part::Block { .. }));
        for segment in ground.into_iter().chain(blocks) {
            let (x, width) = place(segment.at.first, segment.at.last);
            body.push_str(&shape(segment, x, y, width, hues));
        }
        let each = share(1, row);
        if each >= SINGLE {
            for number in range.held.iter().filter(|number| (start..=end).contains(number)) {
                let (x, width) = place(*number, *number);
                let _ = writeln!(
                    body,
                    r#"<rect class="held" x="{x:.1}" y="{:.1}" width="{:.1}" height="4"><title>{}</title></rect>"#,
                    y + ROW - 7.0,
                    width - 1.0,
                    family.address(*number)
                );
            }
        }
        y += ROW;
        if end >= whole.last {
            return y;
        }
        start = end + 1;
    }
}

/// The width of `addresses` in a row, in pixels.
#[expect(clippy::cast_precision_loss, reason = "a drawing has a thousand pixels")]
fn share(addresses: u128, row: u128) -> f64 {
    addresses as f64 / row as f64 * WIDTH
}

fn shape(segment: &Segment, x: f64, y: f64, width: f64, hues: &BTreeMap<&str, usize>) -> String {
    let height = ROW - 3.0;
    let rect = |class: &str, fill: &str, width: f64, title: &str| {
        format!(
            r#"<rect class="{class}"{fill} x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height}"><title>{title}</title></rect>"#
        )
    };
    let mut text = match &segment.part {
        Part::Free => rect("free", "", width, "free"),
        Part::Never => rect("never", "", width, "never allocated"),
        Part::OtherPool { pool } => rect(
            "other",
            "",
            width,
            &format!("in a block of pool {}", escaped(pool)),
        ),
        Part::Excluded => rect("excluded", "", width, "excluded"),
        Part::Reserved => rect("reserved", "", width.max(LEAST), "reserved"),
        Part::Block { node, state } => {
            let index = hues.get(node.as_str()).copied().unwrap_or_default();
            let fill = format!(r#" style="fill:{}""#, colour(index));
            let class = if state == "Active" { "line" } else { "line gone" };
            let title = format!("{} ({state})", escaped(node));
            let mut text = rect(class, &fill, width.max(LEAST), &title);
            #[expect(clippy::cast_precision_loss, reason = "a name is short")]
            let needed = node.chars().count() as f64 * 6.5 + 8.0;
            if width > needed {
                let (x, y) = (x + width / 2.0, y + 13.0);
                let _ = write!(
                    text,
                    r#"<text class="l" x="{x:.1}" y="{y:.1}">{}</text>"#,
                    escaped(node)
                );
            }
            text
        }
    };
    text.push('\n');
    text
}

fn legend(body: &mut String, map: &Map, hues: &BTreeMap<&str, usize>, top: f64) -> f64 {
    let mut x = 16.0;
    let mut kinds = vec![("free", "free"), ("never", "never allocated")];
    let has = |is_wanted: fn(&Part) -> bool| {
        let mut segments = map.ranges.iter().flat_map(|range| &range.segments);
        segments.any(|segment| is_wanted(&segment.part))
    };
    if has(|part| matches!(part, Part::OtherPool { .. })) {
        kinds.push(("other", "another pool"));
    }
    if has(|part| *part == Part::Excluded) {
        kinds.push(("excluded", "excluded"));
    }
    if has(|part| *part == Part::Reserved) {
        kinds.push(("reserved", "reserved"));
    }
    kinds.push(("held", "held"));
    for (class, name) in kinds {
        let _ = writeln!(
            body,
            r#"<rect class="{class}" x="{x}" y="{}" width="14" height="12"/><text x="{}" y="{top}">{name}</text>"#,
            top - 10.5,
            x + 20.0
        );
        x += 112.0;
    }
    let mut y = top;
    for (i, (node, (addresses, used))) in map.nodes.iter().take(NAMED).enumerate() {
        let column = i % COLUMNS;
        if column == 0 {
            y += 22.0;
        }
        #[expect(clippy::cast_precision_loss, reason = "there are four columns")]
        let x = 16.0 + column as f64 * 228.0;
        let index = hues.get(node.as_str()).copied().unwrap_or_default();
        let _ = writeln!(
            body,
            r#"<rect style="fill:{}" x="{x}" y="{}" width="14" height="12"/><text x="{}" y="{y}">{} <tspan class="m">{used} of {}</tspan></text>"#,
            colour(index),
            y - 10.5,
            x + 20.0,
            escaped(node),
            amount(*addresses)
        );
    }
    if map.nodes.len() > NAMED {
        y += 22.0;
        let _ = writeln!(
            body,
            r#"<text class="m" x="16" y="{y}">and {} more nodes</text>"#,
            map.nodes.len() - NAMED
        );
    }
    y + 12.0
}

/// Formats a number of addresses. The large ones of IPv6 are powers of two.
fn amount(addresses: u128) -> String {
    if addresses.is_power_of_two() && addresses > 1 << 20 {
        format!("2^{}", addresses.ilog2())
    } else {
        addresses.to_string()
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}
