// SPDX-License-Identifier: Apache-2.0
//! Requests that arrive long after their client timed out, lost responses, and Nodes that are deleted twice: each at
//! the one moment at which an agent could misinterpret it. The model of a block found these cases.

use agents::pools::simple;
use agents::{Attachment, InTurn, Member, Site};
use api::{AddressState, BlockState, IpAddressSpec, IpBlockSpec};
use apiserver::install::{until, until_within};
use apiserver::{Fault, Identity, Proxy};
use serde_json::json;
use std::time::{Duration, Instant};

/// The quarantine of the test that waits for its end.
const QUARANTINE: Duration = Duration::from_secs(30);

/// [`QUARANTINE`] of the controller and of the nodes.
const FLAGS: [&str; 4] = ["--quarantine", "30s", "--quarantine-in-use", "30s"];

/// A quarantine that ends in no test, however slow the machine is.
const LONG: [&str; 4] = ["--quarantine", "1h", "--quarantine-in-use", "1h"];

/// Runs `test` on the cluster that the tests with [`LONG`] share.
fn in_turn(test: impl AsyncFnOnce(&Site)) {
    static CLUSTER: InTurn = InTurn::new(&LONG);
    CLUSTER.run(|runtime, site| runtime.block_on(test(site)));
}

/// Holds back the first request of `method` whose path ends with `end`, and drops the later ones.
fn keep_first(proxy: &Proxy, method: &'static str, end: &'static str) {
    let mut first = true;
    proxy.decide(move |verb, path| {
        if verb != method || !path.ends_with(end) {
            return Fault::None;
        }
        if std::mem::take(&mut first) {
            Fault::Hold
        } else {
            Fault::LoseRequest
        }
    });
}

/// Creates an object of `10.1.0.9` without a lease: its CREATE arrives after its agent has timed out, and the address
/// is not reserved any more. Returns when the agent's DELETE of it is held back, and no other request.
async fn leave_object_without_lease(site: &Site, proxy: &Proxy, node: &Member) {
    keep_first(proxy, "POST", "/ipaddresses");
    let pieces = ["only the API server knows which pod has 10.1.0.9"];
    let early = Attachment::of("early").asking("10.1.0.9");
    let why = node.refused("late", &early, &[119], &pieces);
    assert!(!why.contains("block"), "{why}");
    site.edit("late", json!({ "spec": { "reserved": [] } })).await;
    until("the node may give the address", async || {
        let file = node.file("late");
        let reserved = file["reserved"].as_array().cloned().unwrap_or_default();
        !file.is_null() && !reserved.iter().any(|entry| entry == "10.1.0.9")
    })
    .await;
    assert_eq!(proxy.deliver().await, [201]);
    keep_first(proxy, "DELETE", "0a010009");
    until("the object of no lease is deleted, late", async || {
        proxy.withheld() == 1
    })
    .await;
}

/// The DELETE of an address object is held back while a pod gets that address and its block becomes a shared one.
#[test]
fn a_late_delete_request_takes_no_address_from_a_pod_of_a_shared_block() {
    in_turn(async |site| {
        let (node, proxy) = site.behind_proxy("late", &[]).await;
        node.start();
        let mut spec = simple("10.1.0.0/28");
        spec["reserved"] = json!(["10.1.0.9"]);
        site.pool("late", spec).await;
        node.wait_active("late").await;
        leave_object_without_lease(site, &proxy, &node).await;
        let pod = Attachment::of("pod").asking("10.1.0.9");
        assert_eq!(node.add("late", &pod), ["10.1.0.9"]);
        proxy.decide(|_, _| Fault::None);
        let other = Member::running(&site.server, "other", &[]).await;
        other.add_soon("late", &Attachment::of("one")).await;
        assert_eq!(site.blocks("late").await[0].spec.state, BlockState::Shared);
        // The DELETE fails: the object has a new version since a lease uses it.
        assert_eq!(proxy.deliver().await, [409]);
        other.refused("late", &Attachment::of("two").asking("10.1.0.9"), &[111], &[]);
        assert_eq!(node.add("late", &pod), ["10.1.0.9"]);
        site.delete("late").await;
        assert!(node.stop() && other.stop());
    });
}

