// SPDX-License-Identifier: Apache-2.0
//! The requests of idle agents: a cluster may have ten thousand of them.

use agents::pools::{per_address, simple, sticky_per_address};
use agents::{Attachment, Member, Site};
use apiserver::Identity;
use apiserver::audit::Mark;
use apiserver::install::{until, until_within};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// A pool whose `namespaceSelector` selects the namespace `default`.
async fn selective_pool(site: &Site, name: &str, subnet: &str) {
    let namespaces: Api<Namespace> = Api::all(site.admin.clone());
    let team = json!({ "metadata": { "labels": { "team": "ml" } } });
    namespaces
        .patch("default", &PatchParams::default(), &Patch::Merge(team))
        .await
        .unwrap();
    let mut spec = simple(subnet);
    spec["namespaceSelector"] = json!({ "matchLabels": { "team": "ml" } });
    site.pool(name, spec).await;
}

/// Each agent lists its blocks. The API server answers that from its memory.
fn lists_of_blocks_are_cheap(site: &Site) {
    let requests = site.server.requests_since(Mark::BEGINNING).into_iter();
    let lists: Vec<String> = requests
        .filter(|request| request.verb == "list" && request.uri.contains("spec.owner.node"))
        .map(|request| request.uri)
        .collect();
    let is_remembered = |uri: &String| uri.contains("resourceVersionMatch=NotOlderThan");
    assert!(
        lists.len() >= 3 && lists.iter().all(is_remembered),
        "an agent's list of its blocks may have to be read from etcd: {lists:#?}"
    );
}

/// The requests of the agent of `node` since `mark`, without watches.
fn requests_of(site: &Site, node: &str, mark: Mark) -> Vec<String> {
    let requests = site.server.requests_since(mark).into_iter();
    requests
        .filter(|request| request.node() == Some(node) && request.verb != "watch")
        .map(|request| format!("{} {}", request.verb, request.uri))
        .collect()
}

/// Each agent begins fifty rounds in ten seconds, and reads its Node twice a minute. So a request that each round sends, or that
/// comes with each observation (`--observation-interval`), is in every ten seconds.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_agent_sends_only_a_few_get_requests() {
    let site = Site::new().await;
    let flags = [
        "--report-interval",
        "1h",
        "--observation-interval",
        "3s",
        "--idle",
        "1h",
    ];
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        nodes.push(Member::running(&site.server, name, &flags).await);
    }
    site.simple("rail0", "10.1.0.0/24").await;
    selective_pool(&site, "rail1", "10.2.0.0/24").await;
    for node in &nodes {
        node.wait_active_blocks("rail0", 1).await;
        node.wait_active_blocks("rail1", 1).await;
        node.add("rail1", &Attachment::of(&node.identity.node.node));
    }
    lists_of_blocks_are_cheap(&site);
    let cost_at_most = async |seconds: u64, gets: u128| {
        let (mark, began) = (site.server.mark(), Instant::now());
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        // On a busy machine the sleep lasts longer.
        let gets = (gets * began.elapsed().as_millis()).div_ceil(u128::from(seconds) * 1000);
        ["a", "b", "c"].iter().all(|name| {
            let asked = requests_of(&site, name, mark);
            println!("{name}: {asked:#?}");
            asked.len() as u128 <= gets && asked.iter().all(|asked| asked.starts_with("get "))
        })
    };
    // The first statuses and reads may still be on their way.
    until("ten seconds cost each agent at most two GETs", async || {
        cost_at_most(10, 2).await
    })
    .await;
    // The windows above are too short for requests that come every quarter of a minute.
    let limit = Duration::from_secs(180);
    until_within(
        limit,
        "twenty seconds cost each agent at most eight GETs",
        async || cost_at_most(20, 8).await,
    )
    .await;
}

