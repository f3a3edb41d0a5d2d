// SPDX-License-Identifier: Apache-2.0
//! How long a pool waits for an ADD of the old plugin.

use super::*;
use k8s_openapi::jiff::SignedDuration;

const GRACE: u64 = 660;

/// The step `seconds` after the first run, of a pool whose networks were deleted after `before`.
fn step_after(before: &Step, seconds: u64) -> Step {
    let mut pool = accepted(before);
    pool.metadata.uid = Some("u".to_owned());
    let snapshot = Snapshot::of(vec![pool], vec![], vec![]);
    let options = PlanOptions {
        grace: Duration::from_secs(GRACE),
        now: Timestamp::UNIX_EPOCH + SignedDuration::from_secs(i64::try_from(seconds).unwrap()),
        ..OPTIONS
    };
    let (mut steps, refused) = plan(&SourceData::default(), &snapshot, &options);
    assert_eq!((steps.len(), refused), (1, vec![]));
    steps.remove(0)
}

#[test]
fn a_pool_that_no_network_names_stays_closed_for_the_grace_after_the_run_that_saw_it() {
    let created = steps(
        &of_whereabouts(&[range("10.0.0.0/24")], &[]),
        &Snapshot::default(),
    )
    .remove(0);
    let of = |step: &Step| (step.state(), step.wait, step.action.clone());
    let first = step_after(&created, 100);
    assert_eq!(of(&first), ("closed", Some(GRACE), Action::Write));
    let second = step_after(&first, 160);
    assert_eq!(of(&second), ("closed", Some(GRACE - 60), Action::Keep));
    let opened = step_after(&second, 100 + GRACE);
    assert_eq!((opened.state(), opened.wait), ("open", None));
    assert_eq!(opened.record.unnamed_since, None);
}
