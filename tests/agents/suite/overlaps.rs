// SPDX-License-Identifier: Apache-2.0
//! Pools over the same addresses, or over addresses of one block: no address has two pods.

use agents::pools::{per_address, simple};
use agents::{Attachment, Member, Site};
use apiserver::Fault;
use apiserver::identity::join;
use apiserver::install::until;
use kube::ResourceExt;
use serde_json::json;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tests::Version;

/// Edits the pool `one` so that it has 10.2.0.0/28 alone, and waits until its address space shows that.
async fn leave_first_range(site: &Site) {
    let ranges = json!([{ "subnet": "10.2.0.0/28", "gateway": "none" }]);
    site.edit("one", json!({ "spec": { "ranges": ranges } })).await;
    until("the edit is in force", async || {
        let status = site.pools().get("one").await.unwrap().status;
        status.unwrap_or_default().accepted_generation == Some(2)
    })
    .await;
}

/// Waits until the controller has judged the pool. Returns whether the pool is ready, and why not.
async fn judged(site: &Site, pool: &str) -> (String, String, String) {
    until("the pool is judged", async || {
        !["", "Unknown"].contains(&site.condition(pool, "Ready").await.0.as_str())
    })
    .await;
    site.condition(pool, "Ready").await
}

#[tokio::test(flavor = "multi_thread")]
async fn overlapping_pools_with_different_block_sizes_are_not_both_accepted() {
    let (site, node) = Site::with_node().await;
    site.simple("rail0", "10.1.0.0/24").await;
    node.wait_active("rail0").await;
    let mut other = simple("10.1.0.0/25");
    other["blockSize"]["v4"] = json!(32);
    site.pool("other", other).await;
    site.wait_condition("other", "Degraded", "True").await;
    let (_, reason, message) = site.condition("other", "Ready").await;
    assert!(
        reason == "Conflict" && message.contains("pool rail0 also has 10.1.0.0"),
        "{message}"
    );
    // Flux and Helm wait: an edit of the other pool may end the conflict.
    assert_eq!(site.kstatus("other").await, "InProgress");
    site.simple("same", "10.1.0.0/25").await;
    site.wait_condition("same", "Ready", "True").await;
    assert_eq!(site.condition("same", "Overlap").await.0, "True");
    node.wait_active("same").await;
    let (one, two) = (node.blocks("rail0", "active"), node.blocks("same", "active"));
    assert!(one.iter().all(|block| !two.contains(block)), "{one:?} {two:?}");
    // After the last object of the first pool is gone, other pools can use its addresses.
    site.delete("rail0").await;
    site.delete("same").await;
    site.wait_condition("other", "Ready", "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_whose_block_contains_a_subnet_of_another_pool_is_not_accepted() {
    let (site, node) = Site::with_node().await;
    site.simple("one", "10.1.0.0/29").await;
    node.wait_active("one").await;
    site.simple("two", "10.1.0.8/29").await;
    let (ready, reason, message) = judged(&site, "two").await;
    assert_eq!(
        (ready.as_str(), reason.as_str()),
        ("False", "Conflict"),
        "{message}"
    );
    for part in ["default-4-0a010000-28", "pool one", "blockSize.v4: 8"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    // Blocks that end with the subnets are apart.
    let mut small = simple("10.2.0.0/29");
    small["blockSize"]["v4"] = json!(8);
    site.pool("three", small.clone()).await;
    small["ranges"][0]["subnet"] = json!("10.2.0.8/29");
    site.pool("four", small).await;
    for pool in ["three", "four"] {
        site.wait_condition(pool, "Ready", "True").await;
        node.wait_active(pool).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_whose_only_block_another_pool_has_is_exhausted() {
    let (site, node) = Site::with_node().await;
    site.simple("one", "10.1.0.0/28").await;
    node.wait_active("one").await;
    site.simple("two", "10.1.0.0/28").await;
    site.wait_condition("two", "Exhausted", "True").await;
    assert_eq!(site.counters("two").await.free, 0);
    until("ADD reports the exhausted pool", async || {
        node.error("two", &Attachment::of("pod"))["code"] == 110
    })
    .await;
    site.delete("one").await;
    node.add_soon("two", &Attachment::of("pod")).await;
    site.wait_condition("two", "Exhausted", "False").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_gets_a_shared_address_though_another_pool_has_the_other_blocks() {
    let site = Site::new().await;
    let absent = join(&site.admin, "absent").await.unwrap();
    let second = Ipv4Addr::new(10, 1, 0, 16);
    site.crowd("two", second, 1, |_| absent.clone()).await;
    let mut elsewhere = simple("10.1.0.0/27");
    elsewhere["nodeSelector"] = json!({ "matchLabels": { "rail": "7" } });
    site.pool("two", elsewhere).await;
    site.wait_condition("two", "Ready", "True").await;
    site.simple("one", "10.1.0.0/27").await;
    let here = Member::running(&site.server, "a", &[]).await;
    here.wait_active("one").await;
    let there = Member::running(&site.server, "b", &[]).await;
    let ip = there.add_soon("one", &Attachment::of("pod")).await;
    assert!(ip.starts_with("10.1.0."), "{ip}");
    there.del("one", &Attachment::of("pod"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistyped_address_space_of_an_overlapping_pool_is_reported() {
    let site = Site::new().await;
    site.simple("rail0", "10.1.0.0/24").await;
    site.wait_condition("rail0", "OverlapElsewhere", "False").await;
    let mut spec = simple("10.1.0.0/25");
    spec["addressSpace"] = json!("defualt");
    site.pool("typo", spec).await;
    for (pool, other) in [("typo", "rail0"), ("rail0", "typo")] {
        site.wait_condition(pool, "OverlapElsewhere", "True").await;
        let (_, reason, message) = site.condition(pool, "OverlapElsewhere").await;
        assert_eq!(reason, "OtherAddressSpace");
        assert!(
            message.contains(other) && message.contains("defualt"),
            "{message}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_with_a_single_address_in_use_is_not_cut_into_blocks_of_another_pool() {
    let (site, node) = Site::with_node().await;
    site.pool("one", per_address("10.1.0.0/28")).await;
    site.wait_condition("one", "Ready", "True").await;
    let living = Attachment::of("living");
    let ip = node.add_soon("one", &living).await;
    leave_first_range(&site).await;
    site.simple("two", "10.1.0.0/28").await;
    let (ready, reason, message) = judged(&site, "two").await;
    let object = site.addresses().await.remove(0).name_any();
    assert!(
        ready == "False" && reason == "Conflict" && message.contains(&object) && message.contains("pool one"),
        "{ip} lives, and pool two is {ready}, {reason}: {message}"
    );
    node.refused("two", &Attachment::of("early"), &[11, 115, 116], &[]);
    node.del("one", &living);
    site.wait_condition("two", "Ready", "True").await;
    node.add_soon("two", &Attachment::of("later")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_whose_range_another_pool_has_meanwhile_is_not_used() {
    let site = Site::new().await;
    let (late, proxy) = site.behind_proxy("a", &[]).await;
    late.start();
    until("the agent is ready", async || late.is_ready()).await;
    site.pool("one", per_address("10.1.0.0/28")).await;
    site.wait_condition("one", "Ready", "True").await;
    // The CREATE arrives after the block of its address was claimed for another pool.
    let sent = Arc::new(AtomicBool::new(false));
    let seen = sent.clone();
    proxy.decide(move |method, path| {
        if method == "POST" && path.ends_with("/ipaddresses") {
            seen.store(true, Ordering::SeqCst);
            return Fault::Wait;
        }
        Fault::None
    });
    let start = || {
        let call = late.prepared(Version::Today, "ADD", "one", &Attachment::of("late"));
        tokio::task::spawn_blocking(move || call.run())
    };
    let mut add = start();
    until("the CREATE waits", async || {
        let is_sent = sent.load(Ordering::SeqCst);
        // The agent may read later than this test that the pool is accepted. It refuses the first call then.
        if !is_sent && add.is_finished() {
            add = start();
        }
        is_sent
    })
    .await;
    leave_first_range(&site).await;
    site.simple("two", "10.1.0.0/28").await;
    late.wait_active("two").await;
    proxy.open();
    let answer = add.await.unwrap();
    assert!(
        !answer.status.success(),
        "the block of pool two has this address: {answer}"
    );
    until("no object is left", async || site.addresses().await.is_empty()).await;
    let ip = late.add_soon("one", &Attachment::of("next")).await;
    assert!(ip.starts_with("10.2."), "{ip}");
}
