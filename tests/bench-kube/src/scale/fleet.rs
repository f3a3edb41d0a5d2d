// SPDX-License-Identifier: Apache-2.0
//! Many nodes, each with an agent.

use agent::agent::Agent;
use agent::daemon;
use api::supervisor::Supervisor;
use api::{IpBlock, IpPool};
use apiserver::objects;
use apiserver::{Identity, Server};
use futures::StreamExt;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The number of parallel requests of the administrator.
const AT_ONCE: usize = 32;

/// With more agents than this, agents start gradually, as on nodes that pull an image first, and reconcile their pools
/// less often.
const MANY: usize = 2000;

/// The number of gradual starts per second.
const PACE: f64 = 50.0;

/// The time limit of every wait.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(900);

/// The pool of which every node has a block.
pub(crate) const POOL: &str = "fleet";

/// The nodes.
pub(crate) struct Fleet<'s> {
    pub(crate) server: &'s Server,
    pub(crate) admin: Client,
    pub(crate) size: usize,
    /// The number of pools.
    pub(crate) rails: usize,
    /// The number of pods of each node.
    pub(crate) pods: usize,
    /// The number of addresses of a block.
    pub(crate) block: usize,
    pub(crate) identities: Vec<Identity>,
    pub(crate) agents: Vec<Arc<Agent>>,
    dir: TempDir,
    supervisor: Supervisor,
    /// The controller, which runs while agents end and start.
    controller: Supervisor,
}

impl<'s> Fleet<'s> {
    /// `size` nodes without Node objects, with the numbers of pools, of pods and of a block's addresses. Their files are in memory; in a cluster each node has its own disk.
    pub(crate) async fn new(server: &'s Server, [size, rails, pods, block]: [usize; 4]) -> Self {
        Self {
            server,
            admin: bench_kube::agents::admin(server).await,
            size,
            rails,
            pods,
            block,
            identities: Vec::new(),
            agents: Vec::new(),
            dir: tempfile::tempdir_in("/dev/shm").unwrap(),
            supervisor: Supervisor::default(),
            controller: Supervisor::default(),
        }
    }

    /// The prefix length of each pool: room for one and a half times the blocks that the nodes claim.
    pub(crate) fn prefix(&self) -> u32 {
        let block = self.block;
        let blocks = self.pods.div_ceil(block) + usize::from(self.pods % block > block / 2);
        let addresses = self.size * block * blocks.max(1) * 3 / 2;
        32 - addresses.next_power_of_two().ilog2()
    }

    /// Starts the controller, which runs until [`Fleet::end_all`].
    pub(crate) async fn begin_controller(&self) {
        bench_kube::agents::controller(self.server, &[], &self.controller).await;
    }

    /// Ends all tasks and waits for them.
    pub(crate) async fn end_all(&mut self) {
        self.end().await;
        self.controller.stop().cancel();
        self.controller.wait().await;
    }

    /// Creates the nodes and pods.
    pub(crate) async fn join(&mut self) {
        let admin = &self.admin;
        let made = futures::stream::iter(0..self.size)
            .map(|i| async move { Identity::new(admin, &format!("node-{i:05}")).await });
        self.identities = made.buffered(AT_ONCE).collect().await;
    }

    /// Gives the nodes `range` a label that pools may select.
    pub(crate) async fn label(&self, range: std::ops::Range<usize>, value: &str) {
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.admin.clone());
        let patch = Patch::Merge(json!({ "metadata": { "labels": { "crowd": value } } }));
        let (nodes, patch) = (&nodes, &patch);
        let names = self.identities[range].iter().map(|identity| &identity.node.node);
        futures::stream::iter(names)
            .for_each_concurrent(AT_ONCE, |name| async move {
                nodes.patch(name, &PatchParams::default(), patch).await.unwrap();
            })
            .await;
    }

    /// The directory of a node's leases.
    pub(crate) fn data(&self, i: usize) -> PathBuf {
        self.dir.path().join(format!("{i:05}"))
    }

    /// Creates a pool.
    pub(crate) async fn pool(&self, name: &str, spec: Value) {
        objects::create(&self.pools(), objects::pool(name, &spec)).await;
    }

    pub(crate) fn pools(&self) -> Api<IpPool> {
        Api::all(self.admin.clone())
    }

    /// The blocks of every pool.
    pub(crate) async fn all_blocks(&self) -> Vec<IpBlock> {
        let all: Api<IpBlock> = Api::all(self.admin.clone());
        let params = kube::api::ListParams::default().match_any();
        all.list(&params).await.unwrap().items
    }

    /// The blocks of the pool [`POOL`].
    pub(crate) async fn blocks(&self) -> Vec<IpBlock> {
        let mut blocks = self.all_blocks().await;
        blocks.retain(|block| block.spec.pool == POOL);
        blocks
    }

    /// Starts the agents from `first` on: all at once, or [`PACE`] a second if there are many.
    pub(crate) async fn begin_from(&mut self, first: usize) {
        let begun = tokio::time::Instant::now();
        for i in first..self.size {
            if self.size > MANY {
                let turn = Duration::from_secs_f64(f64::from(u32::try_from(i - first).unwrap()) / PACE);
                tokio::time::sleep_until(begun + turn).await;
            }
            self.begin(i).await;
        }
    }

    /// Describes the pace of the starts.
    pub(crate) fn pace(&self) -> String {
        if self.size > MANY {
            format!("{PACE} a second")
        } else {
            format!("{} at once", self.size)
        }
    }

    /// Starts agent `i`.
    pub(crate) async fn begin(&mut self, i: usize) {
        // With thousands of agents in one process, a short interval would measure the processors.
        let interval = if self.size > MANY { "20s" } else { "2s" };
        let node = &self.identities[i].node.node;
        let data = self.data(i);
        let config = bench_kube::agents::config(node, &data, &["--reconcile-interval", interval]);
        let client = bench_kube::agents::clients(self.identities[i].config(self.server)).await;
        let (agent, _) = daemon::start(config, client, &self.supervisor);
        self.agents.push(agent);
    }

    /// Ends all agents and waits for them.
    pub(crate) async fn end(&mut self) {
        self.supervisor.stop().cancel();
        tokio::time::timeout(TIMEOUT, self.supervisor.wait())
            .await
            .expect("the agents do not end");
        self.agents.clear();
        self.supervisor = Supervisor::default();
    }

    /// `pool.json` of a node; null if there is none.
    pub(crate) fn file(&self, i: usize, pool: &str) -> Value {
        let path = self.data(i).join("pools").join(pool).join("pool.json");
        std::fs::read(path).map_or(Value::Null, |content| serde_json::from_slice(&content).unwrap())
    }

    /// Waits until `holds` is true for the file of each of the first `nodes` nodes.
    pub(crate) async fn until_files(&self, nodes: usize, what: &str, holds: impl Fn(&Value) -> bool) {
        let mut left: Vec<usize> = (0..nodes).collect();
        let begun = Instant::now();
        loop {
            left.retain(|i| !holds(&self.file(*i, POOL)));
            if left.is_empty() {
                return;
            }
            assert!(
                begun.elapsed() < TIMEOUT,
                "{what}: not on {} nodes, such as {}",
                left.len(),
                left[0]
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}
