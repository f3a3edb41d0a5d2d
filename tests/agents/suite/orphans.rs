// SPDX-License-Identifier: Apache-2.0
//! Many gone nodes: their blocks and addresses are collected, and nothing else is delayed.

use agents::pools::simple;
use agents::{InTurn, Member, Site};
use api::{BlockState, IpAddress, NodeRef};
use apiserver::identity::join;
use apiserver::install::until;
use apiserver::objects;
use apiserver::{Fault, Proxy};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The flags of the controller.
const FLAGS: [&str; 4] = ["--quarantine", "4s", "--quarantine-in-use", "4s"];

/// Runs `test` on the cluster that all tests of this module share.
fn in_turn(test: impl AsyncFnOnce(&Site)) {
    static CLUSTER: InTurn = InTurn::new(&FLAGS);
    CLUSTER.run(|runtime, site| runtime.block_on(test(site)));
}

/// The number of gone nodes.
const GONE: u32 = 48;

/// The lowest number of parallel reads. A read without a response takes half a minute, so sequential reads would
/// complete only two of them within the time that `until` waits.
const TOGETHER: usize = 6;

/// A block of a node that never had a Node object here. The agent of `by` judges it.
fn gone(by: &str, number: u32) -> NodeRef {
    NodeRef {
        node: format!("gone-{by}-{number:02}"),
        node_uid: format!("uid-{number}"),
    }
}

/// A proxy that handles every read of a gone node of `name` as `look` defines. Returns the number of reads.
async fn looks_through(
    site: &Site,
    name: &str,
    look: impl Fn(&str) -> Fault + Send + 'static,
) -> (Proxy, Arc<AtomicUsize>) {
    let proxy = Proxy::start(&site.server).await;
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = looks.clone();
    let gone = format!("/api/v1/nodes/gone-{name}-");
    proxy.decide(move |method, path| match path.strip_prefix(gone.as_str()) {
        Some(number) if method == "GET" => {
            counted.fetch_add(1, Ordering::SeqCst);
            look(number)
        }
        _ => Fault::None,
    });
    (proxy, looks)
}

/// Starts the controller again behind `proxy`, or without one.
fn restart(site: &Site, proxy: Option<&Proxy>) {
    assert!(site.controller.stop());
    match proxy {
        Some(proxy) => site.controller.start_behind(proxy, &site.server, &FLAGS),
        None => site.controller.start(&site.server, &FLAGS),
    }
}

/// The number of blocks of gone nodes, and how many of them are orphaned.
async fn left(site: &Site, pool: &str) -> (usize, usize) {
    let mut blocks = site.blocks(pool).await;
    blocks.retain(|block| block.spec.owner.node.starts_with("gone-"));
    let orphaned = blocks
        .iter()
        .filter(|block| block.spec.state == BlockState::Orphaned);
    (blocks.len(), orphaned.count())
}

/// For a while the API server answers no read of a gone Node, and for one of them never.
#[test]
fn pools_are_reconciled_while_blocks_of_many_deleted_nodes_are_collected() {
    in_turn(async |site| {
        let look = |number: &str| match number {
            "00" => Fault::Status(500),
            _ => Fault::Wait,
        };
        let (proxy, looks) = looks_through(site, "sweeper", look).await;
        restart(site, Some(&proxy));
        site.simple("crowded", "10.5.0.0/16").await;
        let node = Member::running(&site.server, "swept", &[]).await;
        node.wait_active("crowded").await;
        site.crowd("crowded", Ipv4Addr::new(10, 5, 128, 0), GONE, |i| {
            gone("sweeper", i)
        })
        .await;
        until("several gone nodes are looked at together", async || {
            looks.load(Ordering::SeqCst) >= TOGETHER
        })
        .await;
        let exclude = json!({ "spec": { "ranges": [{ "subnet": "10.5.0.0/16", "gateway": "none", "exclude": ["10.5.0.7"] }] } });
        site.edit("crowded", exclude).await;
        until("the edit is accepted, and all blocks are counted", async || {
            let status = site.pools().get("crowded").await.unwrap().status.unwrap();
            let blocks = status.counters.map_or(0, |counters| counters.blocks);
            status.observed_generation == Some(2) && blocks >= i64::from(GONE)
        })
        .await;
        assert_eq!(left(site, "crowded").await.1, 0, "a look was answered");
        proxy.open();
        until("all blocks but one are orphaned, or ended by now", async || {
            let (there, orphaned) = left(site, "crowded").await;
            there - orphaned == 1
        })
        .await;
        until("only that one is left", async || {
            left(site, "crowded").await == (1, 0)
        })
        .await;
        proxy.decide(|_, _| Fault::None);
        until("no block is left", async || left(site, "crowded").await.0 == 0).await;
        site.delete("crowded").await;
        assert!(node.stop());
        restart(site, None);
    });
}

/// Creates an address in the reserved block of the pool `heap`, used by a pod on a gone node.
async fn bind(site: &Site, number: u8) {
    let ip = Ipv4Addr::new(10, 6, 0, number);
    let addresses: Api<IpAddress> = Api::all(site.admin.clone());
    let address = objects::address("heap", ip.into(), "10.6.0.0/28", gone("looker", 0));
    addresses.create(&PostParams::default(), &address).await.unwrap();
}

#[test]
fn the_controller_does_not_read_a_deleted_node_once_per_object() {
    in_turn(async |site| {
        let mut spec = simple("10.6.0.0/24");
        spec["reserved"] = json!(["10.6.0.0/28"]);
        // In a cluster without any Node object, no node counts as gone.
        join(&site.admin, "bystander").await.unwrap();
        // The controller must not run before all objects exist.
        assert!(site.controller.stop());
        site.pool("heap", spec).await;
        site.crowd("heap", Ipv4Addr::new(10, 6, 0, 128), 8, |_| gone("looker", 0))
            .await;
        for number in 1..=8 {
            bind(site, number).await;
        }
        let (proxy, looks) = looks_through(site, "looker", |_| Fault::None).await;
        site.controller.start_behind(&proxy, &site.server, &FLAGS);
        let addresses = async || {
            let all = site.addresses().await.into_iter();
            all.filter(|address| address.spec.pool == "heap").count()
        };
        until("the addresses are free", async || addresses().await == 0).await;
        until("the blocks are free", async || left(site, "heap").await.0 == 0).await;
        // One read each to mark the blocks, to delete the addresses and to delete the blocks.
        let looks = looks.load(Ordering::SeqCst);
        assert!(looks < 16, "{looks} looks for 16 objects");
        site.delete("heap").await;
        restart(site, None);
    });
}
