// SPDX-License-Identifier: Apache-2.0
//! The shape before there was a controller: agents accept pools and take blocks over. Its agents run under the rights of today, and
//! the agents of today under its rights.

use crate::cluster::{KEEPS_BLOCKS, Life, Pods, blocks_of, node_of, replace_agent, server_of, wait_pool};
use crate::command::shows;
use agents::{Attachment, Controller, Site};
use apiserver::identity::{CONTROLLER, NAMESPACE};
use apiserver::install::{self, until};
use apiserver::objects;
use std::sync::atomic::Ordering;
use tests::Version::{Earlier, Today};

/// A cluster with the manifests of the earlier version. The controller of today does not run yet.
async fn earlier_site() -> Site {
    let server = server_of(Earlier).await;
    let admin = server.admin().await;
    // The manifests of today have this account too.
    objects::account(&admin, NAMESPACE, CONTROLLER).await;
    Site {
        controller: Controller::new(&server, "today").await,
        server,
        admin,
    }
}

async fn is_accepted(site: &Site, pool: &str) -> bool {
    let pool = site.pools().get(pool).await.unwrap();
    pool.status.is_some_and(|status| status.accepted.is_some())
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_keep_their_addresses_while_a_cluster_gets_a_controller_and_loses_it() {
    let site = earlier_site().await;
    let mut nodes = Vec::new();
    for name in ["a", "b"] {
        nodes.push(node_of(Earlier, &site.server, name, &KEEPS_BLOCKS).await);
    }
    site.simple("rail0", "10.1.0.0/24").await;
    let life = Life::counted();
    life.goes_on(&site, &nodes, Earlier, "before").await;
    life.counted.store(false, Ordering::Relaxed);
    install::all_of(&site.server, &Today.manifests()).await;
    life.goes_on(&site, &nodes, Earlier, "with new manifests").await;
    life.counted.store(true, Ordering::Relaxed);
    site.controller.start(&site.server, &[]);
    life.goes_on(&site, &nodes, Earlier, "with a controller").await;
    life.goes_on_under_new_agents(&site, &nodes).await;
    life.counted.store(false, Ordering::Relaxed);
    site.controller.stop();
    life.goes_on(&site, &nodes, Earlier, "without a controller").await;
    life.counted.store(true, Ordering::Relaxed);
    install::all_of(&site.server, &Earlier.manifests()).await;
    life.goes_on(&site, &nodes, Earlier, "with the old manifests again")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_under_the_rights_of_today_claims_and_returns_blocks_but_accepts_no_pool() {
    let site = earlier_site().await;
    let node = node_of(Earlier, &site.server, "a", &[]).await;
    site.simple("rail0", "10.1.0.0/24").await;
    node.wait_active("rail0").await;
    let pods = Pods::default();
    install::all_of(&site.server, &Today.manifests()).await;
    // The Role with the right to lead stays, because kubectl deletes nothing. So the agent still tries to accept pools.
    site.simple("rail1", "10.2.0.0/24").await;
    let refused = "the API server refuses UPDATE ippools/rail1";
    let status_refused = "the API server refuses UPDATE status of ippools/rail1";
    until("the request to accept the pool is refused", async || {
        let log = node.log();
        log.contains(refused) || log.contains(status_refused)
    })
    .await;
    // More pods than a block has addresses.
    let mut living = Vec::new();
    for i in 0..20 {
        let attachment = Attachment::of(&format!("p{i}"));
        let ip = pods.add(Earlier, &node, "rail0", &attachment).await;
        living.push((attachment, ip));
    }
    assert!(blocks_of(&site, "rail0", &node).await.len() >= 2);
    for (attachment, ip) in &living {
        pods.del(Earlier, &node, "rail0", (attachment, ip));
    }
    until("the node has one block", async || {
        blocks_of(&site, "rail0", &node).await.len() == 1
    })
    .await;
    assert!(!is_accepted(&site, "rail1").await);
    site.controller.start(&site.server, &[]);
    pods.add(Earlier, &node, "rail1", &Attachment::of("one")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_pool_is_shared_only_by_and_for_agents_of_today() {
    let site = Site::new().await;
    site.simple("rail0", "10.1.0.0/27").await;
    let nodes = [
        node_of(Earlier, &site.server, "earlier", &KEEPS_BLOCKS).await,
        node_of(Today, &site.server, "today", &KEEPS_BLOCKS).await,
    ];
    for node in &nodes {
        node.wait_active("rail0").await;
    }
    let pods = Pods::default();
    for (node, plugin) in nodes.iter().zip([Earlier, Today]) {
        for i in 0..15 {
            pods.add(plugin, node, "rail0", &Attachment::of(&format!("p{i}")))
                .await;
        }
    }
    assert_eq!(pods.ledger.len(), 30);
    // The request of the earlier agent has no effect: its member of the status is in no definition any more.
    let wants = Attachment::of("wants");
    assert_eq!(pods.try_add(Earlier, &nodes[0], "rail0", &wants), None);
    nodes[0].wait_log("others are asked to share");
    let status = site.pools().get("rail0").await.unwrap().status.unwrap();
    assert!(!status.requests.contains_key("earlier"), "{status:?}");
    // An address becomes free on the node of the earlier agent. The agent of today asks for it, and the earlier agent may not share.
    let released = Attachment::of("p0");
    let ip = pods.add(Earlier, &nodes[0], "rail0", &released).await;
    pods.del(Earlier, &nodes[0], "rail0", (&released, &ip));
    let block = blocks_of(&site, "rail0", &nodes[0]).await.remove(0);
    let refused = format!("the API server refuses UPDATE ipblocks/{block}");
    until(
        "the earlier agent's request to share its block is refused",
        async || {
            assert_eq!(pods.try_add(Today, &nodes[1], "rail0", &wants), None);
            nodes[0].log().contains(&refused)
        },
    )
    .await;
    // Until it is replaced, it allocates nothing from that block.
    assert_eq!(nodes[0].blocks("rail0", "sharing"), [block]);
    assert_eq!(pods.try_add(Earlier, &nodes[0], "rail0", &released), None);
    assert_eq!(pods.ledger.len(), 29);
    replace_agent(&nodes[0], Today).await;
    pods.add(Today, &nodes[1], "rail0", &wants).await;
    assert_eq!(pods.ledger.len(), 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_today_allocates_addresses_under_the_rights_of_agents_alone() {
    let site = earlier_site().await;
    let keeper = node_of(Earlier, &site.server, "keeper", &KEEPS_BLOCKS).await;
    let node = node_of(Today, &site.server, "a", &KEEPS_BLOCKS).await;
    let mut spec = agents::pools::simple("10.1.0.0/24");
    spec["reserved"] = tests::json!(["10.1.0.250"]);
    site.pool("rail0", spec).await;
    let pods = Pods::default();
    for node in [&keeper, &node] {
        wait_pool(node, "rail0").await;
        for i in 0..20 {
            let attachment = Attachment::of(&format!("p{i}"));
            let ip = pods.add(Today, node, "rail0", &attachment).await;
            if i % 2 == 0 {
                pods.del(Today, node, "rail0", (&attachment, &ip));
            }
        }
    }
    let named = Attachment::of("named").asking("10.1.0.250");
    let ip = pods.add(Today, &node, "rail0", &named).await;
    pods.del(Today, &node, "rail0", (&named, &ip));
    pods.add(Earlier, &keeper, "rail0", &named).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_of_today_shows_a_cluster_of_agents_alone() {
    let site = earlier_site().await;
    let node = node_of(Earlier, &site.server, "a", &KEEPS_BLOCKS).await;
    shows(Today, Earlier, &site, &node).await;
}

/// The reverse of the test above: the objects that agents and the controller of today wrote.
#[tokio::test(flavor = "multi_thread")]
async fn the_command_of_agents_alone_shows_a_cluster_of_today() {
    let site = Site::new().await;
    let node = node_of(Today, &site.server, "a", &KEEPS_BLOCKS).await;
    shows(Earlier, Today, &site, &node).await;
}
