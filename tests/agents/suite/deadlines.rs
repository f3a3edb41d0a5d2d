// SPDX-License-Identifier: Apache-2.0
//! A slow API server, or lost responses: the effect on plugins, and the objects that remain.

use agents::member::{error_of, is_out_of_time};
use agents::pools::per_address;
use agents::{Attachment, Member, Site};
use api::NodeRef;
use api::deadline::BACKGROUND_LIMIT;
use apiserver::install::until;
use apiserver::{Fault, Proxy};
use serde_json::json;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longer than any test waits.
const HANGS: Duration = Duration::from_secs(120);

/// The fault of a request that hangs.
const HANGING: Fault = Fault::Delay(HANGS);

/// A node whose agent reaches the API server through a proxy. The agent does not run yet.
async fn behind(site: &Site, name: &str) -> (Member, Proxy) {
    site.behind_proxy(name, &["--report-interval", "1h"]).await
}

/// Applies `fault` to the first `count` claims from now on. Returns the number of claims so far.
fn disturb_claims(proxy: &Proxy, count: u32, fault: Fault) -> Arc<AtomicU32> {
    let claims = Arc::new(AtomicU32::new(0));
    let seen = claims.clone();
    proxy.decide(move |method, path| {
        let claim = method == "POST" && path.ends_with("/ipblocks");
        if claim && seen.fetch_add(1, Ordering::SeqCst) < count {
            fault
        } else {
            Fault::None
        }
    });
    claims
}

async fn blocks_of(site: &Site, pool: &str, node: &str) -> usize {
    let blocks = site.blocks(pool).await;
    blocks
        .iter()
        .filter(|block| block.spec.owner.node == node)
        .count()
}

/// Each scene has its own node. They share an API server, because its start is slow.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_api_server_does_not_block_other_work_of_the_agent() {
    let site = Site::new().await;
    site.simple("rail0", "10.1.0.0/24").await;
    site.wait_condition("rail0", "Ready", "True").await;
    a_claim_without_a_response_is_retried_until_its_result_is_known(&site).await;
    a_plugin_does_not_wait_for_a_block_claimed_in_advance(&site).await;
    a_request_before_the_agent_has_listed_pools_gets_a_clear_error(&site).await;
    continuous_requests_do_not_delay_a_pool_edit(&site).await;
    slow_claims_of_taken_blocks_end_with_a_list(&site).await;
    an_agent_that_lists_blocks_last_serves_every_pool(&site).await;
    crate::proxied::the_agent_takes_its_proxy_from_the_environment(&site).await;
}

async fn a_claim_without_a_response_is_retried_until_its_result_is_known(site: &Site) {
    let (node, proxy) = behind(site, "unheard").await;
    let (lists, claims, looks) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    proxy.decide(move |method, path| {
        let first = |count: &AtomicU32, most| count.fetch_add(1, Ordering::SeqCst) < most;
        match (method, path.rsplit_once('/').unwrap_or_default().1) {
            ("POST", "ipblocks") if first(&claims, 3) => Fault::LoseAnswer,
            // After the first list, no watch delivers a block.
            ("GET", "ipblocks") if !first(&lists, 1) => Fault::LoseRequest,
            ("GET", name) if name.starts_with("default-4-") && first(&looks, 1) => Fault::LoseAnswer,
            _ => Fault::None,
        }
    });
    node.start();
    node.wait_active("rail0").await;
    // Three responses are lost. A busy machine may need several attempts after these.
    assert!(node.number("rdmanet_claim_attempts_total{pool=\"rail0\"}") > 3);
    // The agent counts a block after it has written the file.
    let claimed = || node.number("rdmanet_blocks_claimed_total{pool=\"rail0\"}");
    until("the claim is counted", async || claimed() > 0).await;
    assert_eq!(claimed(), 1);
    assert_eq!(blocks_of(site, "rail0", "unheard").await, 1);
    assert_eq!(node.blocks("rail0", "active").len(), 1);
    node.add("rail0", &Attachment::of("heard"));
}

async fn a_plugin_does_not_wait_for_a_block_claimed_in_advance(site: &Site) {
    let (node, proxy) = behind(site, "waiting").await;
    node.start();
    node.wait_active_blocks("rail0", 1).await;
    let mut tries = 0;
    until("an ADD succeeds while a claim in advance hangs", async || {
        tries += 1;
        add_beside_hanging_claim(site, &node, &proxy, tries).await
    })
    .await;
    an_agent_that_stops_does_not_wait_for_the_api_server(site, node, &proxy).await;
}

