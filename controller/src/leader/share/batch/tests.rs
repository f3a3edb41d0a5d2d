// SPDX-License-Identifier: Apache-2.0
//! The number of blocks in a batch.

use super::*;

const HASTE: Duration = Duration::from_secs(6);

fn block(name: &str, free: u64) -> Candidate {
    Candidate {
        name: name.to_owned(),
        node: String::new(),
        free,
        asked: None,
    }
}

fn asked(name: &str, free: u64, seconds: u64) -> Candidate {
    Candidate {
        asked: Some(Duration::from_secs(seconds)),
        ..block(name, free)
    }
}

/// A pool of `count` blocks with `free` addresses each.
fn blocks(count: usize, free: u64) -> Vec<Candidate> {
    (0..count).map(|i| block(&format!("b{i:03}"), free)).collect()
}

/// The last batch: blocks with their free addresses, and the age.
type Batch = (Vec<(String, u64)>, Duration);

/// A batch with this many addresses in one block, which is shared and exhausted by now.
fn used_up(addresses: u64, millis: u64) -> Batch {
    asked_for(&[("shared", addresses)], millis)
}

fn asked_for(blocks: &[(&str, u64)], millis: u64) -> Batch {
    let blocks = blocks.iter().map(|(name, free)| ((*name).to_owned(), *free));
    (blocks.collect(), Duration::from_millis(millis))
}

fn names(candidates: &[Candidate], batch: impl Into<Option<Batch>>) -> Vec<String> {
    let batch = batch.into();
    let last = batch
        .as_ref()
        .map(|(blocks, age)| LastBatch { blocks, age: *age });
    let chosen = next(candidates, last.as_ref(), HASTE);
    chosen.into_iter().map(|one| one.name.clone()).collect()
}

#[test]
fn the_first_request_asks_for_the_block_with_the_most_free_addresses() {
    let candidates = [block("a", 3), block("c", 9), block("b", 9), block("d", 0)];
    assert_eq!(names(&candidates, None), ["b"]);
}

#[test]
fn a_batch_that_is_used_up_quickly_is_followed_by_twice_as_much() {
    let candidates = blocks(64, 16);
    assert_eq!(names(&candidates, used_up(16, 300)).len(), 2);
    assert_eq!(names(&candidates, used_up(64, 300)).len(), 8);
    // The size of a batch is a number of addresses, so it contains more blocks if they have few free ones.
    assert_eq!(names(&blocks(64, 2), used_up(16, 300)).len(), 16);
}

#[test]
fn a_batch_that_lasted_long_is_followed_by_a_smaller_one() {
    let candidates = blocks(64, 16);
    assert_eq!(names(&candidates, used_up(64, 10_000)).len(), 4);
    assert_eq!(names(&candidates, used_up(64, 20_000)).len(), 2);
    assert_eq!(names(&candidates, used_up(64, 3_600_000)).len(), 1);
}

#[test]
fn no_other_owner_is_asked_while_half_of_the_batch_is_expected() {
    let mut candidates = blocks(8, 16);
    candidates.push(asked("x", 16, 1));
    candidates.push(asked("y", 16, 1));
    let batch = asked_for(&[("v", 16), ("w", 16), ("x", 16), ("y", 16)], 1000);
    assert!(names(&candidates, batch.clone()).is_empty());
    // This process knows only that another leader requested these blocks.
    assert!(names(&candidates, None).is_empty());
    // Three of four are shared and exhausted.
    candidates.pop();
    assert_eq!(names(&candidates, batch).len(), 6);
}

#[test]
fn a_slow_owner_does_not_delay_the_others_or_enlarge_the_next_batch() {
    let mut candidates = blocks(8, 16);
    candidates.push(asked("slow", 16, 7));
    assert_eq!(names(&candidates, asked_for(&[("slow", 16)], 7000)), ["b000"]);
    assert!(candidates[8].is_awaited(Duration::from_secs(60)));
    assert!(!candidates[8].is_awaited(Duration::from_secs(7)));
}

/// An owner's report may be half a minute old, and a pool fills up in less time.
#[test]
fn an_owner_without_free_addresses_is_skipped_without_a_larger_batch() {
    let mut candidates = blocks(8, 16);
    candidates.push(asked("full", 0, 1));
    let batch = asked_for(&[("full", 16)], 100);
    assert_eq!(names(&candidates, batch), ["b000"]);
    assert!(!candidates[8].is_awaited(Duration::from_secs(60)));
    // One of two blocks is shared and exhausted.
    let batch = asked_for(&[("full", 16), ("shared", 16)], 100);
    assert_eq!(names(&candidates, batch).len(), 2);
}

#[test]
fn no_owner_of_a_pool_without_free_addresses_is_asked() {
    let candidates = [block("a", 0), asked("b", 0, 1)];
    assert!(names(&candidates, used_up(16, 10)).is_empty());
    assert!(names(&[], None).is_empty());
}

/// Pods arrive one after another, as fast as addresses are available, and then stop.
#[test]
fn at_most_twice_as_many_addresses_as_needed_are_shared() {
    for needed in 1..=1000_u64 {
        let (mut left, mut shared, mut last) = (blocks(1000, 1), 0, None);
        while shared < needed {
            let chosen = names(&left, last);
            let count = u64::try_from(chosen.len()).unwrap();
            assert!(count > 0, "{needed}");
            left.retain(|one| !chosen.contains(&one.name));
            shared += count;
            last = Some(used_up(count, 100));
        }
        assert!(shared <= needed * 2, "{shared} for {needed}");
    }
}
