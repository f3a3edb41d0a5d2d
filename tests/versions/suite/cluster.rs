// SPDX-License-Identifier: Apache-2.0
//! A cluster whose parts have two versions, and a ledger of the addresses of its pods.

use agents::{Attachment, Controller, Ledger, Member, Site};
use apiserver::install::{self, until};
use apiserver::{Server, objects};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tests::{Answer, Version};

pub(crate) const BOTH: [Version; 2] = [Version::Earlier, Version::Today];

/// Flags of an agent that returns no block during a test.
pub(crate) const KEEPS_BLOCKS: [&str; 2] = ["--idle", "1h"];

/// A cluster with the manifests and the controller of `version`.
pub(crate) async fn site_of(version: Version, flags: &[&str]) -> Site {
    let server = server_of(version).await;
    let controller = Controller::of(version, &server, "a").await;
    controller.start(&server, flags);
    Site {
        admin: server.admin().await,
        controller,
        server,
    }
}

/// An API server with the manifests of `version`.
pub(crate) async fn server_of(version: Version) -> Server {
    let server = Server::start();
    install::all_of(&server, &version.manifests()).await;
    objects::account(&server.admin().await, "default", "default").await;
    server
}

/// A node whose agent of `version` runs.
pub(crate) async fn node_of(version: Version, server: &Server, name: &str, flags: &[&str]) -> Member {
    let node = Member::new(server, name, flags).await;
    node.start_of(version).await;
    node
}

/// Replaces the agent of a node, as a `DaemonSet` does.
pub(crate) async fn replace_agent(node: &Member, version: Version) {
    node.stop();
    node.start_of(version).await;
}

/// Calls of plugins of both versions, with all addresses in a ledger.
#[derive(Default)]
pub(crate) struct Pods {
    pub(crate) ledger: Ledger,
}

impl Pods {
    /// ADD, repeated as a runtime does, until it succeeds. Returns the address.
    pub(crate) async fn add(
        &self,
        version: Version,
        node: &Member,
        pool: &str,
        attachment: &Attachment,
    ) -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let answer = node.call_of(version, "ADD", pool, attachment);
            if answer.status.success() {
                return self.given(node, &answer, attachment);
            }
            assert!(
                Instant::now() < deadline,
                "{version:?}: no address within a minute: {answer}"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// ADD, once. Returns the address; none if the call was refused.
    pub(crate) fn try_add(
        &self,
        version: Version,
        node: &Member,
        pool: &str,
        attachment: &Attachment,
    ) -> Option<String> {
        let answer = node.call_of(version, "ADD", pool, attachment);
        let succeeded = answer.status.success();
        succeeded.then(|| self.given(node, &answer, attachment))
    }

    fn given(&self, node: &Member, answer: &Answer, attachment: &Attachment) -> String {
        let ip = answer.addresses().remove(0);
        let holder = format!("{} of node {}", attachment.container, node.identity.node.node);
        self.ledger.given(ip.parse().unwrap(), &holder);
        ip
    }

    /// DEL of an attachment that has the address `ip`.
    pub(crate) fn del(
        &self,
        version: Version,
        node: &Member,
        pool: &str,
        (attachment, ip): (&Attachment, &str),
    ) {
        self.ledger.ended(&[ip.parse().unwrap()]);
        node.call_of(version, "DEL", pool, attachment).done();
    }
}

/// The containers with a lease of the pool on this node.
pub(crate) fn leases(node: &Member, pool: &str) -> Vec<String> {
    let store = node.data().join("pools").join(pool);
    let boots = std::fs::read_dir(store).into_iter().flatten().flatten();
    let leases = boots.map(|boot| boot.path().join("leases"));
    let files = leases.flat_map(|path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten());
    let mut names: Vec<String> = files
        .map(|file| file.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The names of the pool's blocks that this node owns, sorted.
pub(crate) async fn blocks_of(site: &Site, pool: &str, node: &Member) -> Vec<String> {
    let all = site.blocks(pool).await;
    let own = all.iter().filter(|block| block.spec.owner == node.identity.node);
    let mut names: Vec<String> = own.filter_map(|block| block.metadata.name.clone()).collect();
    names.sort();
    names
}

/// Waits until the node has the file of the pool.
pub(crate) async fn wait_pool(node: &Member, pool: &str) {
    until("the pool is on the node", async || !node.file(pool).is_null()).await;
}

/// The pods of a cluster, and the blocks of its nodes.
#[derive(Default)]
pub(crate) struct Life {
    pub(crate) counted: AtomicBool,
    pods: Pods,
    living: Mutex<Vec<(usize, Attachment, String)>>,
    blocks: Mutex<BTreeSet<String>>,
}

impl Life {
    /// Pods of a cluster whose pools are counted from the start.
    pub(crate) fn counted() -> Self {
        Self {
            counted: AtomicBool::new(true),
            ..Self::default()
        }
    }

    /// Replaces each agent by one of today, and then each by the earlier one again. Life goes on after each step.
    pub(crate) async fn goes_on_under_new_agents(&self, site: &Site, nodes: &[Member]) {
        for (version, which) in [
            (Version::Today, "new agents"),
            (Version::Earlier, "old agents again"),
        ] {
            for (i, node) in nodes.iter().enumerate() {
                replace_agent(node, version).await;
                self.goes_on(site, nodes, version, &format!("with {} {which}", i + 1))
                    .await;
            }
        }
    }

    /// Each pod has its address still, each node has its blocks and allocates one more address. The pool's status counts it, if a
    /// process counts.
    pub(crate) async fn goes_on(&self, site: &Site, nodes: &[Member], plugin: Version, when: &str) {
        // A new number would make every agent write the file of the pool again, and report that.
        let pool = site.pools().get("rail0").await.unwrap();
        let status = pool.status.clone().unwrap_or_default();
        assert_eq!(pool.metadata.generation, Some(1), "{when}");
        assert!(
            matches!(status.accepted_generation, None | Some(1)),
            "{when}: {status:?}"
        );
        let mut living = self.living.lock().unwrap().clone();
        for (i, attachment, ip) in &living {
            assert_eq!(
                &self.pods.add(plugin, &nodes[*i], "rail0", attachment).await,
                ip,
                "{when}"
            );
        }
        let mut blocks = BTreeSet::new();
        for (i, node) in nodes.iter().enumerate() {
            let attachment = Attachment::of(&format!("p{}", living.len()));
            let ip = self.pods.add(plugin, node, "rail0", &attachment).await;
            living.push((i, attachment, ip));
            blocks.extend(blocks_of(site, "rail0", node).await);
        }
        {
            let mut before = self.blocks.lock().unwrap();
            assert!(before.is_subset(&blocks), "{when}: {before:?} became {blocks:?}");
            *before = blocks;
        }
        if self.counted.load(Ordering::Relaxed) {
            let used = i64::try_from(living.len()).unwrap();
            until(&format!("the status counts {used} pods {when}"), async || {
                site.counters("rail0").await.used == used
            })
            .await;
        }
        *self.living.lock().unwrap() = living;
    }
}
