// SPDX-License-Identifier: Apache-2.0
//! Addresses requested by name, and pools in which each address is an object.

use agents::pools::simple;
use agents::{Attachment, Site};
use api::IpAddress;
use api::block_layout::address_name;
use apiserver::identity::join;
use apiserver::install::until;
use apiserver::objects;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_reserved_address_has_one_pod_across_all_nodes() {
    let site = Site::new().await;
    let nodes = site.two_nodes().await;
    site.pool_with_reserved("rail0", &nodes).await;
    let static_one = Attachment::of("one").asking("10.1.0.205");
    assert_eq!(nodes[0].add("rail0", &static_one), ["10.1.0.205"]);
    assert_eq!(
        nodes[0].add("rail0", &static_one),
        ["10.1.0.205"],
        "a second ADD returns the same address"
    );
    nodes[1].refused(
        "rail0",
        &Attachment::of("two").asking("10.1.0.205"),
        &[111],
        &["default/one"],
    );
    assert_eq!(site.addresses().await.len(), 1);
    nodes[0].del("rail0", &static_one);
    until("it is free again", async || site.addresses().await.is_empty()).await;
    assert_eq!(
        nodes[1].add("rail0", &Attachment::of("two").asking("10.1.0.205")),
        ["10.1.0.205"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requested_address_of_an_unclaimed_block_claims_that_block() {
    let site = Site::new().await;
    let nodes = site.two_nodes().await;
    site.simple("rail0", "10.1.0.0/24").await;
    for node in &nodes {
        node.wait_active("rail0").await;
    }
    let taken: BTreeSet<String> = site
        .blocks("rail0")
        .await
        .into_iter()
        .map(|block| block.spec.cidr)
        .collect();
    let free = (0..16)
        .map(|i| format!("10.1.0.{}/28", i * 16))
        .find(|cidr| !taken.contains(cidr))
        .unwrap();
    let ip = free
        .replace("/28", "")
        .rsplit_once('.')
        .map(|(net, last)| format!("{net}.{}", last.parse::<u8>().unwrap() + 5))
        .unwrap();
    assert_eq!(
        nodes[0].add("rail0", &Attachment::of("one").asking(&ip)),
        [ip.as_str()]
    );
    assert!(
        site.blocks("rail0")
            .await
            .iter()
            .any(|block| block.spec.cidr == free && block.spec.owner.node == "a")
    );
    nodes[1].refused(
        "rail0",
        &Attachment::of("two").asking(&ip),
        &[111],
        &["node a", "spec.reserved"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_keeps_its_address_when_the_pool_reserves_it() {
    let site = Site::new().await;
    let nodes = site.two_nodes().await;
    site.simple("rail0", "10.1.0.0/24").await;
    nodes[0].wait_active("rail0").await;
    let one = Attachment::of("one");
    let ip = nodes[0].add("rail0", &one).remove(0);
    site.edit("rail0", json!({ "spec": { "reserved": [ip] } })).await;
    until("the address is an object", async || {
        site.addresses().await.len() == 1
    })
    .await;
    until("its node has confirmed the reservation", async || {
        let blocks = site.blocks("rail0").await.into_iter();
        let statuses = blocks.filter_map(|block| block.status);
        statuses
            .filter(|status| status.used == 1 && status.observed_generation == Some(2))
            .count()
            == 1
    })
    .await;
    // The controller lists the objects twice meanwhile.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(site.counters("rail0").await.used, 1, "it is one address");
    assert_eq!(site.condition("rail0", "ExclusionOverLive").await.0, "False");
    nodes[1].refused("rail0", &Attachment::of("two").asking(&ip), &[11, 111], &[]);
    nodes[0].del("rail0", &one);
    let two = Attachment::of("two").asking(&ip);
    until("it is free", async || {
        nodes[1].call("ADD", "rail0", &two).status.success()
    })
    .await;
    assert_eq!(site.addresses().await[0].spec.node.node, "b");
}

/// One edit reserves the address of a pod and adds addresses that another pool divides into other blocks. The edit is
/// refused. It takes effect under the same generation after the other pool is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_keeps_its_address_when_a_refused_reservation_takes_effect() {
    let site = Site::new().await;
    let nodes = site.two_nodes().await;
    let mut other = simple("10.2.0.0/24");
    other["blockSize"]["v4"] = json!(32);
    site.pool("other", other).await;
    site.wait_condition("other", "Ready", "True").await;
    site.simple("rail0", "10.1.0.0/24").await;
    nodes[0].wait_active("rail0").await;
    let ip = nodes[0].add("rail0", &Attachment::of("one")).remove(0);
    let both = [
        json!({ "subnet": "10.1.0.0/24", "gateway": "none" }),
        json!({ "subnet": "10.2.0.0/24", "gateway": "none" }),
    ];
    site.edit("rail0", json!({ "spec": { "ranges": both, "reserved": [ip] } }))
        .await;
    site.wait_condition("rail0", "Degraded", "True").await;
    assert_eq!(site.condition("rail0", "Degraded").await.1, "Conflict");
    // This report contains the generation that the node applies now, whichever it is.
    nodes[0].add("rail0", &Attachment::of("two"));
    until("the node has reported since", async || {
        let blocks = site.blocks("rail0").await.into_iter();
        let mut statuses = blocks.filter_map(|block| block.status);
        statuses.any(|status| status.used == 2)
    })
    .await;
    site.delete("other").await;
    site.wait_condition("rail0", "Degraded", "False").await;
    let wants = Attachment::of("three").asking(&ip);
    until("the address is known to be in use", async || {
        let answer = nodes[1].call("ADD", "rail0", &wants);
        assert!(!answer.status.success(), "two pods have {ip}: {}", answer.stdout);
        answer.stdout.contains("\"code\": 111") || answer.stdout.contains("\"code\":111")
    })
    .await;
    let pool = site.pools().get("rail0").await.unwrap();
    assert_eq!(pool.metadata.generation, Some(2));
    // Greater than the generation that was observed before the edit took effect.
    let status = pool.status.unwrap();
    assert!(status.accepted_generation > Some(2), "{status:?}");
}

/// Another node requests the address at the moment when the address's owner learns that it is reserved. In a cluster
/// the object of that request exists for a moment only, because the owner has not confirmed the reservation. Here it
/// exists as long as the test needs it.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_defers_a_reservation_while_another_node_has_the_address_object() {
    let (site, node) = Site::with_node().await;
    let other = join(&site.admin, "other").await.unwrap();
    site.simple("rail0", "10.1.0.0/24").await;
    node.wait_active("rail0").await;
    let ip = node.add("rail0", &Attachment::of("one")).remove(0);
    let block = site.blocks("rail0").await.remove(0).spec.cidr;
    let addresses: Api<IpAddress> = Api::all(site.admin.clone());
    let address: IpAddr = ip.parse().unwrap();
    let theirs = objects::address("rail0", address, &block, other);
    addresses.create(&PostParams::default(), &theirs).await.unwrap();
    site.edit("rail0", json!({ "spec": { "reserved": [ip] } })).await;
    let noted = async || {
        let blocks = site.blocks("rail0").await.into_iter();
        let mut statuses = blocks.filter_map(|block| block.status);
        statuses.any(|status| status.observed_generation == Some(2))
    };
    until("the node has met the other object", async || {
        noted().await || node.log().contains("has an object of another node")
    })
    .await;
    assert!(
        !noted().await,
        "the node noted a reservation of {ip}, which has no object of its pod"
    );
    let name = address_name("default", address);
    // A policy refuses to delete a bound address.
    let orphaned = Patch::Merge(json!({ "spec": { "state": "Orphaned" } }));
    addresses
        .patch(&name, &PatchParams::default(), &orphaned)
        .await
        .unwrap();
    addresses.delete(&name, &DeleteParams::default()).await.unwrap();
    until("the node has noted the reservation", noted).await;
    assert_eq!(addresses.get(&name).await.unwrap().spec.node.node, "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requested_address_claims_no_block_beyond_max_blocks_per_node() {
    let (site, node) = Site::with_node().await;
    let mut spec = simple("10.1.0.0/24");
    spec["maxBlocksPerNode"] = json!(1);
    site.pool("rail0", spec).await;
    node.wait_active("rail0").await;
    let own = site.blocks("rail0").await.remove(0).spec.cidr;
    let ip = if own == "10.1.0.16/28" {
        "10.1.0.37"
    } else {
        "10.1.0.21"
    };
    node.refused(
        "rail0",
        &Attachment::of("one").asking(ip),
        &[110],
        &["spec.maxBlocksPerNode", ip],
    );
    assert_eq!(site.blocks("rail0").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_per_address_pool_is_usable_to_its_last_address() {
    let site = Site::new().await;
    let nodes = site.two_nodes().await;
    let mut spec = simple("10.1.0.0/28");
    spec["allocation"] = json!("PerAddress");
    site.pool("rail0", spec).await;
    for node in &nodes {
        until("the pool is here", async || !node.file("rail0").is_null()).await;
    }
    let mut given = BTreeSet::new();
    for i in 0..7 {
        for node in &nodes {
            let pod = Attachment::of(&format!("{}-{i}", node.identity.node.node));
            // An ADD whose time was too short may have taken the last address. Its agent releases that address.
            given.insert(node.add_soon("rail0", &pod).await);
        }
    }
    assert_eq!(given.len(), 14);
    until("each address has a pod", async || {
        site.addresses().await.len() == 14
    })
    .await;
    nodes[0].refused("rail0", &Attachment::of("more"), &[110], &[]);
    nodes[1].del("rail0", &Attachment::of("b-0"));
    until("one is free", async || site.addresses().await.len() == 13).await;
    // A moment ago this node found the pool exhausted; it checks again within seconds.
    nodes[0].add_soon("rail0", &Attachment::of("more")).await;
}