/// Calls ADD once in a new pool, while the node's first claim of the pool hangs. Returns whether that proves that ADD does not wait
/// for this claim. A slow machine proves nothing: the time of ADD was too short, or the agent may have given up the claim by itself.
async fn add_beside_hanging_claim(site: &Site, node: &Member, proxy: &Proxy, number: u8) -> bool {
    let pool = format!("ahead-{number}");
    let claims = disturb_claims(proxy, 1, HANGING);
    site.simple(&pool, &format!("10.5.{number}.0/24")).await;
    until("a block is claimed in advance", async || {
        claims.load(Ordering::SeqCst) > 0
    })
    .await;
    let hangs = Instant::now();
    let answer = node.call("ADD", &pool, &Attachment::of("one"));
    let given_up = hangs.elapsed() > BACKGROUND_LIMIT / 2
        || node.number(&format!("rdmanet_rounds_failed_total{{pool=\"{pool}\"}}")) > 0;
    let succeeds = answer.status.success();
    assert!(succeeds || is_out_of_time(&error_of(&answer)), "{answer}");
    // So the next claim that hangs is one of the next pool.
    node.wait_active(&pool).await;
    // The block of the claim that hung is claimed again, and no other one.
    assert_eq!(blocks_of(site, &pool, "waiting").await, 1);
    succeeds && !given_up
}

async fn an_agent_that_stops_does_not_wait_for_the_api_server(site: &Site, node: Member, proxy: &Proxy) {
    let claims = disturb_claims(proxy, u32::MAX, HANGING);
    site.simple("rail1", "10.2.0.0/24").await;
    until("a block is claimed", async || claims.load(Ordering::SeqCst) > 0).await;
    let begun = Instant::now();
    assert!(node.stop());
    assert!(begun.elapsed() < HANGS / 4, "{:?}", begun.elapsed());
}

async fn a_request_before_the_agent_has_listed_pools_gets_a_clear_error(site: &Site) {
    let (node, proxy) = behind(site, "early").await;
    proxy.decide(|_, path| {
        if path.ends_with("/ippools") {
            Fault::LoseRequest
        } else {
            Fault::None
        }
    });
    node.start();
    until("the agent listens", async || node.socket().exists()).await;
    node.refused("rail0", &Attachment::of("one"), &[119], &["rail0", "API server"]);
    proxy.decide(|_, _| Fault::None);
    node.wait_active("rail0").await;
}

async fn continuous_requests_do_not_delay_a_pool_edit(site: &Site) {
    let spec = per_address("10.3.0.0/24");
    site.pool("each", spec).await;
    let node = Member::running(&site.server, "asking", &[]).await;
    until("the pool is here", async || node.file("each").is_object()).await;
    let asked = || node.number("rdmanet_plugin_requests_total{pool=\"each\",verb=\"allocate\",code=\"0\"}");
    let over = AtomicBool::new(false);
    tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            for i in 0..4 {
                let attachment = Attachment::of(&format!("busy-{i}"));
                let (node, over) = (&node, &over);
                scope.spawn(move || {
                    while !over.load(Ordering::SeqCst) {
                        let answer = node.call("ADD", "each", &attachment);
                        // On a busy machine the agent may release the object of an earlier ADD of this attachment meanwhile.
                        if !answer.status.success() {
                            assert!(is_out_of_time(&error_of(&answer)), "{answer}");
                        }
                        node.del("each", &attachment);
                    }
                });
            }
            tokio::runtime::Handle::current().block_on(async {
                until("requests come without a pause", async || asked() > 20).await;
                let before = asked();
                let exclude = json!({ "spec": { "ranges": [
                    { "subnet": "10.3.0.0/24", "gateway": "none", "exclude": ["10.3.0.9"] }
                ] } });
                site.edit("each", exclude).await;
                until("the edit is known", async || {
                    node.file("each")["ranges"][0]["exclude"] == json!(["10.3.0.9"])
                })
                .await;
                until("requests are answered meanwhile", async || asked() > before + 20).await;
                over.store(true, Ordering::SeqCst);
            });
        });
    });
}

/// Every block has an owner. The tries that precede the list take longer than a plugin waits, and plugins never pause.
async fn slow_claims_of_taken_blocks_end_with_a_list(site: &Site) {
    site.simple("rail2", "10.4.0.0/24").await;
    site.wait_condition("rail2", "Ready", "True").await;
    let gone = NodeRef {
        node: "elsewhere".to_owned(),
        node_uid: "elsewhere".to_owned(),
    };
    site.crowd("rail2", Ipv4Addr::new(10, 4, 0, 0), 16, |_| gone.clone())
        .await;
    let (node, proxy) = behind(site, "slow").await;
    disturb_claims(&proxy, u32::MAX, Fault::Delay(Duration::from_millis(800)));
    node.start();
    until("the agent listens", async || node.socket().exists()).await;
    until("all blocks are listed", async || {
        node.error("rail2", &Attachment::of("one"));
        node.number("rdmanet_claim_lists_total{pool=\"rail2\"}") > 0
    })
    .await;
}

async fn an_agent_that_lists_blocks_last_serves_every_pool(site: &Site) {
    let (node, proxy) = behind(site, "late").await;
    proxy.decide(|_, path| {
        if path.ends_with("/ipblocks") {
            Fault::Delay(Duration::from_secs(1))
        } else {
            Fault::None
        }
    });
    node.start();
    for pool in ["rail0", "rail1", "each"] {
        until(pool, async || node.file(pool).is_object()).await;
    }
}
