// SPDX-License-Identifier: Apache-2.0
use super::*;
use api::testing::answering_clients;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use std::sync::{Arc, Mutex};

/// A Lease that `holder` renewed at this second by its clock.
fn lease(holder: &str, renewed: i64) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        renew_time: Some(MicroTime(Timestamp::from_second(renewed).unwrap())),
        ..LeaseSpec::default()
    }
}

/// The clock of the leader was ahead, so the Lease expires far in the future, and no replica reads it before.
#[test]
fn a_lease_that_nothing_renews_is_cleared_whatever_time_it_names() {
    let begin = Instant::now();
    let mut seen = Observation::default();
    let far = lease("b", 4_000_000_000);
    assert_eq!(seen.judge(&far, None, begin), Verdict::Wait);
    assert_eq!(
        seen.judge(&far, None, begin + Duration::from_secs(29)),
        Verdict::Wait
    );
    assert_eq!(seen.judge(&far, None, begin + STALE), Verdict::Clear);
    // The leader itself sleeps until the time of its clock that was ahead.
    assert_eq!(seen.judge(&far, Some("b"), begin + STALE), Verdict::Clear);
    let (released, begin) = (LeaseSpec::default(), begin + STALE);
    assert_eq!(seen.judge(&released, None, begin), Verdict::Wait);
    assert_eq!(seen.judge(&released, None, begin + STALE), Verdict::Clear);
}

#[test]
fn a_lease_that_its_holder_renews_or_another_replica_takes_is_not_cleared() {
    let (begin, interval) = (Instant::now(), OBSERVATION_INTERVAL);
    let mut seen = Observation::default();
    for (i, renewed) in (0..20).zip(100..) {
        assert_eq!(
            seen.judge(&lease("b", renewed), None, begin + interval * i),
            Verdict::Wait
        );
    }
    assert_eq!(
        seen.judge(&lease("c", 119), None, begin + interval * 30),
        Verdict::Wait
    );
}

#[test]
fn a_leader_joins_the_election_anew_when_another_replica_has_the_lease() {
    let mut seen = Observation::default();
    let now = Instant::now();
    assert_eq!(seen.judge(&lease("b", 1), Some("a"), now), Verdict::Rejoin);
    assert_eq!(seen.judge(&LeaseSpec::default(), Some("a"), now), Verdict::Rejoin);
    assert_eq!(seen.judge(&lease("a", 1), Some("a"), now), Verdict::Wait);
}

#[tokio::test]
async fn a_lease_is_cleared_only_in_the_version_that_was_read() {
    let sent = Arc::new(Mutex::new(Value::Null));
    let seen = sent.clone();
    let clients = answering_clients(move |method, _, body| {
        assert_eq!(method, "PATCH");
        *seen.lock().unwrap() = body.clone();
        (409, json!({ "kind": "Status", "status": "Failure", "code": 409 }))
    });
    let api = Api::namespaced(clients.for_libraries(), "rdmanet-system");
    let mut lease = Lease {
        spec: Some(lease("b", 1)),
        ..Lease::default()
    };
    lease.metadata.resource_version = Some("7".to_owned());
    assert!(clear(&api, &lease).await.is_err());
    let sent = sent.lock().unwrap().clone();
    assert_eq!(sent["metadata"]["resourceVersion"], "7");
    assert!(sent["spec"].as_object().unwrap().contains_key("holderIdentity"));
    assert!(sent["spec"].as_object().unwrap().values().all(Value::is_null));
}
