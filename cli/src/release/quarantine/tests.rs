// SPDX-License-Identifier: Apache-2.0
//! When the quarantine of a block or an address is over.

use super::*;
use crate::testing::{address, orphaned, with};
use serde_json::{Value, json};

const IP: &str = "10.1.0.16";

fn at(seconds: u64) -> Timestamp {
    Timestamp::UNIX_EPOCH + Duration::from_secs(600 + seconds)
}

fn block(quarantine: Option<i64>) -> IpBlock {
    serde_json::from_value(json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPBlock", "metadata": { "name": "default-4-0a010000-28" },
        "spec": {
            "pool": "rail0", "cidr": "10.1.0.0/28", "epoch": 1, "state": "Orphaned", "quarantineSeconds": quarantine,
            "owner": { "node": "a", "nodeUID": "1" }, "orphaned": { "by": "b", "since": "1970-01-01T00:10:00Z" },
        },
    }))
    .unwrap()
}

/// An address that was marked as orphaned at 600 s. `change` gets the object.
fn orphan(change: impl FnOnce(&mut Value)) -> IpAddress {
    let mut object = orphaned("rail0", IP, "a", "p", "1970-01-01T00:10:00Z");
    change(&mut object);
    serde_json::from_value(object).unwrap()
}

#[test]
fn a_block_is_released_only_after_the_quarantine_of_its_owner() {
    for (quarantine, seconds) in [(None, 600_u64), (Some(120), 120), (Some(3600), 3600)] {
        let block = block(quarantine);
        let early = require_block(&block, at(seconds - 10)).unwrap_err();
        assert!(
            early.to_string().contains("in quarantine for 11 s more"),
            "{early}"
        );
        assert!(require_block(&block, at(seconds)).is_ok());
    }
    let backwards = require_block(&block(Some(120)), Timestamp::UNIX_EPOCH);
    assert!(backwards.is_err(), "by a clock that is behind");
}

#[test]
fn an_address_is_released_only_after_the_quarantine_of_the_controller() {
    for (quarantine, seconds) in [(None, 600_u64), (Some(120), 120), (Some(3600), 3600)] {
        let object = orphan(|object| object["spec"]["quarantineSeconds"] = json!(quarantine));
        let early = require_address(&object, at(seconds - 10)).unwrap_err();
        let text = format!("{IP} is in quarantine for 11 s more: node a is gone, its pods may still run");
        assert!(early.to_string().contains(&text), "{early}");
        assert!(require_address(&object, at(seconds)).is_ok());
    }
    let backwards = require_address(&orphan(|_| {}), Timestamp::UNIX_EPOCH);
    assert!(backwards.is_err(), "by a clock that is behind");
}

/// The controller counts from the first look at a version. A node that is back and goes again gives the object a new one.
#[test]
fn each_write_of_an_address_restarts_its_quarantine() {
    let object = orphan(|object| {
        let later =
            json!({ "manager": "kubectl-label", "operation": "Update", "time": "1970-01-01T00:15:00Z" });
        object["metadata"]["managedFields"]
            .as_array_mut()
            .unwrap()
            .push(later);
    });
    assert!(require_address(&object, at(600)).is_err());
    assert!(require_address(&object, at(900)).is_ok());
}

/// `spec.since` and the time of creation are older than the mark.
#[test]
fn an_address_without_a_time_of_its_last_change_is_not_released() {
    let object = orphan(|object| {
        object["metadata"]["creationTimestamp"] = json!("1970-01-01T00:00:00Z");
        object["metadata"]["managedFields"] = json!([]);
    });
    let refused = require_address(&object, at(1_000_000)).unwrap_err().to_string();
    assert!(
        refused.contains("metadata.managedFields is empty")
            && refused.contains("kubectl delete ipaddresses.rdmanet.io default-10.1.0.16"),
        "{refused}"
    );
}

#[test]
fn the_error_about_a_bound_address_names_the_next_step() {
    let mut snapshot = with(&[], &[address("rail0", IP, "a", "p")]);
    let object = snapshot.addresses.first().unwrap().1.clone();
    let again = not_begun(&snapshot, &object).to_string();
    assert!(
        again.contains("start the agent on node a")
            && again.contains(r#"default-10.1.0.16 --type merge -p '{"spec":{"state":"Orphaned"}}'"#),
        "{again}"
    );
    snapshot.nodes.remove("a");
    let gone = not_begun(&snapshot, &object).to_string();
    assert!(
        gone.contains("Bound to pod ml/p on node a, which is gone")
            && gone.contains("ipaddresses.rdmanet.io default-10.1.0.16 shows Orphaned")
            && gone.contains("the log of the controller"),
        "{gone}"
    );
}
