// SPDX-License-Identifier: Apache-2.0
//! When nodes note an edit.

use super::*;

#[test]
fn ten_thousand_nodes_note_an_edit_one_after_another_and_within_a_minute() {
    let mut in_second = [0_u32; 60];
    for i in 0..10_000_u32 {
        let wait = wait(10_000, f64::from(i) / 10_000.0);
        in_second[usize::try_from(wait.as_secs()).unwrap()] += 1;
    }
    assert!(in_second.iter().all(|notes| *notes <= 201), "{in_second:?}");
}

#[test]
fn a_few_nodes_note_an_edit_at_once() {
    let mut mirrored = Mirrored::default();
    assert!(mirrored.is_turn(1, 100));
    assert!(mirrored.is_turn(2, 100));
}

#[test]
fn a_turn_that_has_come_does_not_go() {
    let mut mirrored = Mirrored::default();
    while !mirrored.is_turn(1, 400) {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(mirrored.is_turn(1, 400));
}

/// A thousand pods that start at once on a thousand nodes: each node has said nothing for long, and all would speak in the same
/// moment.
#[test]
fn what_changes_everywhere_at_once_is_told_by_turns() {
    let one = Use {
        leased: 1,
        ..Use::default()
    };
    let due = |blocks| {
        let long_ago = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
        let mut told = Told {
            at: long_ago,
            used: Use::default(),
            noted: 1,
            turn: None,
        };
        assert!(!told.is_old(Use::default(), Duration::from_secs(30), blocks));
        assert!(!told.is_old(one, Duration::from_secs(90), blocks));
        told.is_old(one, Duration::from_secs(30), blocks)
    };
    assert!(due(100));
    let at_once = (0..1000).filter(|_| due(10_000)).count();
    assert!(at_once < 50, "{at_once} of 1000");
}
