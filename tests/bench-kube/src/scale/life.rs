// SPDX-License-Identifier: Apache-2.0
//! The life of a cluster: nodes join, the cluster is idle, a pool is edited, pods start, the agents are updated.

use crate::fleet::{Fleet, POOL, TIMEOUT};
use crate::rails::name;
use api::metrics::Served;
use bench_kube::call::{Call, at_once};
use bench_kube::gauge::{Gauges, Phase};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

/// The duration of the idle phase.
const REST: Duration = Duration::from_secs(60);

/// The number of parallel plugins. In a cluster they run on different nodes and do not share the processors.
const PLUGINS: usize = 8;

/// Runs the calls, adds their addresses to `given`, and returns the refused calls. After a refusal, the other pods of that node
/// wait for the same pool: the configuration is that of a node and a pool.
fn refused(calls: &[Call], given: &mut BTreeSet<String>) -> Vec<Call> {
    let (mut again, mut without) = (Vec::new(), BTreeSet::new());
    let mut calls = calls.iter();
    loop {
        let mut some = Vec::new();
        while let Some(call) = (some.len() < PLUGINS).then(|| calls.next()).flatten() {
            if without.contains(&call.conf) {
                again.push(call.clone());
            } else {
                some.push(call.clone());
            }
        }
        if some.is_empty() {
            return again;
        }
        for (call, answer) in some.iter().zip(at_once(&some).answers) {
            if answer.succeeded {
                assert!(given.insert(answer.address()), "{} twice", answer.address());
            } else {
                without.insert(call.conf.clone());
                again.push(call.clone());
            }
        }
    }
}

