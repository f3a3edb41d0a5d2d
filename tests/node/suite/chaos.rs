// SPDX-License-Identifier: Apache-2.0
//! Seeded chaos: one operation after another, on a cluster whose pods start and stop all the time.
//!
//! `RDMANET_CHAOS_MINUTES` sets how long (default 2), `RDMANET_CHAOS_SEED` repeats the choices of a run, though not the scheduler's.
//!
//! An operation does not wait until the effects of the earlier one are over. Both nodes run whenever an operation begins.

use crate::cluster::{Cluster, NODES, timed};
use crate::kills::kill;
use crate::peers;
use crate::pools::{databases, remove_databases};
use crate::returns::{back, delete_node};
use crate::witnesses::{agree, no_duplicate, nothing_left};
use crate::workload::{deployment, remove, single};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The most pods of the Deployment. The `StatefulSet` has two more, and each node may have a static pod.
const MOST: usize = 10;
/// The pods of the Deployment in the end.
const END: usize = 4;
/// The Deployment with addresses of whereabouts.
const PEER: &str = "peer";

#[allow(
    clippy::disallowed_methods,
    reason = "the environment sets the duration of a manual run"
)]
fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| {
        text.parse().unwrap_or_else(|e| panic!("{variable}={text}: {e}"))
    })
}

/// The cluster under chaos.
struct Chaos<'a> {
    cluster: &'a Cluster,
    random: fastrand::Rng,
    done: BTreeMap<&'static str, u32>,
    /// The addresses that two pods of whereabouts had, if it runs too.
    duplicates: Option<BTreeSet<String>>,
}

type Operation = (&'static str, fn(&mut Chaos));

/// The operations. Each is as likely as the number of its rows.
const OPERATIONS: &[Operation] = &[
    ("scale", |chaos| chaos.scale()),
    ("scale", |chaos| chaos.scale()),
    ("scale", |chaos| chaos.scale()),
    ("deletion", |chaos| chaos.delete()),
    ("deletion", |chaos| chaos.delete()),
    ("forced deletion", |chaos| chaos.delete_by_force()),
    ("forced deletion", |chaos| chaos.delete_by_force()),
    ("kill of containerd", |chaos| chaos.kill_containerd()),
    ("kill of containerd", |chaos| chaos.kill_containerd()),
    ("kill of kubelet", |chaos| chaos.kill_kubelet()),
    ("static pod", |chaos| chaos.static_pod()),
    ("static pod", |chaos| chaos.static_pod()),
    ("update of the agents", |chaos| chaos.update_agents()),
    ("drain", |chaos| chaos.drain()),
    ("power failure", |chaos| chaos.power()),
    ("deleted Node", |chaos| chaos.delete_node()),
];

impl Chaos<'_> {
    fn node(&mut self) -> &'static str {
        NODES[self.random.usize(..NODES.len())]
    }

    /// The Deployments: ours, and the one with addresses of whereabouts if it runs too.
    fn deployments(&self) -> &'static [&'static str] {
        if self.duplicates.is_some() {
            &["chaos", PEER]
        } else {
            &["chaos"]
        }
    }

    fn scale_to(&self, replicas: usize) {
        for name in self.deployments() {
            self.cluster
                .kubectl(&format!("scale deployment/{name} --replicas={replicas}"));
        }
    }

    fn scale(&mut self) {
        let replicas = self.random.usize(..=MOST);
        self.scale_to(replicas);
    }

    /// Deletes a pod of the Deployment or of the `StatefulSet`, and one of whereabouts if it runs too.
    fn delete_one(&mut self, options: &[&str]) {
        for selector in [format!("app,app!={PEER}"), format!("app={PEER}")] {
            let names = self.cluster.kubectl(&format!("get pods -l {selector} -o name"));
            let names: Vec<&str> = names.lines().collect();
            if let Some(name) = self.random.choice(names) {
                let words = [&["delete", name, "--ignore-not-found", "--wait=false"], options].concat();
                self.cluster.try_kubectl(&words).unwrap();
            }
        }
    }

    fn delete(&mut self) {
        self.delete_one(&[]);
    }

    fn delete_by_force(&mut self) {
        self.delete_one(&["--force", "--grace-period=0"]);
    }

    fn kill_containerd(&mut self) {
        let node = self.node();
        kill(self.cluster, node, "containerd");
    }

    fn kill_kubelet(&mut self) {
        let node = self.node();
        kill(self.cluster, node, "kubelet");
    }

    /// Removes the static pod of a node if it has one, and adds one otherwise.
    fn static_pod(&mut self) {
        let manifest = single("static", "ib-ipoib", None).to_string();
        let script = "cd /var/machine/pods && { rm chaos.json 2>/dev/null || { printf %s \"$1\" >../new && mv ../new chaos.json; }; }";
        let node = self.node();
        self.cluster.at(node, &["sh", "-c", script, "sh", &manifest]);
    }

    fn update_agents(&mut self) {
        self.cluster.kubectl(
            "-n rdmanet-system rollout restart daemonset/rdmanet-agent deployment/rdmanet-controller",
        );
        if self.duplicates.is_some() {
            self.cluster
                .kubectl("-n kube-system rollout restart daemonset/whereabouts");
        }
    }

    /// Begins to evict the pods of a node, and admits pods again after 20 s at most.
    fn drain(&mut self) {
        let node = self.node();
        let words = format!("drain {node} --ignore-daemonsets --delete-emptydir-data --timeout=20s");
        let _ = self
            .cluster
            .try_kubectl(&words.split_whitespace().collect::<Vec<_>>());
        self.cluster.kubectl(&format!("uncordon {node}"));
    }

    fn power(&mut self) {
        let node = self.node();
        self.cluster.power_off(node);
        self.cluster.power_on(node);
    }

    fn delete_node(&mut self) {
        let node = self.node();
        self.cluster.power_off(node);
        delete_node(self.cluster, node);
        self.cluster.power_on(node);
        back(self.cluster, node);
    }

    /// Runs operations until the time is over.
    fn run(&mut self, end: Instant) {
        while Instant::now() < end {
            let (name, operation) = OPERATIONS[self.random.usize(..OPERATIONS.len())];
            println!("chaos: {name}");
            operation(self);
            *self.done.entry(name).or_default() += 1;
            no_duplicate(self.cluster);
            if let Some(seen) = &mut self.duplicates {
                seen.extend(peers::duplicates(self.cluster));
            }
            std::thread::sleep(Duration::from_secs(self.random.u64(..10)));
        }
    }

    /// Ends every operation that leaves something behind, and waits until the pods of the end are ready.
    fn end(&self) {
        for node in NODES {
            back(self.cluster, node);
            self.cluster.kubectl(&format!("uncordon {node}"));
            self.cluster
                .at(node, &["rm", "-f", "/var/machine/pods/chaos.json"]);
        }
        self.scale_to(END);
        for (namespace, name) in [
            ("kube-system", "daemonset/kube-multus-ds"),
            ("rdmanet-system", "daemonset/rdmanet-agent"),
            ("rdmanet-system", "deployment/rdmanet-controller"),
            ("default", "deployment/chaos"),
            ("default", "statefulset/db"),
        ] {
            self.cluster.rolled_out(namespace, name);
        }
    }
}

