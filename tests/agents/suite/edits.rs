// SPDX-License-Identifier: Apache-2.0
//! Administrators edit pools while pods run: no edit takes an address from a running pod.

use agents::pools::{per_address, simple};
use agents::{Attachment, Member, Site};
use api::{AddressSpace, IpAddress, IpBlock};
use apiserver::install::until;
use apiserver::objects::{address, create};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::discovery::ApiResource;
use kube::{Api, Resource, ResourceExt};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr};

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_keeps_an_excluded_address_and_no_other_pod_gets_it() {
    let (site, node) = Site::with_node().await;
    site.simple("rail0", "10.1.0.0/24").await;
    node.wait_active("rail0").await;
    let one = Attachment::of("one");
    let ip = node.add("rail0", &one).remove(0);
    let exclude =
        json!({ "spec": { "ranges": [{ "subnet": "10.1.0.0/24", "gateway": "none", "exclude": [ip] }] } });
    site.edit("rail0", exclude).await;
    site.wait_condition("rail0", "ExclusionOverLive", "True").await;
    assert_eq!(
        node.add("rail0", &one),
        [ip.as_str()],
        "a second ADD returns the result of the first"
    );
    until("the file excludes it", async || {
        node.file("rail0")["ranges"][0]["exclude"] == json!([ip])
    })
    .await;
    node.del("rail0", &one);
    site.wait_condition("rail0", "ExclusionOverLive", "False").await;
    for i in 0..15 {
        assert_ne!(
            node.add("rail0", &Attachment::of(&format!("p{i}"))),
            [ip.as_str()]
        );
    }
    // No excluded address and no block lies outside the ranges.
    let cidrs: Vec<String> = site
        .blocks("rail0")
        .await
        .into_iter()
        .map(|block| block.spec.cidr)
        .collect();
    let exclude =
        json!({ "spec": { "ranges": [{ "subnet": "10.1.0.0/24", "gateway": "none", "exclude": cidrs }] } });
    site.edit("rail0", exclude).await;
    until("all running pods are counted", async || {
        let (status, _, message) = site.condition("rail0", "ExclusionOverLive").await;
        status == "True" && message.starts_with("15 attachments")
    })
    .await;
    assert_eq!(site.condition("rail0", "ShrinkPending").await.0, "False");
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_outside_a_shrunk_pool_are_returned_after_their_pods_end() {
    let (site, node) = Site::with_node().await;
    site.pool("rail0", json!({
        "ranges": [{ "subnet": "10.1.0.0/28", "gateway": "none" }, { "subnet": "10.2.0.0/28", "gateway": "none" }],
        "blockSize": { "v4": 16 }, "cooldownSeconds": 0, "warmBlocks": 3,
    }))
    .await;
    until("both blocks are active", async || {
        node.blocks("rail0", "active").len() == 2
    })
    .await;
    let attachments: Vec<Attachment> = (0..28).map(|i| Attachment::of(&format!("p{i}"))).collect();
    let given: Vec<String> = attachments
        .iter()
        .map(|a| node.add("rail0", a).remove(0))
        .collect();
    site.edit(
        "rail0",
        json!({ "spec": { "ranges": [{ "subnet": "10.1.0.0/28", "gateway": "none" }] } }),
    )
    .await;
    site.wait_condition("rail0", "ShrinkPending", "True").await;
    until("the block drains", async || {
        node.blocks("rail0", "draining").len() == 1
    })
    .await;
    for (attachment, ip) in attachments.iter().zip(&given) {
        assert_eq!(&node.add("rail0", attachment), std::slice::from_ref(ip));
    }
    for (attachment, _) in attachments
        .iter()
        .zip(&given)
        .filter(|(_, ip)| ip.starts_with("10.2."))
    {
        node.del("rail0", attachment);
    }
    site.wait_blocks("rail0", 1).await;
    site.wait_condition("rail0", "ShrinkPending", "False").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_edit_changes_only_the_conditions_of_a_pool() {
    let (site, node) = Site::with_node().await;
    site.simple("rail0", "10.1.0.0/24").await;
    node.wait_active("rail0").await;
    let wrong = json!({ "spec": { "ranges": [{ "subnet": "10.1.0.0/24", "gateway": "none", "exclude": ["10.1.0.0/24"] }] } });
    site.edit("rail0", wrong).await;
    site.wait_condition("rail0", "Degraded", "True").await;
    let (_, reason, message) = site.condition("rail0", "Degraded").await;
    assert!(
        reason == "InvalidSpec" && message.contains("no address is left"),
        "{reason}: {message}"
    );
    // Flux and Helm report the failure at once, because only another edit helps.
    assert_eq!(site.kstatus("rail0").await, "Failed");
    let (ready, reason, _) = site.condition("rail0", "Ready").await;
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "InvalidSpec"));
    let (serving, reason, _) = site.condition("rail0", "Serving").await;
    assert_eq!((serving.as_str(), reason.as_str()), ("True", "EarlierSpec"));
    node.add("rail0", &Attachment::of("one"));
    assert_eq!(node.file("rail0")["ranges"][0].get("exclude"), None);
    site.edit("rail0", json!({ "spec": simple("10.1.0.0/24") })).await;
    site.edit(
        "rail0",
        json!({ "spec": { "ranges": [{ "subnet": "10.1.0.0/24", "gateway": "none" }] } }),
    )
    .await;
    site.wait_condition("rail0", "Degraded", "False").await;
    assert_eq!(site.kstatus("rail0").await, "Current");
    site.edit("rail0", json!({ "spec": { "fallback": ["spare"] } }))
        .await;
    site.wait_condition("rail0", "FallbackMissing", "True").await;
    let (_, _, message) = site.condition("rail0", "FallbackMissing").await;
    assert!(
        message.contains("spec.fallback") && message.contains("spare"),
        "{message}"
    );
    site.simple("spare", "10.9.0.0/24").await;
    site.wait_condition("rail0", "FallbackMissing", "False").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_in_use_is_deleted_when_its_last_pod_has_ended() {
    let (site, node) = Site::with_node().await;
    site.simple("rail0", "10.1.0.0/24").await;
    node.wait_active("rail0").await;
    let one = Attachment::of("one");
    node.add("rail0", &one);
    site.delete("rail0").await;
    until("the condition names the node that keeps the pool", async || {
        let (_, reason, message) = site.condition("rail0", "Ready").await;
        reason == "Deleting" && message.contains("1 addresses are in use in 1 blocks (nodes: a)")
    })
    .await;
    assert_eq!(site.counters("rail0").await.used, 1);
    until("no address is allocated any more", async || {
        node.blocks("rail0", "draining").len() == 1
    })
    .await;
    node.refused("rail0", &Attachment::of("two"), &[116], &[]);
    node.del("rail0", &one);
    until("the pool is gone", async || {
        site.pools().get_opt("rail0").await.unwrap().is_none()
    })
    .await;
    until("the file is gone", async || node.file("rail0").is_null()).await;
    node.refused("rail0", &Attachment::of("three"), &[115], &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_with_fewer_blocks_than_selected_nodes_has_a_condition() {
    let site = Site::new().await;
    let nodes: Api<Node> = Api::all(site.admin.clone());
    for (name, rail) in [("a", "0"), ("b", "0"), ("c", "1")] {
        let node = json!({ "metadata": { "name": name, "labels": { "rail": rail } } });
        create(&nodes, node).await;
    }
    site.simple("rail0", "10.1.0.0/27").await;
    site.wait_condition("rail0", "FewBlocks", "True").await;
    let (_, reason, message) = site.condition("rail0", "FewBlocks").await;
    assert_eq!(reason, "FewerBlocksThanNodes");
    for part in [
        "2 IPv4 blocks of 16",
        "selects 3 nodes",
        "nodeSelector",
        "blockSize.v4: 8",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let select = |rail: &str| json!({ "spec": { "nodeSelector": { "matchLabels": { "rail": rail } } } });
    site.edit("rail0", select("0")).await;
    site.wait_condition("rail0", "FewBlocks", "False").await;
    let another = json!({ "metadata": { "labels": { "rail": "0" } } });
    let patch = Patch::Merge(another);
    nodes.patch("c", &PatchParams::default(), &patch).await.unwrap();
    site.wait_condition("rail0", "FewBlocks", "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deselected_node_drains_its_block_and_returns_it_after_the_last_pod() {
    let flags = ["--quarantine", "5s"];
    let site = Site::with(&flags).await;
    let node = Member::running(&site.server, "a", &flags).await;
    site.simple("rail0", "10.1.0.0/24").await;
    node.wait_active("rail0").await;
    let one = Attachment::of("one");
    node.add("rail0", &one);
    site.edit(
        "rail0",
        json!({ "spec": { "nodeSelector": { "matchLabels": { "rail": "0" } } } }),
    )
    .await;
    until("no address is allocated any more", async || {
        node.blocks("rail0", "draining").len() == 1
    })
    .await;
    node.refused("rail0", &Attachment::of("two"), &[116], &["nodeSelector"]);
    let nodes: Api<Node> = Api::all(site.admin.clone());
    let label = json!({ "metadata": { "labels": { "rail": "0" } } });
    nodes
        .patch("a", &PatchParams::default(), &Patch::Merge(label))
        .await
        .unwrap();
    until("addresses are allocated again", async || {
        node.blocks("rail0", "active").len() == 1
    })
    .await;
    site.edit(
        "rail0",
        json!({ "spec": { "nodeSelector": { "matchLabels": { "rail": "1" } } } }),
    )
    .await;
    node.del("rail0", &one);
    site.wait_blocks("rail0", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_that_an_edit_removes_from_a_selector_is_not_required_any_more() {
    let (site, node) = Site::with_node().await;
    let mut spec = simple("10.1.0.0/24");
    spec["nodeSelector"] = json!({ "matchLabels": { "rack": "a" } });
    site.pool("rail0", spec).await;
    site.wait_condition("rail0", "Ready", "True").await;
    let nodes: Api<Node> = Api::all(site.admin.clone());
    let label = Patch::Merge(json!({ "metadata": { "labels": { "zone": "b" } } }));
    nodes.patch("a", &PatchParams::default(), &label).await.unwrap();
    let selector = json!({ "matchLabels": { "rack": null, "zone": "b" } });
    site.edit("rail0", json!({ "spec": { "nodeSelector": selector } }))
        .await;
    node.wait_active("rail0").await;
    node.add_soon("rail0", &Attachment::of("one")).await;
    let status = async || site.pools().get("rail0").await.unwrap().status.unwrap();
    let (number, accepted) = (status().await.accepted_generation, status().await.accepted);
    let selector = accepted.and_then(|accepted| accepted.node_selector).unwrap();
    let labels = selector.match_labels.unwrap_or_default();
    assert_eq!(labels, [("zone".to_owned(), "b".to_owned())].into());
    // A new pool is ready after two rounds of the controller.
    for other in ["rail1", "rail2"] {
        site.simple(other, &format!("10.2.{}.0/24", &other[4..])).await;
        site.wait_condition(other, "Ready", "True").await;
    }
    assert_eq!(
        status().await.accepted_generation,
        number,
        "the same spec has one number"
    );
}

/// Makes the API server refuse every change of the object `name`, as a foreign webhook may. Returns when the refusal
/// is in force.
async fn refuse_changes<K: Resource<DynamicType = ()>>(site: &Site, name: &str) {
    let policy = json!({
        "metadata": { "name": "foreign" },
        "spec": {
            "matchConstraints": { "resourceRules": [{
                "apiGroups": ["rdmanet.io"], "apiVersions": ["*"], "resources": [K::plural(&())], "operations": ["UPDATE", "DELETE"],
            }] },
            "validations": [{ "expression": format!("oldObject.metadata.name != '{name}'"), "message": "not this one" }],
        },
    });
    let binding = json!({
        "metadata": { "name": "foreign" }, "spec": { "policyName": "foreign", "validationActions": ["Deny"] },
    });
    create(&Api::<ValidatingAdmissionPolicy>::all(site.admin.clone()), policy).await;
    create(
        &Api::<ValidatingAdmissionPolicyBinding>::all(site.admin.clone()),
        binding,
    )
    .await;
    let objects: Api<DynamicObject> = Api::all_with(site.admin.clone(), &ApiResource::erase::<K>(&()));
    let dry = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let touch = Patch::Merge(json!({ "metadata": { "labels": { "touched": "yes" } } }));
    until("the API server refuses changes", async || {
        objects.patch(name, &dry, &touch).await.is_err()
    })
    .await;
}

/// Ends the refusal of [`refuse_changes`].
async fn allow_changes(site: &Site) {
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(site.admin.clone());
    bindings
        .delete("foreign", &DeleteParams::default())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_that_the_api_server_refuses_to_list_is_reported() {
    let (site, node) = Site::with_node().await;
    site.simple("rail0", "10.1.0.0/24").await;
    node.wait_active("rail0").await;
    refuse_changes::<AddressSpace>(&site, "default").await;
    site.edit("rail0", json!({ "spec": simple("10.2.0.0/24") })).await;
    site.wait_condition("rail0", "Degraded", "True").await;
    let (_, reason, message) = site.condition("rail0", "Ready").await;
    assert!(
        reason == "Refused" && message.contains("addressspaces/default") && message.contains("not this one"),
        "{reason}: {message}"
    );
    let (serving, reason, _) = site.condition("rail0", "Serving").await;
    assert_eq!((serving.as_str(), reason.as_str()), ("True", "EarlierSpec"));
    allow_changes(&site).await;
    site.wait_condition("rail0", "Ready", "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_update_that_the_api_server_refuses_does_not_delay_other_blocks() {
    let flags = ["--quarantine", "5s"];
    let site = Site::with(&flags).await;
    let _node = Member::running(&site.server, "a", &flags).await;
    let mut spec = simple("10.1.0.0/27");
    spec["warmBlocks"] = json!(2);
    site.pool("rail0", spec).await;
    site.wait_blocks("rail0", 2).await;
    let names = async || {
        let mut names: Vec<String> = site
            .blocks("rail0")
            .await
            .iter()
            .map(ResourceExt::name_any)
            .collect();
        names.sort();
        names
    };
    // The agent processes this block first.
    let first = names().await.remove(0);
    refuse_changes::<IpBlock>(&site, &first).await;
    let selects_no_node = json!({ "spec": { "nodeSelector": { "matchLabels": { "rail": "7" } } } });
    site.edit("rail0", selects_no_node).await;
    until("the other block is returned", async || {
        names().await == [first.as_str()]
    })
    .await;
    allow_changes(&site).await;
    site.wait_blocks("rail0", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_rests_for_its_cooldown_after_its_node_was_deselected() {
    let (site, node) = Site::with_node().await;
    let mut spec = per_address("10.1.0.0/28");
    spec["cooldownSeconds"] = json!(3600);
    site.pool("rail0", spec).await;
    until("the pool is here", async || !node.file("rail0").is_null()).await;
    let one = Attachment::of("one");
    let ip = node.add("rail0", &one).remove(0);
    let elsewhere = json!({ "matchLabels": { "rail": "none" } });
    site.edit("rail0", json!({ "spec": { "nodeSelector": elsewhere } }))
        .await;
    node.wait_refused("rail0", &[116]).await;
    node.del("rail0", &one);
    // The agent compares its objects with its leases meanwhile: it deletes two that no lease has, one after the other.
    let all: Api<IpAddress> = Api::all(site.admin.clone());
    for last in [13, 14] {
        let unleased: IpAddr = Ipv4Addr::new(10, 1, 0, last).into();
        let object = address("rail0", unleased, "10.1.0.0/28", node.identity.node.clone());
        all.create(&PostParams::default(), &object).await.unwrap();
        until("the object without a lease is deleted", async || {
            let there = site.addresses().await;
            !there
                .iter()
                .any(|object| object.spec.address == unleased.to_string())
        })
        .await;
    }
    let there = site.addresses().await;
    assert!(there.iter().any(|object| object.spec.address == ip), "{ip} rests");
    site.edit("rail0", json!({ "spec": { "cooldownSeconds": 0 } }))
        .await;
    until("the address has rested", async || {
        site.addresses().await.is_empty()
    })
    .await;
}
