// SPDX-License-Identifier: Apache-2.0
//! Files below the state directory changed at random. `docs/design/fuzz.md` has the figures.
//!
//! A case attaches two pods, damages one or two files, and makes the calls that a runtime may make for the first pod. The second
//! pod stays untouched.

mod damage;
mod rig;

use crate::journal::loads;
use crate::model::warnings_of;
use common::mutate::{self, Random};
use rig::{OTHER, OWN, Rig, Whole};
use serde_json::{Value, json};

/// The third pod, which requests what the first one has.
const THIRD: (&str, &str) = ("c3", "net3");

/// The two attached pods before the damage.
struct Attached {
    /// The node with the second pod alone.
    alone: Whole,
    /// The parts of the node that the first attachment never had.
    rest: rig::Rest,
    /// The result of its ADD.
    result: Value,
    /// Whether its namespace has ended.
    dead: bool,
}

fn attach(rig: &Rig, random: &mut Random, case: &str) -> Attached {
    rig.add(OTHER, case);
    let (alone, rest) = (rig.whole(), rig.rest());
    let result = rig.add(OWN, case);
    assert_eq!(rig.rest(), rest, "{case}: ADD");
    let dead = random.one_in(3);
    if dead {
        rig.end_namespace();
    }
    assert_eq!(rig.rest(), rest, "{case}: the namespace ends");
    Attached {
        alone,
        rest,
        result,
        dead,
    }
}

/// The calls between the damage and DEL.
fn other_calls(rig: &Rig, random: &mut Random, attached: &Attached, case: &str) {
    if random.one_in(4) {
        rig.call(
            ("CHECK", OWN),
            true,
            &json!({"prevResult": attached.result}),
            case,
        );
    }
    match random.below(6) {
        0 => {
            let (added, _) = rig.call(("ADD", THIRD), true, &json!({}), case);
            assert_eq!(rig.rest(), attached.rest, "{case}: ADD of another pod");
            let (removed, answer) = rig.call(("DEL", THIRD), true, &json!({}), case);
            assert!(removed, "{case}: DEL after {added}: {answer}");
        }
        1 if !attached.dead => {
            rig.call(("ADD", OWN), true, &json!({}), case);
        }
        2 => collect(rig, case),
        _ => {}
    }
    assert_eq!(rig.rest(), attached.rest, "{case}: before DEL");
}

/// GC while the second pod alone is valid.
fn collect(rig: &Rig, case: &str) {
    let (collected, answer) = rig.call(("GC", OWN), true, &rig.valid(), case);
    assert!(collected, "{case}: GC: {answer}");
}

/// DEL of the first pod after the damage.
fn remove(rig: &Rig, random: &mut Random, attached: &Attached, intact: bool, case: &str) {
    // Without CNI_NETNS only the file names the namespace of a living pod.
    let netns = if intact || attached.dead {
        random.one_in(2)
    } else {
        true
    };
    let (removed, answer) = rig.call(("DEL", OWN), netns, &json!({}), case);
    assert!(removed, "{case}: DEL: {answer}");
    assert_eq!(rig.rest(), attached.rest, "{case}: DEL");
    collect(rig, case);
    assert_eq!(rig.rest(), attached.rest, "{case}: GC");
    assert!(!rig.is_written(OWN), "{case}");
    if intact || !rig.takes() {
        assert_eq!(rig.whole(), attached.alone, "{case}");
    }
}

/// Both pods end. `before` is the node before the first ADD.
fn end(rig: &Rig, random: &mut Random, attached: &Attached, before: Option<&Whole>, case: &str) {
    let restored = rig.whole() == attached.alone;
    if restored && random.one_in(4) {
        rig.add(OWN, case);
        let (removed, answer) = rig.call(("DEL", OWN), true, &json!({}), case);
        assert!(removed, "{case}: DEL after the next ADD: {answer}");
        assert_eq!(rig.whole(), attached.alone, "{case}: the next ADD");
    }
    let (removed, answer) = rig.call(("DEL", OTHER), true, &json!({}), case);
    assert!(removed, "{case}: DEL of the second pod: {answer}");
    if let Some(before) = before.filter(|_| restored) {
        assert_eq!(&rig.whole(), before, "{case}: DEL of the second pod");
    }
}

/// DEL of the first pod succeeds, and changes nothing of the second pod or of the host. It restores the node, or names the
/// attachment whose link or device it does not restore.
#[test]
fn del_of_an_attachment_with_damaged_files_changes_no_other_attachment() {
    mutate::cases("state", 60, |case, random| {
        let rig = Rig::new(random);
        let before = rig.whole();
        let attached = attach(&rig, random, &format!("{case}: {}", rig.kind));
        let outside = rig.files_outside();
        let (files, damages) = rig.damaged(random);
        let case = &format!("{case}: {}, dead: {}, {damages:?}", rig.kind, attached.dead);
        let (intact, named) = (rig.is_intact(&files, OWN), rig.has_traces(OWN));
        let before = rig.is_intact(&files, OTHER).then_some(before);
        let ((), warnings) = warnings_of(|| {
            other_calls(&rig, random, &attached, case);
            loads(rig.fixture.state.path(), None);
            remove(&rig, random, &attached, intact, case);
        });
        assert!(
            rig.whole() == attached.alone || !named || warnings.iter().any(|line| line.contains("c1@net1")),
            "{case}: nothing names what is left: {warnings:?}"
        );
        end(&rig, random, &attached, before.as_ref(), case);
        assert_eq!(rig.files_outside(), outside, "{case}");
    });
}
