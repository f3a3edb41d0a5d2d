// SPDX-License-Identifier: Apache-2.0
//! The conditions of a pool that docs/operate.md lists, as far as an edit alone causes them, and their Events.

use crate::cluster::Cluster;
use crate::pools::{self, gone};
use crate::steps::{Events, becomes};
use serde_json::{Value, json};

fn pool(name: &str, spec: &Value) -> Value {
    pools::pool(name, "10.81.0.0/28", spec)
}

/// Waits until the pool has each of these conditions: type, status, reason.
fn has(cluster: &Cluster, name: &str, conditions: &[[&str; 3]]) {
    for [kind, status, reason] in conditions {
        becomes(cluster, &format!("ippool {name}"), kind, status, reason);
    }
}

/// Waits for an Event of the pool with this reason and type.
fn event(cluster: &Cluster, name: &str, reason: &str, severity: &str) {
    Events::of_pool(cluster, name).wait(cluster, reason, severity);
}

fn delete(cluster: &Cluster, name: &str) {
    cluster.kubectl(&format!("delete ippools.rdmanet.io {name} --wait=false"));
    gone(cluster, name);
}

/// The conditions of a pool without any fault.
const FINE: &[[&str; 3]] = &[
    ["Ready", "True", "Accepted"],
    ["Serving", "True", "Accepted"],
    ["Stalled", "False", "Accepted"],
    ["Degraded", "False", "Accepted"],
    ["Overlap", "False", "None"],
    ["OverlapElsewhere", "False", "None"],
    ["Exhausted", "False", "AddressesAvailable"],
    ["ExclusionOverLive", "False", "None"],
    ["ShrinkPending", "False", "None"],
    ["FewBlocks", "False", "None"],
    ["FallbackMissing", "False", "None"],
];

#[test]
fn a_contradictory_edit_is_not_in_force_until_it_is_corrected() {
    let cluster = Cluster::lock();
    let refused = cluster
        .try_apply(&[pool(
            "wrong",
            &json!({ "ranges": [{ "subnet": "10.81.0.0/33" }] }),
        )])
        .unwrap_err();
    assert!(refused.contains("spec.ranges[0].subnet"), "{refused}");

    cluster.apply(&[pool("edited", &json!({}))]);
    has(&cluster, "edited", FINE);
    event(&cluster, "edited", "Accepted", "Normal");
    cluster.kubectl("wait ippool/edited --for=condition=Ready --timeout=600s");

    let nothing_left = json!([{ "subnet": "10.81.0.0/28", "gateway": "none", "exclude": ["10.81.0.0/28"] }]);
    cluster.apply(&[pool("edited", &json!({ "ranges": nothing_left }))]);
    let unusable = [
        ["Ready", "False", "InvalidSpec"],
        ["Serving", "True", "EarlierSpec"],
        ["Stalled", "True", "InvalidSpec"],
        ["Degraded", "True", "InvalidSpec"],
    ];
    has(&cluster, "edited", &unusable);
    event(&cluster, "edited", "InvalidSpec", "Warning");
    event(&cluster, "edited", "EarlierSpec", "Normal");
    // A pool whose first spec is contradictory was never in force.
    cluster.apply(&[pool("never", &json!({ "ranges": nothing_left }))]);
    has(&cluster, "never", &[["Serving", "False", "InvalidSpec"]]);
    delete(&cluster, "never");
    cluster.apply(&[pool("edited", &json!({}))]);
    has(&cluster, "edited", FINE);
    delete(&cluster, "edited");
}

#[test]
fn a_pool_says_which_other_pool_has_its_addresses() {
    let cluster = Cluster::lock();
    cluster.apply(&[pool("first", &json!({}))]);
    has(&cluster, "first", FINE);

    cluster.apply(&[pool("coarser", &json!({ "blockSize": { "v4": 8 } }))]);
    let conflict = [
        ["Ready", "False", "Conflict"],
        ["Serving", "False", "Conflict"],
        ["Stalled", "False", "Conflict"],
        ["Degraded", "True", "Conflict"],
        ["Overlap", "True", "BlockSizeConflict"],
    ];
    has(&cluster, "coarser", &conflict);
    for reason in ["Conflict", "BlockSizeConflict"] {
        event(&cluster, "coarser", reason, "Warning");
    }
    delete(&cluster, "coarser");

    cluster.apply(&[pool("second", &json!({}))]);
    for name in ["first", "second"] {
        has(&cluster, name, &[["Overlap", "True", "SameBlockLayout"]]);
        event(&cluster, name, "SameBlockLayout", "Warning");
    }
    delete(&cluster, "second");
    has(&cluster, "first", FINE);

    cluster.apply(&[pool("elsewhere", &json!({ "addressSpace": "other" }))]);
    for name in ["first", "elsewhere"] {
        has(
            &cluster,
            name,
            &[["OverlapElsewhere", "True", "OtherAddressSpace"]],
        );
        event(&cluster, name, "OtherAddressSpace", "Warning");
    }
    delete(&cluster, "elsewhere");
    has(&cluster, "first", FINE);
    delete(&cluster, "first");
}

#[test]
fn a_pool_with_fewer_blocks_than_nodes_says_so() {
    let cluster = Cluster::lock();
    cluster.apply(&[pool("few", &json!({ "blockSize": { "v4": 16 } }))]);
    has(&cluster, "few", &[["FewBlocks", "True", "FewerBlocksThanNodes"]]);
    event(&cluster, "few", "FewerBlocksThanNodes", "Warning");
    delete(&cluster, "few");
}
