// SPDX-License-Identifier: Apache-2.0
//! A controller of one version with agents of both, and a whole cluster that is upgraded and rolled back.

use crate::cluster::{
    BOTH, KEEPS_BLOCKS, Life, Pods, blocks_of, leases, node_of, server_of, site_of, wait_pool,
};
use crate::deleted_node::held;
use agents::pools::simple;
use agents::{Attachment, Controller, Member, Site};
use api::{AddressState, BlockState};
use apiserver::install::{self, until};
use serde_json::json;
use std::collections::BTreeSet;
use tests::Version::{Earlier, Today};

/// A node with an agent of each version.
async fn two_nodes(site: &Site, flags: &[&str]) -> [Member; 2] {
    [
        node_of(Earlier, &site.server, "earlier", flags).await,
        node_of(Today, &site.server, "today", flags).await,
    ]
}

async fn accepted_generation(site: &Site, pool: &str) -> Option<i64> {
    let pool = site.pools().get(pool).await.unwrap();
    pool.status.unwrap_or_default().accepted_generation
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_of_two_versions_take_turns_and_every_node_obeys_the_last_edit() {
    let site = Site::new().await;
    let earlier = Controller::of(Earlier, &site.server, "earlier").await;
    let nodes = two_nodes(&site, &KEEPS_BLOCKS).await;
    site.simple("rail0", "10.1.0.0/24").await;
    let pods = Pods::default();
    let mut used = 0;
    let mut generation = Some(0);
    for turn in 0..4 {
        if turn > 0 {
            let (next, last) = if turn % 2 == 1 {
                (&earlier, &site.controller)
            } else {
                (&site.controller, &earlier)
            };
            last.stop();
            next.start(&site.server, &[]);
        }
        site.edit(
            "rail0",
            json!({ "spec": { "ranges": [{
            "subnet": "10.1.0.0/24", "gateway": "none", "exclude": [format!("10.1.0.{}", 240 + turn)],
        }] } }),
        )
        .await;
        until("the edit is accepted", async || {
            accepted_generation(&site, "rail0").await > generation
        })
        .await;
        generation = accepted_generation(&site, "rail0").await;
        for node in &nodes {
            until("the node has the edit", async || {
                node.file("rail0")["ranges"][0]["exclude"] == json!([format!("10.1.0.{}", 240 + turn)])
            })
            .await;
            let attachment = Attachment::of(&format!("p{turn}"));
            pods.add(BOTH[turn % 2], node, "rail0", &attachment).await;
            used += 1;
        }
        until("the pool's status counts the pods", async || {
            site.counters("rail0").await.used == used
        })
        .await;
        site.wait_condition("rail0", "Ready", "True").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_two_versions_share_a_pool_to_its_last_address() {
    for controller in BOTH {
        let site = site_of(controller, &[]).await;
        let nodes = two_nodes(&site, &KEEPS_BLOCKS).await;
        site.simple("rail0", "10.1.0.0/26").await;
        for node in &nodes {
            node.wait_active("rail0").await;
        }
        let pods = Pods::default();
        // Each node in turn allocates most addresses. The other one shares its blocks.
        for (taker, other) in [(0, 1), (1, 0)] {
            let mut given = BTreeSet::new();
            let first = Attachment::of("first");
            let ip = pods.add(BOTH[other], &nodes[other], "rail0", &first).await;
            for i in 0..61 {
                let attachment = Attachment::of(&format!("p{i}"));
                let ip = pods.add(BOTH[taker], &nodes[taker], "rail0", &attachment).await;
                given.insert((i, ip));
            }
            assert_eq!(pods.ledger.len(), 62, "controller {controller:?}");
            pods.del(BOTH[other], &nodes[other], "rail0", (&first, &ip));
            for (i, ip) in &given {
                // The plugin of the other version releases half of them.
                let plugin = BOTH[i % 2];
                pods.del(
                    plugin,
                    &nodes[taker],
                    "rail0",
                    (&Attachment::of(&format!("p{i}")), ip),
                );
            }
            assert!(pods.ledger.is_empty());
        }
        let shared = |state: BlockState| state == BlockState::Shared;
        let blocks = site.blocks("rail0").await;
        assert!(blocks.iter().any(|block| shared(block.spec.state)), "{blocks:?}");
    }
}

/// The pod of the `StatefulSet` `db`, in its own sandbox.
fn sandbox(uid: &str, container: &str) -> Attachment {
    Attachment {
        pod: "default/db-0".to_owned(),
        uid: uid.to_owned(),
        ..Attachment::of(container)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_pod_keeps_its_address_across_nodes_of_two_versions() {
    for controller in BOTH {
        let site = site_of(controller, &[]).await;
        let nodes = two_nodes(&site, &[]).await;
        let mut spec = simple("10.1.0.0/24");
        spec["reserved"] = json!(["10.1.0.240/28"]);
        spec["sticky"] = json!("StatefulSet");
        site.pool("rail0", spec).await;
        site.stateful_set("db", 1).await;
        for node in &nodes {
            node.wait_active("rail0").await;
        }
        let pods = Pods::default();
        let mut first = None;
        for (turn, i) in [0, 1, 0].into_iter().enumerate() {
            let node = &nodes[i];
            let uid = site.replica("db", 0, &node.identity.node.node).await;
            let attachment = sandbox(&uid, &format!("s{turn}"));
            let ip = pods.add(BOTH[i], node, "rail0", &attachment).await;
            assert!(ip.starts_with("10.1.0.2"), "{ip} is not a reserved one");
            assert_eq!(
                first.get_or_insert(ip.clone()),
                &ip,
                "controller {controller:?}, turn {turn}"
            );
            pods.del(BOTH[i], node, "rail0", (&attachment, &ip));
            site.remove_pod("db-0").await;
            until("the address is kept", async || {
                let all = site.addresses().await;
                all.len() == 1 && all[0].spec.state == AddressState::Kept
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_that_one_version_returns_is_claimed_by_the_other() {
    for controller in BOTH {
        let site = site_of(controller, &[]).await;
        let nodes = two_nodes(&site, &[]).await;
        let pods = Pods::default();
        for i in [0, 1] {
            let (pool, other) = (format!("rail{i}"), 1 - i);
            // Two blocks, of which one node needs both.
            site.simple(&pool, &format!("10.{}.0.0/27", i + 1)).await;
            for node in &nodes {
                wait_pool(node, &pool).await;
            }
            let mut all = Vec::new();
            for pod in 0..29 {
                let attachment = Attachment::of(&format!("p{pod}"));
                let ip = pods.add(BOTH[i], &nodes[i], &pool, &attachment).await;
                all.push((attachment, ip));
            }
            for (attachment, ip) in &all {
                pods.del(BOTH[other], &nodes[i], &pool, (attachment, ip));
            }
            let attachment = Attachment::of("other");
            pods.add(BOTH[other], &nodes[other], &pool, &attachment).await;
            until("the other node has a block", async || {
                !blocks_of(&site, &pool, &nodes[other]).await.is_empty()
            })
            .await;
            assert_eq!(leases(&nodes[i], &pool), [""; 0]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_earlier_controller_holds_what_a_deleted_node_of_today_had_in_use() {
    for heir in BOTH {
        held(Earlier, Today, heir).await;
    }
}

/// Everything of one version becomes everything of the other, in the order of docs/design/versions.md, and back.
#[tokio::test(flavor = "multi_thread")]
async fn pods_keep_their_addresses_while_a_cluster_is_upgraded_and_rolled_back() {
    let server = server_of(Earlier).await;
    let admin = server.admin().await;
    let controller = Controller::of(Earlier, &server, "earlier").await;
    controller.start(&server, &[]);
    let site = Site {
        controller: Controller::new(&server, "today").await,
        server,
        admin,
    };
    site.simple("rail0", "10.1.0.0/24").await;
    let mut nodes = Vec::new();
    for name in ["a", "b"] {
        nodes.push(node_of(Earlier, &site.server, name, &KEEPS_BLOCKS).await);
    }
    let life = Life::counted();
    life.goes_on(&site, &nodes, Earlier, "before").await;
    install::all_of(&site.server, &Today.manifests()).await;
    life.goes_on(&site, &nodes, Earlier, "with new manifests").await;
    controller.stop();
    site.controller.start(&site.server, &[]);
    life.goes_on(&site, &nodes, Earlier, "with a new controller")
        .await;
    life.goes_on_under_new_agents(&site, &nodes).await;
    site.controller.stop();
    controller.start(&site.server, &[]);
    life.goes_on(&site, &nodes, Earlier, "with the old controller again")
        .await;
    // The definitions too, as a rollback with Helm does.
    install::all_of(&site.server, &Earlier.manifests()).await;
    life.goes_on(&site, &nodes, Earlier, "with the old manifests again")
        .await;
}

async fn wait_leader(site: &Site, controller: &Controller) {
    until(&format!("{} leads", controller.identity()), async || {
        site.leader().await == controller.identity()
    })
    .await;
}

/// A Deployment starts the new replica before it stops the old one.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_of_two_versions_lead_one_after_the_other() {
    let site = Site::new().await;
    let earlier = Controller::of(Earlier, &site.server, "earlier").await;
    wait_leader(&site, &site.controller).await;
    earlier.start(&site.server, &[]);
    let mut pools = 0;
    for (leader, next) in [(&site.controller, &earlier), (&earlier, &site.controller)] {
        // The leader accepts a pool. The other replica runs, and does not lead.
        pools += 1;
        let pool = format!("rail{pools}");
        site.simple(&pool, &format!("10.{pools}.0.0/24")).await;
        site.wait_condition(&pool, "Ready", "True").await;
        assert_eq!(site.leader().await, leader.identity());
        leader.stop();
        wait_leader(&site, next).await;
        leader.start(&site.server, &[]);
    }
    // Also without a release of the Lease.
    site.controller.kill();
    wait_leader(&site, &earlier).await;
    site.simple("last", "10.9.0.0/24").await;
    site.wait_condition("last", "Ready", "True").await;
}