/// A node is registered again and takes its block over. The response is lost, and then the Node is deleted.
#[test]
fn a_block_with_pods_survives_a_lost_update_reply_and_a_deleted_node() {
    in_turn(async |site| {
        let proxy = Proxy::start(&site.server).await;
        let mut node = Member::running(&site.server, "mute", &LONG).await;
        site.simple("mute", "10.2.0.0/28").await;
        node.wait_active("mute").await;
        let (pod, block) = (Attachment::of("pod"), node.blocks("mute", "active"));
        let ip = node.add("mute", &pod);
        node.kill();
        node.identity.leave(&site.admin).await;
        let again = Identity::new(&site.admin, "mute").await;
        node.becomes(&site.server, again.clone());
        node.go_through(&proxy, &site.server);
        // The node marks the block as orphaned and takes it over, and both responses are lost. Later requests are
        // dropped.
        let (name, mut swaps) = (block[0].clone(), 0);
        proxy.decide(move |method, path| {
            let swap = method == "PATCH" && path.ends_with(&name);
            swaps += u32::from(swap);
            match (swap, swaps) {
                (false, _) => Fault::None,
                (true, ..=2) => Fault::LoseAnswer,
                (true, _) => Fault::LoseRequest,
            }
        });
        node.start();
        until("the block is the new registration's", async || {
            let there = site.blocks("mute").await.remove(0).spec;
            there.owner == again.node && there.epoch == 2
        })
        .await;
        assert_eq!(
            node.file("mute")["blocks"][0]["epoch"],
            1,
            "the node has not received the new epoch"
        );
        site.remove_node("mute").await;
        until("no address is allocated any more", async || {
            node.blocks("mute", "active").is_empty()
        })
        .await;
        assert_eq!(node.blocks("mute", "draining"), block, "its pod lives");
        proxy.decide(|_, _| Fault::None);
        node.stop();
        let last = Identity::new(&site.admin, "mute").await;
        node.becomes(&site.server, last.clone());
        node.start();
        until("the block is the last registration's", async || {
            let there = site.blocks("mute").await.remove(0).spec;
            there.owner == last.node && there.epoch == 3 && node.blocks("mute", "active") == block
        })
        .await;
        assert_eq!(node.add("mute", &pod), ip);
        site.delete("mute").await;
        assert!(node.stop());
    });
}

/// A node that is deleted twice, and its pools: the node has the only block of `wanted`, and one of several of `twice`.
struct Scene<'a> {
    site: &'a Site,
    gone: String,
    twice: String,
    wanted: String,
}

