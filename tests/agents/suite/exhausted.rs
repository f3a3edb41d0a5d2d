// SPDX-License-Identifier: Apache-2.0
//! Repeated refusals, and their cost for the API server and the agent.

use crate::events::events;
use agents::pools::{per_address, simple};
use agents::{Attachment, Member, Site};
use apiserver::install::until;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_full_pool_refuses_a_pod_without_a_request_to_the_api_server() {
    let site = Site::new().await;
    let node = Member::running(
        &site.server,
        "a",
        &["--report-interval", "1h", "--observation-interval", "1h"],
    )
    .await;
    let spec = per_address("10.1.0.0/29");
    site.pool("each", spec).await;
    until("the pool is here", async || node.file("each").is_object()).await;
    for i in 0..6 {
        node.add("each", &Attachment::of(&format!("p{i}")));
    }
    until("a refusal without a request", async || {
        let mark = site.server.mark();
        node.refused("each", &Attachment::of("one"), &[110], &[]);
        let asked = site.server.requests_since(mark).into_iter();
        asked
            .filter(|request| request.node() == Some("a") && request.uri.contains("/ipaddresses"))
            .count()
            == 0
    })
    .await;
    // An address that this node releases is allocated by the next ADD.
    node.del("each", &Attachment::of("p0"));
    node.add_soon("each", &Attachment::of("one")).await;
}

/// Only the node on which an address rests can give it before its cooldown ends, and only to a main plugin that probes.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_resting_address_of_a_full_pool_is_given_to_a_plugin_that_probes() {
    let site = Site::new().await;
    let nodes = site.two_nodes().await;
    let mut spec = per_address("10.1.0.0/30");
    spec["cooldownSeconds"] = json!(3600);
    site.pool("each", spec).await;
    for node in &nodes {
        until("the pool is here", async || node.file("each").is_object()).await;
    }
    let [node, other] = &nodes;
    let (first, second) = (Attachment::of("first"), Attachment::of("second"));
    let address = node.add("each", &first);
    node.add("each", &second);
    node.del("each", &first);
    let next = Attachment::of("next");
    node.refused("each", &next, &[110], &["exhausted"]);
    other.refused("each", &next.clone().probing(), &[110], &["exhausted"]);
    let answer = node.added("each", &next.clone().probing());
    let result: Value = answer.result();
    assert_eq!(result["ips"][0]["rdmanet.io/probe"], true, "{result}");
    assert_eq!(answer.addresses(), address);
    let requested = Attachment::of("requested").asking(&address[0]).probing();
    node.refused("each", &requested, &[111], &["in use"]);
    node.del("each", &next);
    assert_eq!(node.add("each", &requested), address, "a requested address, too");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_gets_both_addresses_if_a_node_may_have_one_block_of_each_family() {
    let (site, node) = Site::with_node().await;
    let mut spec = simple("10.1.0.0/28");
    let ranges = spec["ranges"].as_array_mut().unwrap();
    // The first and the last block of the subnet have one address each.
    ranges[0]["start"] = json!("10.1.0.2");
    ranges[0]["end"] = json!("10.1.0.13");
    ranges.push(json!({ "subnet": "fd00::/120", "gateway": "none" }));
    spec["blockSize"] = json!({ "v4": 2, "v6": 16 });
    spec["maxBlocksPerNode"] = json!(1);
    site.pool("dual", spec).await;
    let one = Attachment::of("one");
    node.add_soon("dual", &one).await;
    assert_eq!(node.add("dual", &one).len(), 2);
    node.add_soon("dual", &Attachment::of("two")).await;
    node.refused(
        "dual",
        &Attachment::of("more"),
        &[110],
        &["spec.maxBlocksPerNode"],
    );
    assert_eq!(site.blocks("dual").await.len(), 2);
}

/// The runtime would otherwise wait for addresses that no pod lacks.
#[tokio::test(flavor = "multi_thread")]
async fn resting_addresses_of_one_family_do_not_hide_that_the_other_is_exhausted() {
    let (site, node) = Site::with_node().await;
    let mut spec = simple("10.1.0.0/30");
    let ranges = spec["ranges"].as_array_mut().unwrap();
    ranges.push(json!({ "subnet": "fd00::/120", "gateway": "none" }));
    spec["blockSize"] = json!({ "v4": 4, "v6": 16 });
    spec["cooldownSeconds"] = json!(3600);
    site.pool("dual", spec).await;
    let [one, two, three] = ["one", "two", "three"].map(Attachment::of);
    node.add_soon("dual", &one).await;
    node.add_soon("dual", &two).await;
    node.del("dual", &one);
    // The probing plugin gets the IPv4 address of the first pod, which rests, and a new IPv6 address.
    assert_eq!(node.add("dual", &three.probing()).len(), 2);
    until("the IPv4 addresses are exhausted", async || {
        node.error("dual", &Attachment::of("four"))["code"] == 110
    })
    .await;
}

/// No other node has an address to share, and no answer of the controller can change that.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_refused_if_every_address_of_a_family_is_reserved() {
    let (site, node) = Site::with_node().await;
    let mut spec = simple("10.1.0.0/28");
    let ranges = spec["ranges"].as_array_mut().unwrap();
    ranges.push(json!({ "subnet": "fd00::/124" }));
    spec["reserved"] = json!(["fd00::/124"]);
    site.pool("dual", spec).await;
    node.wait_active("dual").await;
    let reasons = ["each IPv6 address that is not excluded is in spec.reserved"];
    node.refused("dual", &Attachment::of("any"), &[110], &reasons);
    let pool = site.pools().get("dual").await.unwrap();
    assert!(pool.status.unwrap().requests.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_for_nonexistent_pools_add_no_metric_labels() {
    let (_site, node) = Site::with_node().await;
    until("the agent listens", async || node.socket().exists()).await;
    for i in 0..30 {
        let name = format!("nowhere-{i}");
        node.refused(&name, &Attachment::of("one"), &[115], &[]);
    }
    let text = node.get("/metrics");
    assert!(!text.contains("nowhere"), "{text}");
    assert!(
        text.contains("rdmanet_plugin_requests_total{pool=\"(unknown)\""),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permanently_refused_pod_gets_a_bounded_number_of_events() {
    let (site, node) = Site::with_node().await;
    let mut pod = Attachment::of("one");
    pod.uid = site.pod("one", "a").await;
    let mut spec = simple("10.1.0.0/24");
    spec["nodeSelector"] = json!({ "matchLabels": { "rail": "7" } });
    // Each of many pools refuses the pod with a different message.
    for i in 0..40 {
        site.pool(&format!("other-{i}"), spec.clone()).await;
        site.wait_condition(&format!("other-{i}"), "Ready", "True").await;
        node.error(&format!("other-{i}"), &pod);
    }
    node.wait_log("the limit of its object is reached");
    let count = events(&site, "Pod", "one", "NoAddress").await.len();
    // A minute allows one more, and a busy machine may take minutes.
    assert!((1..40).contains(&count), "{count} Events");
}
