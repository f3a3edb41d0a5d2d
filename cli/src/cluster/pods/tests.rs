// SPDX-License-Identifier: Apache-2.0

use super::*;
use serde_json::json;

fn pod(status: &str, phase: &str) -> PodFacts {
    let pod = json!({
        "metadata": { "name": "a", "namespace": "ml", "uid": "u", "annotations": { STATUS: status } },
        "spec": { "nodeName": "n1", "containers": [] },
        "status": { "phase": phase, "startTime": "2026-01-02T03:04:05Z" },
    });
    PodFacts::of(&serde_json::from_value(pod).unwrap())
}

#[test]
fn only_additional_interfaces_are_read_from_the_status_of_multus() {
    let status = r#"[{"name": "cbr0", "ips": ["10.244.0.2"], "default": true, "dns": {}},
        {"name": "ml/rail0", "interface": "net1", "ips": ["10.20.0.130", "fd00::1/64"], "mac": "x"}]"#;
    let pod = pod(status, "Running");
    assert_eq!(
        (pod.name.as_str(), pod.since.as_deref()),
        ("ml/a", Some("2026-01-02T03:04:05Z"))
    );
    let ip: IpAddr = "fd00::1".parse().unwrap();
    assert_eq!(pod.interface_with(ip).unwrap().interface, "net1");
    assert!(pod.interface_with("10.244.0.2".parse().unwrap()).is_none());
}

#[test]
fn a_pod_that_has_ended_is_not_alive_and_a_damaged_annotation_is_ignored() {
    assert!(!pod("[]", "Succeeded").is_running);
    assert!(pod("[]", "Pending").is_running);
    assert_eq!(pod("{", "Running").interfaces, []);
}
