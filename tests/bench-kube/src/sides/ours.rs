// SPDX-License-Identifier: Apache-2.0
//! `rdma-ipam` with a pool, agents and a controller.

use super::{Given, Sandbox, Side, Witness};
use crate::call::Call;
use crate::exact::Exact;
use crate::nodes::Nodes;
use crate::witness::{Assignment, Difference, compare, uncovered};
use api::{IpAddress, IpBlock, IpPool};
use apiserver::identity::{ACCOUNT, NAMESPACE};
use apiserver::{Server, objects};
use ipnetwork::IpNetwork;
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The pool of all nodes.
const POOL: &str = "bench";

/// The plugin with its nodes.
pub struct Ours {
    plugin: PathBuf,
    nodes: Nodes,
    admin: Client,
    range: Exact,
    addresses: u32,
    /// The nodes whose Node object is deleted.
    deleted: Mutex<BTreeSet<usize>>,
}

impl Ours {
    /// Creates a pool with so many addresses, and starts the agents of the nodes. Other settings of the pool are the
    /// defaults, except the size of the blocks if there are fewer than 64 addresses per node. `more`: additional flags of
    /// the agents and of the controller.
    pub async fn start(
        server: &Server,
        dir: &Path,
        plugin: &Path,
        (nodes, addresses): (u32, u32),
        more: &[&str],
    ) -> Self {
        let admin = server.admin().await;
        let exact = Exact::new(Ipv4Addr::new(10, 61, 0, 0), addresses);
        let exclude: Vec<String> = exact.excluded().into_iter().collect();
        let spec = json!({
            "ranges": [{ "subnet": exact.subnet.to_string(), "gateway": "none", "exclude": exclude }],
            "blockSize": { "v4": 1 << addresses.div_ceil(nodes).ilog2().min(6) },
        });
        let pools: Api<IpPool> = Api::all(admin.clone());
        objects::create(&pools, objects::pool(POOL, &spec)).await;
        Self {
            plugin: plugin.to_owned(),
            nodes: Nodes::start(server, dir, POOL, usize::try_from(nodes).unwrap(), more).await,
            admin,
            range: exact,
            addresses,
            deleted: Mutex::default(),
        }
    }

    /// Ends the agent of a node.
    pub async fn stop(&self, node: usize) {
        self.nodes.stop_agent(node).await;
    }

    /// Deletes a Node whose agent has ended.
    pub async fn delete(&self, node: usize) {
        self.nodes.delete(node).await;
        self.deleted.lock().unwrap().insert(node);
    }

    /// The addresses with a lease or an `IPAddress`. All addresses in the blocks of a deleted Node count instead of its
    /// leases, because no other node allocates any of them.
    pub async fn recorded(&self) -> BTreeSet<IpAddr> {
        let (blocks, addresses) = self.objects().await;
        let mut recorded: BTreeSet<IpAddr> = addresses
            .iter()
            .map(|object| object.spec.address.parse().unwrap())
            .collect();
        let deleted = self.deleted.lock().unwrap().clone();
        for (i, data) in self.nodes.data.iter().enumerate() {
            if deleted.contains(&i) {
                let owned = blocks
                    .iter()
                    .filter(|block| block.spec.owner.node == self.nodes.names[i]);
                let cidrs = owned.map(|block| block.spec.cidr.parse::<IpNetwork>().unwrap());
                let usable = |address: &IpAddr| {
                    (IpAddr::from(self.range.first())..=self.range.last.into()).contains(address)
                };
                recorded.extend(cidrs.flat_map(|cidr| cidr.iter()).filter(usable));
            } else {
                recorded.extend(leases(data).into_iter().map(|lease| lease.address));
            }
        }
        recorded
    }

    /// Ends the agents.
    pub async fn end(self) {
        self.nodes.end().await;
    }

    /// The leases on all nodes.
    fn leases(&self) -> Vec<Assignment> {
        self.nodes.data.iter().flat_map(|data| leases(data)).collect()
    }

    async fn objects(&self) -> (Vec<IpBlock>, Vec<IpAddress>) {
        let (blocks, addresses) = (Api::all(self.admin.clone()), Api::all(self.admin.clone()));
        (super::list(blocks).await, super::list(addresses).await)
    }
}

impl Side for Ours {
    fn title(&self) -> &'static str {
        "rdma-ipam"
    }

    fn user(&self) -> String {
        format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}")
    }

    fn addresses(&self) -> u32 {
        self.addresses
    }

    fn call(&self, verb: &'static str, sandbox: Sandbox<'_>) -> Call {
        let ipam = json!({ "type": "rdma-ipam", "pool": POOL, "dataDir": self.nodes.data[sandbox.node] });
        Call {
            agent: Some(self.nodes.sockets[sandbox.node].clone()),
            ..sandbox.call(&self.plugin, verb, &ipam)
        }
    }

    async fn witnesses(&self, given: &[Given]) -> Vec<Witness> {
        let results: Vec<Assignment> = given.iter().map(|given| given.assignment.clone()).collect();
        let (blocks, addresses) = self.objects().await;
        let on_nodes: Vec<_> = given
            .iter()
            .map(|given| (self.nodes.names[given.node].as_str(), given.assignment.address))
            .collect();
        let known = |object: &&IpAddress| {
            let (node, address) = (&object.spec.node.node, &object.spec.address);
            let same = |&(on, given): &(&str, IpAddr)| on == node && given.to_string() == *address;
            on_nodes.iter().any(same)
        };
        vec![
            Witness {
                name: "stores",
                difference: compare(&results, &self.leases()),
            },
            Witness {
                name: "IPBlocks and IPAddresses",
                difference: Difference {
                    unrecorded: uncovered(&on_nodes, &blocks, &addresses),
                    leaked: addresses.len() - addresses.iter().filter(known).count(),
                },
            },
        ]
    }
}

/// The leases of a node in its files: one file per attachment, with the result of ADD in its first line.
fn leases(data: &Path) -> Vec<Assignment> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let directory = data.join(format!("pools/{POOL}/boot-{}/leases", boot.trim()));
    let files = std::fs::read_dir(directory).into_iter().flatten();
    // The agent may remove a file meanwhile.
    let texts = files.filter_map(|file| std::fs::read_to_string(file.unwrap().path()).ok());
    let lease = |text: String| {
        let line: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        let address = line["result"]["ips"][0]["address"].as_str().unwrap();
        Assignment {
            address: address.split('/').next().unwrap().parse().unwrap(),
            pod: line["pod"].as_str().unwrap().to_owned(),
        }
    };
    texts.map(lease).collect()
}
