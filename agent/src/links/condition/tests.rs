// SPDX-License-Identifier: Apache-2.0
use super::*;

fn verdict(well: bool) -> Verdict {
    Verdict {
        well,
        reason: reason::LINKS_UP,
        message: "carrier on ib0".to_owned(),
    }
}

fn status(scope: &Scope, verdict: Option<Verdict>, is_told: bool) -> Option<String> {
    wanted(scope, verdict, is_told).map(|says| says.status)
}

#[test]
fn the_links_condition_is_true_for_healthy_links_and_false_otherwise() {
    let rdma = Scope::Rdma;
    assert_eq!(status(&rdma, Some(verdict(true)), false).as_deref(), Some("True"));
    assert_eq!(
        status(&rdma, Some(verdict(false)), true).as_deref(),
        Some("False")
    );
}

#[test]
fn the_links_condition_of_a_node_that_lost_all_links_is_unknown() {
    assert_eq!(wanted(&Scope::Rdma, None, false), None);
    let lost = wanted(&Scope::Rdma, None, true).unwrap();
    assert_eq!(
        (lost.status.as_str(), lost.reason.as_str()),
        ("Unknown", reason::NO_LINKS)
    );
    assert_eq!(wanted(&Scope::Nothing, None, true), None, "turned off, it goes");
}

#[test]
fn a_rejected_write_of_the_condition_is_retried_after_growing_pauses() {
    let refused = Failure::Api(ApiError::Rejected {
        what: "PATCH".to_owned(),
        why: "forbidden".to_owned(),
    });
    let mut teller = Teller::default();
    let waits: Vec<Duration> = (0..8).map(|_| teller.after(&refused, EVERY)).collect();
    assert!(waits[0] >= EVERY && waits[0] <= EVERY * 3, "{waits:?}");
    assert!(
        waits[7] >= REFUSED * 3 / 4 && waits[7] <= REFUSED * 5 / 4,
        "{waits:?}"
    );
    assert_eq!(teller.failures, 8);
    assert!(teller.complaint.is_some());
}

#[test]
fn the_nodes_of_a_large_cluster_report_a_fabric_event_one_after_another() {
    assert_eq!(turn(10, 1.0), Duration::ZERO);
    let latest = turn(10_000, 1.0).as_secs_f64();
    assert!((latest - 10_000.0 / WRITES_A_SECOND).abs() < 1.0, "{latest}");
    let turns: Vec<Duration> = (0..100).map(|i| turn(10_000, f64::from(i) / 100.0)).collect();
    assert!(turns.is_sorted() && turns[0] < turns[50] && turns[50] < turns[99]);
}
