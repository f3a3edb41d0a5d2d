// SPDX-License-Identifier: Apache-2.0
use super::*;
use serde_json::{Value, json};

fn ours() -> PodId {
    PodId {
        namespace: "default".to_owned(),
        name: "one".to_owned(),
        uid: "u-1".to_owned(),
    }
}

fn with(metadata: &Value) -> Pod {
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

#[test]
fn only_an_absent_pod_or_another_uid_proves_that_a_pod_is_gone() {
    let there = with(&json!({ "name": "one", "uid": "u-1" }));
    assert_eq!(conclude(Some(&there), &ours(), false), None);
    let without_uid = with(&json!({ "name": "one" }));
    assert_eq!(conclude(Some(&without_uid), &ours(), false), None);
    let another = with(&json!({ "name": "one", "uid": "u-2" }));
    let why = conclude(Some(&another), &ours(), false).unwrap();
    assert!(why.contains("has the UID u-2 now"), "{why}");
    let why = conclude(None, &ours(), false).unwrap();
    assert!(why.contains("has no Pod of its name"), "{why}");
}

#[test]
fn a_static_pod_is_known_by_the_uid_that_the_kubelet_gave_it() {
    let mirror =
        with(&json!({ "name": "one", "uid": "u-2", "annotations": { "kubernetes.io/config.hash": "u-1" } }));
    assert_eq!(conclude(Some(&mirror), &ours(), false), None);
}

#[test]
fn an_old_sandbox_of_a_living_pod_is_unused_once_a_newer_one_lives() {
    let there = with(&json!({ "name": "one", "uid": "u-1" }));
    let why = conclude(Some(&there), &ours(), true).unwrap();
    assert!(why.contains("its pod has a newer sandbox"), "{why}");
}

#[test]
fn a_pod_with_a_final_phase_gets_no_sandbox_any_more() {
    let at = |phase: &str| {
        let mut pod = with(&json!({ "name": "one", "uid": "u-1" }));
        pod.status.get_or_insert_default().phase = Some(phase.to_owned());
        conclude(Some(&pod), &ours(), false)
    };
    for phase in ["Pending", "Running", "Unknown"] {
        assert_eq!(at(phase), None, "{phase}");
    }
    for phase in ["Succeeded", "Failed"] {
        let why = at(phase).unwrap();
        assert!(why.contains("its pod has ended") && why.contains(phase), "{why}");
    }
}
