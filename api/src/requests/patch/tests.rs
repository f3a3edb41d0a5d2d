// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::{
    AddressSpace, AddressSpaceSpec, AddressState, BlockState, IpAddress, IpAddressSpec, IpBlock, IpBlockSpec,
    IpPool, NodeRef,
};
use ipam::range::Family;

fn block() -> IpBlock {
    let spec = IpBlockSpec {
        pool: "p".to_owned(),
        cidr: "10.0.0.0/29".to_owned(),
        owner: NodeRef::default(),
        epoch: 1,
        state: BlockState::Active,
        orphaned: None,
        quarantine_seconds: None,
    };
    let mut block = IpBlock::new("default-4-0a000000-29", spec);
    block.metadata.resource_version = Some("7".to_owned());
    block
}

#[test]
fn a_patch_requires_the_resource_version_of_the_object_that_was_read() {
    let patch = of(&block(), &block(), Part::Main).unwrap();
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    let mut unread = block();
    unread.metadata.resource_version = None;
    assert!(of(&unread, &unread, Part::Main).is_err());
}

#[test]
fn a_patch_deletes_absent_members_and_omits_unknown_ones() {
    let patch = of(&block(), &block(), Part::Main).unwrap();
    let spec = patch["spec"].as_object().unwrap();
    assert_eq!(spec.get("orphaned"), Some(&Value::Null));
    let names: Vec<&str> = spec.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "cidr",
            "epoch",
            "orphaned",
            "owner",
            "pool",
            "quarantineSeconds",
            "state"
        ]
    );
    assert!(patch.get("status").is_none() && patch.get("kind").is_none());
}

#[test]
fn a_patch_can_delete_every_optional_member_of_an_address() {
    let spec = IpAddressSpec {
        pool: "p".to_owned(),
        address: "10.0.0.1".to_owned(),
        block: "10.0.0.0/29".to_owned(),
        node: NodeRef::default(),
        state: AddressState::Kept,
        attachment: None,
        pod: None,
        holder: None,
        since: None,
        quarantine_seconds: None,
    };
    let mut address = IpAddress::new("default-0a000001", spec);
    address.metadata.resource_version = Some("7".to_owned());
    let patch = of(&address, &address, Part::Main).unwrap();
    for member in ["attachment", "pod", "holder", "since", "quarantineSeconds"] {
        assert_eq!(patch["spec"].get(member), Some(&Value::Null), "{member}");
    }
}

#[test]
fn an_accepted_spec_without_a_selector_deletes_the_earlier_selector() {
    let mut pool: IpPool = serde_json::from_value(json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPPool", "metadata": { "name": "p", "resourceVersion": "7" },
        "spec": { "ranges": [{ "subnet": "10.0.0.0/24" }] },
    }))
    .unwrap();
    pool.status.get_or_insert_default().accepted = Some(pool.spec.clone());
    let patch = of(&pool, &pool, Part::Status).unwrap();
    assert_eq!(
        patch["status"]["accepted"].get("nodeSelector"),
        Some(&Value::Null)
    );
    assert_eq!(patch["status"].get("requests"), Some(&Value::Null));
    assert!(patch.get("spec").is_none());
}

#[test]
fn an_answered_request_is_removed_and_the_others_stay() {
    let mut pool: IpPool = serde_json::from_value(json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPPool", "metadata": { "name": "p", "resourceVersion": "7" },
        "spec": { "ranges": [{ "subnet": "10.0.0.0/24" }] },
        "status": { "requests": {
            "a": { "v4": "2026-01-01T00:00:00Z" },
            "b": { "v4": "2026-01-01T00:00:00Z", "addresses": ["default-0a000001"] },
        } },
    }))
    .unwrap();
    pool.status.as_mut().unwrap().close_requests(Family::V4);
    let patch = of(&pool, &pool, Part::Status).unwrap();
    let requests = json!({ "a": null, "b": { "v4": null, "v6": null, "addresses": ["default-0a000001"] } });
    assert_eq!(patch["status"]["requests"], requests);
    pool.status
        .as_mut()
        .unwrap()
        .close_address_request("default-0a000001");
    let patch = of(&pool, &pool, Part::Status).unwrap();
    assert_eq!(patch["status"]["requests"], json!({ "a": null, "b": null }));
}

#[test]
fn a_label_that_the_accepted_spec_has_no_more_is_deleted() {
    let pool = |labels: Value| -> IpPool {
        let spec =
            json!({ "ranges": [{ "subnet": "10.0.0.0/24" }], "nodeSelector": { "matchLabels": labels } });
        serde_json::from_value(json!({
            "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPPool", "metadata": { "name": "p", "resourceVersion": "7" },
            "spec": spec, "status": { "accepted": spec },
        }))
        .unwrap()
    };
    let before = pool(json!({ "rack": "a", "room": "1" }));
    let patch = of(&before, &pool(json!({ "zone": "b", "room": "1" })), Part::Status).unwrap();
    let labels = &patch["status"]["accepted"]["nodeSelector"]["matchLabels"];
    assert_eq!(labels, &json!({ "rack": null, "room": "1", "zone": "b" }));
}

#[test]
fn a_write_of_finalizers_sends_no_spec() {
    let mut space = AddressSpace::new("default", AddressSpaceSpec::default());
    space.metadata.resource_version = Some("7".to_owned());
    let patch = of(&space, &space, Part::Metadata).unwrap();
    assert!(patch.get("spec").is_none());
    assert_eq!(patch["metadata"].get("finalizers"), Some(&Value::Null));
}
