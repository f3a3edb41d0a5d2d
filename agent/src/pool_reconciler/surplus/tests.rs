// SPDX-License-Identifier: Apache-2.0
//! Which blocks a node returns.

use super::*;

fn spare(name: &str, free: u64) -> Spare<'_> {
    Spare {
        name,
        free,
        rested: true,
    }
}

#[test]
fn a_node_returns_only_blocks_that_leave_it_enough_free_addresses() {
    let blocks = [spare("a", 16), spare("b", 16), spare("c", 16)];
    assert_eq!(without(&blocks, 16), ["a", "b"]);
    assert_eq!(without(&blocks, 17), ["a"]);
    assert_eq!(without(&blocks, 33), [""; 0]);
    assert_eq!(without(&blocks, 0), ["a", "b", "c"]);
}

#[test]
fn a_block_in_use_is_kept_and_its_free_addresses_count() {
    let in_use = Spare {
        rested: false,
        ..spare("a", 10)
    };
    let blocks = [in_use, spare("b", 16), spare("c", 16)];
    assert_eq!(without(&blocks, 10), ["b", "c"]);
    assert_eq!(without(&blocks, 11), ["b"]);
}
