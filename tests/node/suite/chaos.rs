// SPDX-License-Identifier: Apache-2.0
//! Seeded chaos: one operation after another, on a cluster whose pods start and stop all the time.
//!
//! `RDMANET_CHAOS_MINUTES` sets how long (default 2), `RDMANET_CHAOS_SEED` repeats the choices of a run, though not the scheduler's.
//!
//! An operation does not wait until the effects of the earlier one are over. Both nodes run whenever an operation begins.

use crate::cluster::{Cluster, NODES, timed};
use crate::dranet;
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
/// The Deployment of the product beside rdmanet.
const PEER: &str = "peer";

/// What runs beside rdmanet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    Whereabouts,
    Dranet,
}

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
    beside: Beside,
    /// What was seen after an operation: addresses that two pods of whereabouts had, or faults of whole ports.
    seen: BTreeSet<String>,
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
    ("kill of the container runtime", |chaos| chaos.kill_runtime()),
    ("kill of the container runtime", |chaos| chaos.kill_runtime()),
    ("kill of kubelet", |chaos| chaos.kill_kubelet()),
    ("static pod", |chaos| chaos.static_pod()),
    ("static pod", |chaos| chaos.static_pod()),
    ("update of the agents", |chaos| chaos.update_agents()),
    ("drain", |chaos| chaos.drain()),
    ("power failure", |chaos| chaos.power()),
    ("deleted Node", |chaos| chaos.delete_node()),
];

/// Further operations beside dranet.
const OF_DRIVERS: &[Operation] = &[
    ("kill of agent and driver", |chaos| chaos.kill_drivers()),
    ("kill of agent and driver", |chaos| chaos.kill_drivers()),
];

impl Chaos<'_> {
    fn node(&mut self) -> &'static str {
        NODES[self.random.usize(..NODES.len())]
    }

    /// The Deployments: ours, and that of the product beside it.
    fn deployments(&self) -> &'static [&'static str] {
        if self.beside == Beside::Nothing {
            &["chaos"]
        } else {
            &["chaos", PEER]
        }
    }

    fn operations(&self) -> Vec<Operation> {
        let further = if self.beside == Beside::Dranet {
            OF_DRIVERS
        } else {
            &[]
        };
        [OPERATIONS, further].concat()
    }

    fn scale_to(&self, replicas: usize) {
        for name in self.deployments() {
            self.cluster
                .kubectl(&format!("scale deployment/{name} --replicas={replicas}"));
        }
    }

    fn scale(&mut self) {
        let most = if self.beside == Beside::Dranet {
            dranet::MOST
        } else {
            MOST
        };
        let replicas = self.random.usize(..=most);
        self.scale_to(replicas);
    }

    /// Deletes a pod of the Deployment or of the `StatefulSet`, and one of the product beside it.
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

    fn kill_runtime(&mut self) {
        let node = self.node();
        kill(self.cluster, node, self.cluster.runtime);
    }

    fn kill_kubelet(&mut self) {
        let node = self.node();
        kill(self.cluster, node, "kubelet");
    }

    /// Removes the static pod of a node if it has one, and adds one otherwise.
    fn static_pod(&mut self) {
        let manifest = single("static", network(self.beside), None).to_string();
        let script = "cd /var/machine/pods && { rm chaos.json 2>/dev/null || { printf %s \"$1\" >../new && mv ../new chaos.json; }; }";
        let node = self.node();
        self.cluster.at(node, &["sh", "-c", script, "sh", &manifest]);
    }

    fn update_agents(&mut self) {
        self.cluster.kubectl(
            "-n rdmanet-system rollout restart daemonset/rdmanet-agent deployment/rdmanet-controller",
        );
        let peer = match self.beside {
            Beside::Nothing => return,
            Beside::Whereabouts => "whereabouts",
            Beside::Dranet => "dranet",
        };
        self.cluster
            .kubectl(&format!("-n kube-system rollout restart daemonset/{peer}"));
    }

    /// Kills the agent and dranet on a node. The kubelet starts both again.
    fn kill_drivers(&mut self) {
        let node = self.node();
        let script = "kill -9 $(pidof rdmanet-agent dranet) 2>/dev/null; true";
        self.cluster.at(node, &["sh", "-c", script]);
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
            let operations = self.operations();
            let (name, operation) = operations[self.random.usize(..operations.len())];
            println!("chaos: {name}");
            operation(self);
            *self.done.entry(name).or_default() += 1;
            no_duplicate(self.cluster);
            match self.beside {
                Beside::Nothing => {}
                Beside::Whereabouts => self.seen.extend(peers::duplicates(self.cluster)),
                Beside::Dranet => self.seen.extend(dranet::faults(self.cluster)),
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
        ] {
            self.cluster.rolled_out(namespace, name);
        }
        if self.beside != Beside::Dranet {
            self.cluster.rolled_out("default", "statefulset/db");
        }
    }
}

