// SPDX-License-Identifier: Apache-2.0
use super::*;
use serde_json::json;

const OBSERVE: Duration = Duration::from_secs(30);
const QUARANTINE: Duration = Duration::from_secs(600);

fn there(node: NodeState, seconds: Option<u64>) -> AddressUse {
    AddressUse::Remote {
        same_pod: false,
        node,
        unchanged: seconds.map(Duration::from_secs),
    }
}

#[test]
fn a_kept_address_without_a_pod_passes_on_at_once() {
    for before in [AddressUse::Unused, AddressUse::Local { leased: false }] {
        assert_eq!(handover(before, OBSERVE, QUARANTINE), Handover::Pass);
    }
}

#[test]
fn a_kept_address_waits_for_the_end_of_a_lease_on_this_node() {
    assert_eq!(
        handover(AddressUse::Local { leased: true }, OBSERVE, QUARANTINE),
        Handover::Wait(Wait::Sandbox)
    );
}

#[test]
fn a_kept_address_waits_for_the_agent_of_a_live_node_without_limit() {
    assert_eq!(
        handover(there(NodeState::Alive, Some(1_000_000)), OBSERVE, QUARANTINE),
        Handover::Wait(Wait::Agent)
    );
}

#[test]
fn a_deleted_node_loses_the_address_after_the_quarantine() {
    let gone = |seconds| handover(there(NodeState::Gone, seconds), OBSERVE, QUARANTINE);
    assert_eq!(gone(None), Handover::Watch);
    assert_eq!(gone(Some(29)), Handover::Wait(Wait::Observation));
    assert_eq!(gone(Some(599)), Handover::Wait(Wait::Quarantine));
    assert_eq!(gone(Some(600)), Handover::Pass);
}

#[test]
fn a_node_that_is_not_ready_loses_the_address_on_the_second_observation() {
    let lost = |seconds| handover(there(NodeState::NotReady, seconds), OBSERVE, QUARANTINE);
    assert_eq!(lost(None), Handover::Watch);
    assert_eq!(lost(Some(29)), Handover::Wait(Wait::Observation));
    assert_eq!(lost(Some(30)), Handover::Pass);
}

#[test]
fn a_kept_address_waits_while_its_pod_is_recorded_on_two_nodes() {
    let before = AddressUse::Remote {
        same_pod: true,
        node: NodeState::Gone,
        unchanged: Some(Duration::MAX),
    };
    assert_eq!(
        handover(before, OBSERVE, QUARANTINE),
        Handover::Wait(Wait::SamePod)
    );
}

#[test]
fn only_a_pod_of_a_stateful_set_keeps_its_address() {
    let pod = |kind: &str, version: &str, controller: bool| -> Pod {
        serde_json::from_value(json!({ "metadata": { "name": "db-0", "ownerReferences": [
            { "apiVersion": version, "kind": kind, "name": "db", "uid": "u", "controller": controller },
        ] } }))
        .unwrap()
    };
    assert_eq!(stateful_set_of(&pod("StatefulSet", "apps/v1", true)), Some("db"));
    for other in [
        pod("StatefulSet", "apps/v1", false),
        pod("StatefulSet", "other/v1", true),
        pod("Job", "batch/v1", true),
        Pod::default(),
    ] {
        assert_eq!(stateful_set_of(&other), None);
    }
}

fn holder(pod: &str) -> Holder {
    Holder {
        namespace: "train".to_owned(),
        stateful_set: "db".to_owned(),
        pod: pod.to_owned(),
        ..Holder::default()
    }
}

fn pool(sticky: &str) -> IpPool {
    serde_json::from_value(json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPPool", "metadata": { "name": "p" },
        "spec": { "ranges": [] },
        "status": { "accepted": { "ranges": [], "sticky": sticky } },
    }))
    .unwrap()
}

fn set(spec: &serde_json::Value) -> StatefulSet {
    serde_json::from_value(json!({ "metadata": { "name": "db" }, "spec": spec })).unwrap()
}

#[test]
fn an_address_is_kept_only_for_a_replica_of_the_stateful_set() {
    let selector = json!({ "matchLabels": {} });
    let two = set(&json!({ "replicas": 2, "serviceName": "db", "selector": selector, "template": {} }));
    let later = set(
        &json!({ "replicas": 2, "ordinals": { "start": 5 }, "serviceName": "db", "selector": selector, "template": {} }),
    );
    for (set, pod, over) in [
        (&two, "db-0", false),
        (&two, "db-1", false),
        (&two, "db-2", true),
        (&later, "db-4", true),
        (&later, "db-6", false),
        (&later, "db-7", true),
    ] {
        let why = end_by_set(&holder(pod), Some(set));
        assert_eq!(why.is_some(), over, "{pod}: {why:?}");
    }
}

#[test]
fn the_reason_why_a_kept_address_is_freed_is_reported() {
    let kept = pool("StatefulSet");
    assert_eq!(end_by_pool(Some(&kept)), None);
    let mut leaving = kept;
    leaving.metadata.deletion_timestamp = Some(crate::convert::now());
    for (why, word) in [
        (end_by_pool(None), "pool is gone"),
        (end_by_pool(Some(&leaving)), "being deleted"),
        (end_by_pool(Some(&pool("Never"))), "no sticky addresses"),
        (end_by_set(&holder("db-0"), None), "StatefulSet train/db is gone"),
    ] {
        let why = why.unwrap();
        assert!(why.contains(word), "{why}");
    }
}