impl Scene<'_> {
    /// The block of the node in the pool.
    async fn block(&self, pool: &str) -> Option<IpBlockSpec> {
        let blocks = self.site.blocks(pool).await.into_iter();
        blocks
            .map(|block| block.spec)
            .find(|spec| spec.owner.node == self.gone)
    }

    async fn is_orphaned(&self, pool: &str) -> bool {
        let block = self.block(pool).await;
        block.is_some_and(|spec| spec.state == BlockState::Orphaned)
    }

    async fn address(&self) -> Option<IpAddressSpec> {
        let all = self.site.addresses().await.into_iter();
        all.map(|object| object.spec).find(|spec| spec.pool == self.twice)
    }

    /// Whether the address and the blocks of the node are orphaned.
    async fn are_orphaned(&self) -> bool {
        let address = self.address().await;
        address.is_some_and(|spec| spec.state == AddressState::Orphaned)
            && self.is_orphaned(&self.twice).await
            && self.is_orphaned(&self.wanted).await
    }

    /// Waits until the node has no address and no block, and measures how long after `start` each was free.
    async fn counts_from(&self, start: Instant) {
        let (mut free, mut wanted, mut other) = (None, None, None);
        until_within(
            QUARANTINE * 6,
            "its address and its blocks are free, or have another owner",
            async || {
                if self.address().await.is_none() {
                    free.get_or_insert_with(|| start.elapsed());
                }
                if self.block(&self.wanted).await.is_none() {
                    wanted.get_or_insert_with(|| start.elapsed());
                }
                if self.block(&self.twice).await.is_none() {
                    other.get_or_insert_with(|| start.elapsed());
                }
                free.is_some() && wanted.is_some() && other.is_some()
            },
        )
        .await;
        assert!(free >= Some(QUARANTINE), "the address: {free:?}");
        assert!(
            wanted >= Some(QUARANTINE),
            "the block that the other node claims: {wanted:?}"
        );
        assert!(other >= Some(QUARANTINE), "the other block: {other:?}");
    }

    /// Starts the node, with its blocks and a reserved address. Returns it without its agent.
    async fn node(&self, number: u8) -> Member {
        let gone = Member::running(&self.site.server, &self.gone, &FLAGS).await;
        let mut spec = simple(&format!("10.3.{number}.0/26"));
        spec["reserved"] = json!([format!("10.3.{number}.40")]);
        self.site.pool(&self.twice, spec).await;
        self.site
            .simple(&self.wanted, &format!("10.4.{number}.0/28"))
            .await;
        gone.wait_active(&self.twice).await;
        gone.wait_active(&self.wanted).await;
        let pod = Attachment::of("pod").asking(&format!("10.3.{number}.40"));
        gone.add_soon(&self.twice, &pod).await;
        gone.kill();
        gone
    }

    /// Deletes the Node object, creates it again, and deletes it again. Returns false if the first quarantine ended before the
    /// controller had seen the node return: then the machine is slow, and the second deletion would prove nothing.
    async fn delete_twice(&self, number: u8) -> bool {
        let gone = self.node(number).await;
        // This node has free addresses in one pool, and claims the only block of the other.
        let successor = Member::running(&self.site.server, &format!("heir-{number}"), &FLAGS).await;
        successor.wait_active(&self.twice).await;
        let is_back = || {
            let log = self.site.controller.log();
            log.matches("the node of an orphaned block has returned").count()
        };
        let before = is_back();
        let first = Instant::now();
        let is_over = || first.elapsed() >= QUARANTINE;
        gone.identity.leave(&self.site.admin).await;
        until("its blocks are orphaned", async || {
            self.are_orphaned().await || is_over()
        })
        .await;
        // The quarantine of each block has begun.
        let orphaned = Instant::now();
        let back = Identity::new(&self.site.admin, &self.gone).await;
        until("the controller has seen the node return", async || {
            is_back() >= before + 2 || is_over()
        })
        .await;
        let is_in_time = !is_over();
        if is_in_time {
            // A quarantine that counts from the first deletion ends now.
            let ends = QUARANTINE + Duration::from_secs(5);
            tokio::time::sleep(ends.saturating_sub(orphaned.elapsed())).await;
            let again = Instant::now();
            back.leave(&self.site.admin).await;
            self.counts_from(again).await;
        }
        assert!(successor.stop());
        is_in_time
    }
}

/// The Node object of a machine without a running agent is deleted, comes back, and is deleted again.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_deleted_twice_gets_a_full_quarantine_each_time() {
    let site = Site::with(&FLAGS).await;
    let mut number = 0;
    until("the node is back within the first quarantine", async || {
        number += 1;
        let [gone, twice, wanted] = ["gone", "twice", "wanted"].map(|name| format!("{name}-{number}"));
        let scene = Scene {
            site: &site,
            gone,
            twice,
            wanted,
        };
        scene.delete_twice(number).await
    })
    .await;
}
