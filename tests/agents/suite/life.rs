// SPDX-License-Identifier: Apache-2.0
//! From a pool to an address; and allocation without an agent, without an API server, and after kills.

use agents::{Attachment, Member, Site};
use apiserver::install::until;
use serde_json::json;
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_gets_an_address_without_a_request_to_the_api_server() {
    let site = Site::new().await;
    let node = Member::running(
        &site.server,
        "a",
        &["--report-interval", "1h", "--observation-interval", "1h"],
    )
    .await;
    site.simple("rail0", "10.1.0.0/24").await;
    node.wait_active_blocks("rail0", 1).await;
    let mut names = (0..).map(|i| Attachment::of(&format!("p{i}")));
    let mut asked = async || -> Vec<String> {
        let mark = site.server.mark();
        // Few enough addresses that the agent claims no block ahead.
        let pods: Vec<Attachment> = names.by_ref().take(5).collect();
        let given: BTreeSet<String> = pods.iter().flat_map(|pod| node.add("rail0", pod)).collect();
        assert_eq!(given.len(), 5);
        // A request that a pod causes may follow its ADD or its DEL.
        tokio::time::sleep(Duration::from_secs(1)).await;
        for pod in &pods {
            node.del("rail0", pod);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let requests = site.server.requests_since(mark).into_iter();
        requests
            .filter(|request| request.node() == Some("a") && request.verb != "watch")
            .filter(|request| request.uri.contains("/ipblocks") || request.uri.contains("/ipaddresses"))
            .map(|request| format!("{} {}", request.verb, request.uri))
            .collect()
    };
    // The agent's report of the block may still be on its way.
    until("five pods cost no request", async || {
        let asked = asked().await;
        println!("{asked:#?}");
        asked.is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn add_and_del_work_without_agent_and_without_api_server() {
    let (site, node) = Site::with_node().await;
    site.simple("rail0", "10.1.0.0/24").await;
    node.wait_active_blocks("rail0", 1).await;
    site.server.freeze();
    let one = node.add("rail0", &Attachment::of("one"));
    node.kill();
    let two = node.add("rail0", &Attachment::of("two"));
    assert_ne!(one, two);
    node.del("rail0", &Attachment::of("one"));
    // More addresses than the block has: the agent is needed, and the error differs from that of an exhausted pool.
    let more = (0..20).find_map(|i| {
        let answer = node.call("ADD", "rail0", &Attachment::of(&format!("p{i}")));
        (!answer.status.success()).then_some(answer.stdout)
    });
    let more: serde_json::Value =
        serde_json::from_str(&more.expect("a block of 16 has 21 addresses")).unwrap();
    assert_eq!(more["code"], 11, "{more}");
    assert!(more["msg"].as_str().unwrap().contains("agent.sock"), "{more}");
    site.server.resume();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_claims_blocks_for_new_pods_and_returns_them_after_they_end() {
    let (site, node) = Site::with_node().await;
    site.simple("rail0", "10.1.0.0/24").await;
    node.wait_active_blocks("rail0", 1).await;
    let given: BTreeSet<String> = (0..60)
        .flat_map(|i| node.add("rail0", &Attachment::of(&format!("p{i}"))))
        .collect();
    assert_eq!(given.len(), 60);
    assert!(site.blocks("rail0").await.len() >= 4);
    until("the usage is reported", async || {
        let pool = site.pools().get("rail0").await.unwrap();
        pool.status
            .and_then(|status| status.counters)
            .is_some_and(|counters| counters.used == 60)
    })
    .await;
    (0..60).for_each(|i| node.del("rail0", &Attachment::of(&format!("p{i}"))));
    site.wait_blocks("rail0", 1).await;
    assert_eq!(node.blocks("rail0", "active").len(), 1);
}

/// If a kill comes between a claim and its answer, the next agent claims the block a second time. The plugin requests probes of the
/// addresses of such a block. A lease with a probe that is brief makes its address suspect, and the block stays for the quarantine.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeatedly_killed_agent_leaks_no_block() {
    let flags = ["--quarantine", "20s"];
    let site = Site::with(&flags).await;
    let node = Member::running(&site.server, "a", &flags).await;
    site.simple("rail0", "10.1.0.0/24").await;
    node.wait_active_blocks("rail0", 1).await;
    let mut given = BTreeSet::new();
    for i in 0..40 {
        let attachment = Attachment::of(&format!("p{i}"));
        let answer = node.call("ADD", "rail0", &attachment);
        if answer.status.success() {
            assert!(
                given.insert(node.add("rail0", &attachment)),
                "an address was allocated twice"
            );
        }
        if i % 5 == 0 {
            node.kill();
            node.start();
        }
    }
    assert!(given.len() > 10, "only {} of 40", given.len());
    (0..40).for_each(|i| node.del("rail0", &Attachment::of(&format!("p{i}"))));
    until("the blocks of the file are those of the API server", async || {
        let there: Vec<String> = site
            .blocks("rail0")
            .await
            .into_iter()
            .filter_map(|block| block.metadata.name)
            .collect();
        there.len() == 1 && node.blocks("rail0", "active") == there
    })
    .await;
    assert!(node.stop(), "SIGTERM ends the agent as a success");
    assert!(!node.socket().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_pool_file_is_refused_and_a_lost_one_is_restored() {
    let (site, node) = Site::with_node().await;
    site.simple("rail0", "10.1.0.0/24").await;
    node.wait_active_blocks("rail0", 1).await;
    let before = node.blocks("rail0", "active");
    let first = node.add("rail0", &Attachment::of("one"));
    let path = node.data().join("pools/rail0/pool.json");
    std::fs::write(&path, "{").unwrap();
    node.refused("rail0", &Attachment::of("two"), &[114], &[]);
    std::fs::remove_file(&path).unwrap();
    until("the file is there again", async || {
        path.is_file() && node.blocks("rail0", "active") == before
    })
    .await;
    assert_ne!(node.add("rail0", &Attachment::of("two")), first);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_catches_up_with_edits_that_its_watches_missed() {
    let (site, node) = Site::with_node().await;
    for pool in ["rail0", "rail1"] {
        let subnet = if pool == "rail0" {
            "10.1.0.0/24"
        } else {
            "10.2.0.0/24"
        };
        site.simple(pool, subnet).await;
        node.wait_active_blocks(pool, 1).await;
    }
    node.freeze();
    let exclude = json!({ "spec": { "ranges": [{ "subnet": "10.1.0.0/24", "gateway": "none", "exclude": ["10.1.0.9"] }] } });
    site.edit("rail0", exclude).await;
    site.delete("rail1").await;
    site.simple("rail2", "10.3.0.0/24").await;
    // Its watches break, so no later event delivers the missed changes.
    site.server.kill();
    site.server.start_again();
    node.thaw();
    until("the edit is known", async || {
        node.file("rail0")["ranges"][0]["exclude"] == json!(["10.1.0.9"])
    })
    .await;
    until("the deleted pool is gone", async || node.file("rail1").is_null()).await;
    until("the new pool is here", async || {
        node.blocks("rail2", "active").len() == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_and_health_are_served() {
    let (site, node) = Site::with_node().await;
    site.simple("rail0", "10.1.0.0/24").await;
    node.wait_active_blocks("rail0", 1).await;
    node.add("rail0", &Attachment::of("one"));
    for path in ["/healthz", "/readyz"] {
        assert!(node.get(path).starts_with("HTTP/1.1 200"), "{}", node.get(path));
    }
    until("the metrics are served", async || {
        let text = node.get("/metrics");
        text.contains("rdmanet_blocks{pool=\"rail0\"} 1")
            && text.contains("rdmanet_addresses_used{pool=\"rail0\"} 1")
    })
    .await;
    assert!(
        node.get("/metrics")
            .contains("rdmanet_blocks_claimed_total{pool=\"rail0\"} 1")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_get_addresses_while_another_process_has_the_metrics_port() {
    let site = Site::new().await;
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().to_string();
    let node = Member::running(&site.server, "a", &["--listen", &port]).await;
    site.simple("rail0", "10.1.0.0/24").await;
    node.wait_active("rail0").await;
    node.add("rail0", &Attachment::of("one"));
    node.wait_log(&format!("cannot listen on {port}: "));
    assert_eq!(node.listens(), None);
    drop(other);
    until("the agent serves its port", async || node.listens().is_some()).await;
    assert!(node.get("/healthz").starts_with("HTTP/1.1 200"));
    assert!(node.stop(), "{}", node.last_words());
}