/// The network of the Deployment and of the static pods.
fn network(beside: Beside) -> &'static str {
    if beside == Beside::Dranet {
        dranet::NETWORK
    } else {
        "ib-ipoib"
    }
}

/// Starts the pods, and installs what runs beside rdmanet. Returns the number of pods of the `StatefulSet`.
fn start(cluster: &Cluster, beside: Beside) -> usize {
    match beside {
        Beside::Nothing => {}
        Beside::Whereabouts => {
            peers::install(cluster);
            cluster.apply(&[deployment(PEER, peers::NETWORK, END, None)]);
        }
        Beside::Dranet => {
            dranet::install(cluster);
            cluster.apply(&[dranet::deployment(PEER, END)]);
        }
    }
    cluster.apply(&[deployment("chaos", network(beside), END, None)]);
    if beside == Beside::Dranet {
        // Its pods would have children of ports that pods have whole.
        return 0;
    }
    databases(cluster).len()
}

/// Reports what the product beside rdmanet has with its pods running, and removes its pods.
fn end_of_peer(chaos: &Chaos) {
    match chaos.beside {
        Beside::Nothing => return,
        Beside::Whereabouts => {
            println!("did: whereabouts gave two pods at once each of {:?}", chaos.seen);
            peers::end(chaos.cluster, PEER);
        }
        Beside::Dranet => {
            println!("did: seen after an operation: {:#?}", chaos.seen);
            dranet::end(chaos.cluster, PEER);
        }
    }
    remove(chaos.cluster, &format!("deployment/{PEER}"));
}

fn chaos(beside: Beside) {
    let seed = number("RDMANET_CHAOS_SEED", fastrand::u64(..));
    let minutes = number("RDMANET_CHAOS_MINUTES", 2);
    println!("did: chaos with seed {seed} for {minutes} minutes");
    let cluster = Cluster::lock();
    let databases = start(&cluster, beside);
    let mut chaos = Chaos {
        cluster: &cluster,
        random: fastrand::Rng::with_seed(seed),
        done: BTreeMap::new(),
        beside,
        seen: BTreeSet::new(),
    };
    chaos.run(Instant::now() + Duration::from_secs(minutes * 60));
    println!("did: {:?}", chaos.done);
    chaos.end();
    timed("all records of the living pods", || {
        agree(&cluster, END + databases);
    });
    end_of_peer(&chaos);
    remove(&cluster, "deployment/chaos");
    if databases > 0 {
        remove_databases(&cluster);
    }
    timed("the end of all records", || nothing_left(&cluster));
    match beside {
        Beside::Nothing => {}
        Beside::Whereabouts => peers::left(&cluster),
        Beside::Dranet => dranet::left(&cluster),
    }
}

#[test]
fn chaos_ends_without_a_duplicate_and_without_a_leak() {
    chaos(Beside::Nothing);
}

#[test]
fn chaos_beside_whereabouts_ends_without_a_duplicate_and_without_a_leak_of_rdmanet() {
    chaos(Beside::Whereabouts);
}

/// Needs the cluster of `tests/node/up --rails 8`.
#[test]
fn chaos_beside_dranet_ends_with_every_port_of_rdmanet_on_its_node() {
    chaos(Beside::Dranet);
}
