// SPDX-License-Identifier: Apache-2.0
//! The details of one pool.

use super::*;

/// The details of a pool with this spec.
fn details_of(spec: &Value) -> Output {
    let mut pool = crate::testing::pool("rail0", &json!([]));
    pool["spec"] = spec.clone();
    pool["status"]["accepted"] = spec.clone();
    let snapshot = Snapshot::of(vec![serde_json::from_value(pool).unwrap()], vec![], vec![]);
    details(&snapshot, &snapshot.pools[0])
}

#[test]
fn the_details_of_a_pool_name_the_gateway_that_pods_get() {
    for (range, line) in [
        (
            json!({ "subnet": "10.1.0.0/24", "start": "10.1.0.100" }),
            "10.1.0.0/24 from 10.1.0.100 to its last, gateway 10.1.0.1",
        ),
        (
            json!({ "subnet": "10.1.0.0/24", "gateway": "10.1.0.254" }),
            "10.1.0.0/24, gateway 10.1.0.254",
        ),
        (
            json!({ "subnet": "10.1.0.0/24", "gateway": "none" }),
            "10.1.0.0/24, no gateway",
        ),
        (json!({ "subnet": "10.1.0.0/31" }), "10.1.0.0/31, no gateway"),
    ] {
        let text = details_of(&json!({ "ranges": [range] })).text;
        assert!(text.contains(&format!("  range     {line}\n")), "{text}");
    }
}

/// The keys that explain why a pool refuses a node or a namespace.
#[test]
fn the_details_of_a_pool_show_its_whole_spec() {
    let spec = json!({
        "ranges": [{ "subnet": "10.1.0.0/24" }], "nodeSelector": { "matchLabels": { "rdma": "true" } },
        "fallback": ["spare"], "allocation": "PerAddress",
    });
    let output = details_of(&spec);
    for part in [
        r#"nodeSelector: {"matchLabels":{"rdma":"true"}}"#,
        r#"fallback: ["spare"]"#,
        "allocation: PerAddress",
    ] {
        assert!(output.text.contains(part), "{}", output.text);
    }
    assert_eq!(output.json["spec"]["nodeSelector"], spec["nodeSelector"]);
}

/// `Stalled` is for tools that wait, and repeats the reason of `Degraded`.
#[test]
fn a_stalled_pool_is_reported_once() {
    let mut pool = crate::testing::pool("rail0", &json!([{ "subnet": "10.1.0.0/24" }]));
    let conditions = pool["status"]["conditions"].as_array_mut().unwrap();
    for kind in ["Stalled", "Degraded"] {
        conditions.push(json!({
            "type": kind, "status": "True", "reason": "InvalidSpec", "message": "no address is left",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }));
    }
    let snapshot = Snapshot::of(vec![serde_json::from_value(pool).unwrap()], vec![], vec![]);
    let text = pools(&snapshot, None).unwrap().text;
    assert!(text.contains("Degraded") && !text.contains("Stalled"), "{text}");
    let found = crate::check::problems(&snapshot).into_iter();
    let found = found.filter(|one| one.kind == "pool").map(|one| one.subject);
    assert_eq!(found.collect::<Vec<String>>(), ["rail0 Degraded"]);
}
