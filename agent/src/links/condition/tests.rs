// SPDX-License-Identifier: Apache-2.0
use super::*;

fn link_status(healthy: bool) -> LinkStatus {
    LinkStatus {
        healthy,
        reason: reason::LINKS_UP,
        message: "carrier on ib0".to_owned(),
    }
}

fn status(scope: &LinkScope, status: Option<LinkStatus>, is_set: bool) -> Option<String> {
    wanted(scope, status, is_set).map(|says| says.status)
}

#[test]
fn the_links_condition_is_true_for_healthy_links_and_false_otherwise() {
    let rdma = LinkScope::Rdma;
    assert_eq!(
        status(&rdma, Some(link_status(true)), false).as_deref(),
        Some("True")
    );
    assert_eq!(
        status(&rdma, Some(link_status(false)), true).as_deref(),
        Some("False")
    );
}

#[test]
fn the_links_condition_of_a_node_that_lost_all_links_is_unknown() {
    assert_eq!(wanted(&LinkScope::Rdma, None, false), None);
    let lost = wanted(&LinkScope::Rdma, None, true).unwrap();
    assert_eq!(
        (lost.status.as_str(), lost.reason.as_str()),
        ("Unknown", reason::NO_LINKS)
    );
    assert_eq!(
        wanted(&LinkScope::Nothing, None, true),
        None,
        "turned off, it goes"
    );
}

#[test]
fn a_rejected_write_of_the_condition_is_retried_after_growing_pauses() {
    let refused = ReconcileError::Api(ApiError::Rejected {
        what: "PATCH".to_owned(),
        why: "forbidden".to_owned(),
    });
    let mut writer = ConditionWriter::default();
    let waits: Vec<Duration> = (0..8).map(|_| writer.after(&refused, EVERY)).collect();
    assert!(waits[0] >= EVERY && waits[0] <= EVERY * 3, "{waits:?}");
    assert!(
        waits[7] >= REFUSED * 3 / 4 && waits[7] <= REFUSED * 5 / 4,
        "{waits:?}"
    );
    assert_eq!(writer.failures, 8);
    assert!(writer.problem.is_some());
}

/// Otherwise each of ten thousand nodes would write in the second in which a spine switch restarts.
#[test]
fn an_agent_that_does_not_know_the_size_of_the_cluster_waits_a_random_time() {
    assert_eq!(turn(0, EVERY, 0.5), EVERY / 2);
    assert_eq!(turn(3, EVERY, 0.5), Duration::ZERO);
    assert_eq!(turn(10_000, EVERY, 0.5), Duration::from_secs(25));
}