/// Chaos, beside whereabouts if `beside`.
fn chaos(beside: bool) {
    let seed = number("RDMANET_CHAOS_SEED", fastrand::u64(..));
    let minutes = number("RDMANET_CHAOS_MINUTES", 2);
    println!("did: chaos with seed {seed} for {minutes} minutes");
    let cluster = Cluster::lock();
    databases(&cluster);
    cluster.apply(&[deployment("chaos", "ib-ipoib", END, None)]);
    if beside {
        peers::install(&cluster);
        cluster.apply(&[deployment(PEER, peers::NETWORK, END, None)]);
    }
    let mut chaos = Chaos {
        cluster: &cluster,
        random: fastrand::Rng::with_seed(seed),
        done: BTreeMap::new(),
        duplicates: beside.then(BTreeSet::new),
    };
    chaos.run(Instant::now() + Duration::from_secs(minutes * 60));
    println!("did: {:?}", chaos.done);
    chaos.end();
    timed("all records of the living pods", || agree(&cluster, END + 2));
    if let Some(seen) = &chaos.duplicates {
        println!("did: whereabouts gave two pods at once each of {seen:?}");
        peers::end(&cluster, PEER);
        remove(&cluster, &format!("deployment/{PEER}"));
    }
    remove(&cluster, "deployment/chaos");
    remove_databases(&cluster);
    timed("the end of all records", || nothing_left(&cluster));
    if beside {
        peers::left(&cluster);
    }
}

#[test]
fn chaos_ends_without_a_duplicate_and_without_a_leak() {
    chaos(false);
}

#[test]
fn chaos_beside_whereabouts_ends_without_a_duplicate_and_without_a_leak_of_rdmanet() {
    chaos(true);
}
