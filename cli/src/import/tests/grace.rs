// SPDX-License-Identifier: Apache-2.0
//! How long a pool waits for an ADD of the old plugin.

use super::*;
use k8s_openapi::jiff::SignedDuration;

const GRACE: u64 = 660;

fn at(seconds: u64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(i64::try_from(seconds).unwrap())
}

/// The first step of a pool of two networks of whereabouts, `net0` and `net1`.
fn created() -> Step {
    let both = [range("10.0.0.0/24"), range("10.0.0.0/24")];
    steps(&of_whereabouts(&both, &[]), &Snapshot::default()).remove(0)
}

/// The step of a run at `seconds`, after the step `before`. `switched`: the networks that name the pool, which were changed at the
/// time 0.
fn step_at(before: &Step, seconds: u64, switched: &[&str]) -> Step {
    let snapshot = Snapshot::of(vec![accepted(before)], vec![], vec![]);
    let options = PlanOptions {
        grace: Duration::from_secs(GRACE),
        now: at(seconds),
        ..OPTIONS
    };
    let to_pool = |name: &&str| {
        let ipam = json!({ "type": "rdma-ipam", "pool": before.pool });
        let changed = Some(at(0));
        Network {
            changed,
            ..network(name, &ipam)
        }
    };
    let data = whereabouts::interpret(switched.iter().map(to_pool).collect(), &[], &[]);
    let (mut steps, refused) = plan(&data, &snapshot, &options);
    assert_eq!((steps.len(), refused), (1, vec![]));
    steps.remove(0)
}

fn of(step: &Step) -> (&'static str, Option<u64>, Action) {
    (step.state(), step.wait, step.action.clone())
}

#[test]
fn a_pool_opens_one_grace_after_its_last_network_was_switched() {
    let waiting = step_at(&created(), 60, &["net0", "net1"]);
    assert_eq!(of(&waiting), ("closed", Some(GRACE - 60), Action::Keep));
    assert_eq!(of(&step_at(&waiting, GRACE, &["net0", "net1"])).0, "open");
}

#[test]
fn a_pool_with_a_missing_network_opens_one_grace_after_the_run_that_saw_it() {
    for left in [&[][..], &["net0"]] {
        let first = step_at(&created(), 10_000, left);
        assert_eq!(of(&first), ("closed", Some(GRACE), Action::Write), "{left:?}");
        let second = step_at(&first, 10_060, left);
        assert_eq!(
            of(&second),
            ("closed", Some(GRACE - 60), Action::Keep),
            "{left:?}"
        );
        let opened = step_at(&second, 10_000 + GRACE, left);
        assert_eq!((opened.state(), opened.wait), ("open", None), "{left:?}");
        assert_eq!(opened.record.missing_since, None);
    }
}