impl Fleet<'_> {
    /// Creates nodes, pods and tokens, which is not the agents' work.
    pub(crate) async fn register(&mut self, gauges: &Gauges<'_>) -> Phase {
        let start = gauges.start().await;
        self.join().await;
        crate::crowd::label(self).await;
        gauges.stop("nodes and pods are made", start).await
    }

    /// Starts the agents, and each claims a block. The pool has room for one and a half times as many.
    pub(crate) async fn start(&mut self, gauges: &Gauges<'_>) -> Phase {
        let spec = json!({
            "ranges": [{ "subnet": format!("10.0.0.0/{}", self.prefix()), "gateway": "none" }],
            "blockSize": { "v4": self.block },
            "cooldownSeconds": 0,
        });
        self.pool(POOL, spec).await;
        self.begin_controller().await;
        self.begin(0).await;
        self.until_accepted(1).await;
        let start = gauges.start().await;
        self.begin_from(1).await;
        let has = |file: &Value| file["blocks"].as_array().is_some_and(|blocks| !blocks.is_empty());
        self.until_files(self.size, "a block on every node", has).await;
        let name = format!("agents start, {}, each claims a block", self.pace());
        gauges.stop(name, start).await
    }

    /// Measures an idle cluster.
    pub(crate) async fn rest(&self, gauges: &Gauges<'_>) -> Phase {
        // Waits for the first reports and reads.
        self.until_noted(1).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let start = gauges.start().await;
        tokio::time::sleep(REST).await;
        gauges.stop(format!("{} s of rest", REST.as_secs()), start).await
    }

    /// Excludes an address.
    pub(crate) async fn edit(&self, gauges: &Gauges<'_>) -> [Phase; 2] {
        let (start, start_noted) = (gauges.start().await, gauges.start().await);
        let pool = self.pools().get(POOL).await.unwrap();
        let mut ranges = serde_json::to_value(&pool.spec.ranges).unwrap();
        ranges[0]["exclude"] = json!(["10.0.0.7"]);
        let change = json!({ "spec": { "ranges": ranges } });
        self.pools()
            .patch(POOL, &PatchParams::default(), &Patch::Merge(change))
            .await
            .unwrap();
        self.until_files(self.size, "the edit on every node", |file| {
            file["generation"] == 2
        })
        .await;
        let known = gauges.stop("an edit is in force on every node", start).await;
        self.until_noted(2).await;
        let noted = gauges.stop("… and noted in every block", start_noted).await;
        [known, noted]
    }

    /// Starts pods on every node, each with an address of every pool, and waits until the counters reach the API server. A
    /// refused ADD is repeated, as by a runtime; here the agent must claim a block before the next attempt, because agents
    /// have no socket here.
    pub(crate) async fn add(&self, gauges: &Gauges<'_>, plugin: &Path) -> [Phase; 2] {
        let (start, start_reported) = (gauges.start().await, gauges.start().await);
        let mut calls = self.calls(plugin);
        let all = calls.len();
        let given = tokio::task::spawn_blocking(move || {
            let mut given = BTreeSet::new();
            let begun = Instant::now();
            loop {
                calls = refused(&calls, &mut given);
                let Some(call) = calls.first() else {
                    return given.len();
                };
                assert!(begun.elapsed() < TIMEOUT, "{} gets no address", call.id);
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        assert_eq!(given.await.unwrap(), all);
        let what = format!(
            "{} pods start on every node, with {} addresses each",
            self.pods, self.rails
        );
        let added = gauges.stop(what, start).await;
        self.until_reported(i64::try_from(all).unwrap()).await;
        let what = "… and that is reported in every block";
        [added, gauges.stop(what, start_reported).await]
    }

    /// An ADD for each pod and pool.
    fn calls(&self, plugin: &Path) -> Vec<Call> {
        let pods = (0..self.pods).flat_map(|pod| (0..self.size).map(move |i| (i, pod)));
        pods.flat_map(|(i, pod)| (0..self.rails).map(move |rail| (i, pod, rail)))
            .map(|(i, pod, rail)| Call {
                program: plugin.to_owned(),
                verb: "ADD",
                id: format!("pod-{i}-{pod}"),
                pod: format!("pod-{i}-{pod}"),
                conf: json!({
                    "cniVersion": "1.0.0", "name": name(rail), "type": "macvlan",
                    "ipam": { "type": "rdma-ipam", "pool": name(rail), "dataDir": self.data(i) },
                })
                .to_string(),
                agent: None,
                node: None,
                netns: None,
            })
            .collect()
    }

    /// Waits until the blocks of all pools report this number of used addresses.
    async fn until_reported(&self, used: i64) {
        let begun = Instant::now();
        loop {
            let blocks = self.all_blocks().await;
            let sum: i64 = blocks
                .iter()
                .filter_map(|block| Some(block.status.as_ref()?.used))
                .sum();
            if sum == used {
                return;
            }
            assert!(
                begun.elapsed() < TIMEOUT,
                "{sum} of {used} addresses are reported"
            );
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }

    /// Restarts every agent.
    pub(crate) async fn restart(&mut self, gauges: &Gauges<'_>) -> Phase {
        self.end().await;
        let start = gauges.start().await;
        self.begin_from(0).await;
        self.until_ready().await;
        gauges
            .stop(format!("all agents start again, {}", self.pace()), start)
            .await
    }

    /// Waits until every agent has read pools and blocks and completed one round.
    async fn until_ready(&self) {
        let begun = Instant::now();
        let ready = |agent: &agent::agent::Agent| {
            let served = Served::new("rdmanet-agent", |all| agent.metrics.register(all));
            served.text().contains("rdmanet_blocks{")
        };
        while !self.agents.iter().all(|agent| ready(agent)) {
            assert!(begun.elapsed() < TIMEOUT, "not every agent is ready");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Waits until the pool is accepted with this generation.
    pub(crate) async fn until_accepted(&self, generation: i64) {
        apiserver::install::until("the pool is accepted", async || {
            let status = self.pools().get(POOL).await.unwrap().status.unwrap_or_default();
            status.accepted.is_some() && status.observed_generation == Some(generation)
        })
        .await;
    }

    /// Waits until every block reports this generation.
    async fn until_noted(&self, generation: i64) {
        let begun = Instant::now();
        loop {
            let blocks = self.blocks().await;
            let noted = |block: &api::IpBlock| {
                block
                    .status
                    .as_ref()
                    .and_then(|status| status.observed_generation)
                    == Some(generation)
            };
            let count = blocks.iter().filter(|block| noted(block)).count();
            if count >= self.size && count == blocks.len() {
                return;
            }
            assert!(
                begun.elapsed() < TIMEOUT,
                "{count} of {} blocks have noted generation {generation}",
                blocks.len()
            );
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }
}