/// Agents confirm 600 blocks within six seconds, at 100 a second. Each agent also checks every ten minutes, ten times
/// the time limit of `until`.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_observes_a_pool_edit_without_waiting_for_its_next_round() {
    let site = Site::new().await;
    site.pool("rail0", simple("10.1.0.0/16")).await;
    site.wait_condition("rail0", "Ready", "True").await;
    let crowd = Identity::new(&site.admin, "crowd").await.node;
    let first = Ipv4Addr::new(10, 1, 128, 0);
    site.crowd("rail0", first, 600, |_| crowd.clone()).await;
    let mut nodes = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        nodes.push(
            Member::running(
                &site.server,
                name,
                &["--reconcile-interval", "10m", "--idle", "1h"],
            )
            .await,
        );
    }
    for node in &nodes {
        node.wait_active("rail0").await;
    }
    let noted = async |generation| {
        let blocks = site.blocks("rail0").await.into_iter();
        blocks
            .filter(|block| block.spec.owner.node.len() == 1)
            .filter(|block| {
                let status = block.status.as_ref();
                status.is_some_and(|status| status.observed_generation == Some(generation))
            })
            .count()
    };
    until("the first generation is noted", async || {
        noted(1).await == nodes.len()
    })
    .await;
    until("all blocks are counted", async || {
        let status = site.pools().get("rail0").await.unwrap().status.unwrap();
        status.counters.is_some_and(|counters| counters.blocks >= 600)
    })
    .await;
    let exclude = json!({ "spec": { "ranges": [{ "subnet": "10.1.0.0/16", "gateway": "none", "exclude": ["10.1.0.7"] }] } });
    site.edit("rail0", exclude).await;
    until("the second generation is noted", async || {
        noted(2).await == nodes.len()
    })
    .await;
}

/// The requests of the controller in the time of ten rounds, without watches and its Lease.
async fn controller_requests(site: &Site) -> Vec<String> {
    let mark = site.server.mark();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let requests = site.server.requests_since(mark).into_iter();
    requests
        .filter(|request| request.user().ends_with(":rdmanet-controller") && request.verb != "watch")
        .filter(|request| !request.uri.contains("/leases/"))
        .map(|request| format!("{} {}", request.verb, request.uri))
        .collect()
}

/// Pools that need no change cause no requests, whatever their number.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_controller_sends_no_requests_besides_watches_and_its_lease() {
    let site = Site::with(&["--report-interval", "1h"]).await;
    for i in 0..4 {
        site.simple(&format!("pool{i}"), &format!("10.{i}.0.0/24")).await;
    }
    for i in 0..4 {
        site.wait_condition(&format!("pool{i}"), "Ready", "True").await;
    }
    // The last counters may still be on their way.
    until("ten rounds cost no request", async || {
        controller_requests(&site).await.is_empty()
    })
    .await;
}

/// A pod may keep a deleted pool for days.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pool_with_a_pod_causes_no_requests_of_the_controller() {
    deleted_pool_with_a_pod_causes_no_requests(simple("10.1.0.0/24"), "1h").await;
}

/// The controller sees the address in its list of all addresses, once in each report interval.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pool_without_blocks_causes_no_requests_between_lists() {
    deleted_pool_with_a_pod_causes_no_requests(per_address("10.1.0.0/28"), "15s").await;
}

async fn deleted_pool_with_a_pod_causes_no_requests(spec: Value, report_interval: &str) {
    let site = Site::with(&["--report-interval", report_interval]).await;
    let node = Member::running(&site.server, "a", &["--idle", "1h"]).await;
    site.pool("rail0", spec).await;
    until("the pool is here", async || !node.file("rail0").is_null()).await;
    node.add_soon("rail0", &Attachment::of("one")).await;
    site.delete("rail0").await;
    site.wait_condition("rail0", "Ready", "False").await;
    until("ten rounds cost no request", async || {
        controller_requests(&site).await.is_empty()
    })
    .await;
    node.del("rail0", &Attachment::of("one"));
    until("the pool is gone", async || site.has_no_pool().await).await;
}

/// The controller checks in each report interval whether the pod of a kept address may come back.
#[tokio::test(flavor = "multi_thread")]
async fn a_kept_address_causes_no_request_for_its_pool() {
    let site = Site::new().await;
    let node = Member::running(&site.server, "a", &[]).await;
    site.pool("rail0", sticky_per_address("10.1.0.0/28")).await;
    site.stateful_set("db", 1).await;
    until("the pool is here", async || !node.file("rail0").is_null()).await;
    let pod = Attachment {
        pod: "default/db-0".to_owned(),
        uid: site.replica("db", 0, "a").await,
        ..Attachment::of("db-0")
    };
    node.add("rail0", &pod);
    node.del("rail0", &pod);
    site.remove_pod("db-0").await;
    until(
        "the controller checks a kept address and reads no pool",
        async || {
            let mark = site.server.mark();
            tokio::time::sleep(Duration::from_secs(2)).await;
            let requests = site.server.requests_since(mark).into_iter();
            let gets: Vec<String> = requests
                .filter(|request| request.user().ends_with(":rdmanet-controller") && request.verb == "get")
                .map(|request| request.uri)
                .collect();
            println!("{gets:#?}");
            gets.iter().any(|uri| uri.contains("/statefulsets/"))
                && !gets.iter().any(|uri| uri.contains("/ippools/"))
        },
    )
    .await;
}
