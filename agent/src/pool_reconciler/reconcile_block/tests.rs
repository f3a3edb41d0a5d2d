// SPDX-License-Identifier: Apache-2.0
//! The blocks that a node keeps.

use super::*;
use api::deadline::Deadline;
use api::testing::{silent_clients, small_pool};
use ipam::pool::Counters;

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

fn target(open: bool, sharing: &[&str]) -> Target {
    Target {
        api: silent_clients().requests(Deadline::background()),
        accepted: Some(small_pool()),
        open,
        counters: Counters::default(),
        blocks: 0,
        sharing: sharing.iter().map(|&name| name.to_owned()).collect(),
        has_shortage: false,
    }
}

fn cell_of(cidr: &str) -> Option<BlockCidr> {
    BlockCidr::of(cidr.parse().unwrap())
}

#[tokio::test]
async fn the_pool_decides_whether_a_block_is_kept_returned_shared_or_drained() {
    let wish =
        |target: &Target, cidr, surplus| desired_use(target, "b", cell_of(cidr), Usage::default(), surplus);
    let inside = "10.1.0.16/28";
    assert_eq!(use_of(&target(true, &[]), inside, false), Desired::Keep);
    assert_eq!(use_of(&target(true, &[]), inside, true), Desired::Return);
    assert_eq!(use_of(&target(true, &["b"]), inside, true), Desired::Share);
    assert_eq!(use_of(&target(true, &["another"]), inside, false), Desired::Keep);
    // Nothing new is allocated from it, even if other nodes want to share it.
    assert_eq!(use_of(&target(false, &["b"]), inside, false), Desired::Drain);
    assert_eq!(
        use_of(&target(true, &["b"]), "10.2.0.0/28", false),
        Desired::Drain
    );
    assert_eq!(
        use_of(&target(true, &[]), "10.1.0.0/27", false),
        Desired::Drain,
        "of another size"
    );
    // All 16 addresses are in use, so the block has nothing to share.
    let full = Usage {
        leased: 16,
        ..Usage::default()
    };
    let shared = target(true, &["b"]);
    assert_eq!(
        desired_use(&shared, "b", cell_of(inside), full, false),
        Desired::Keep
    );
    let gone = Target {
        accepted: None,
        ..target(true, &[])
    };
    assert_eq!(use_of(&gone, inside, false), Desired::Drain);
}

#[test]
fn the_round_after_an_interruption_starts_behind_the_interrupted_block() {
    let names = || {
        ["a", "b", "c"]
            .map(str::to_owned)
            .into_iter()
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(behind(names(), None), ["a", "b", "c"]);
    assert_eq!(behind(names(), Some("a".to_owned())), ["b", "c", "a"]);
    // After the last name, and after a name that no longer exists.
    assert_eq!(behind(names(), Some("c".to_owned())), ["a", "b", "c"]);
    assert_eq!(behind(names(), Some("bb".to_owned())), ["c", "a", "b"]);
}
