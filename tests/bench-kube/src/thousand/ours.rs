// SPDX-License-Identifier: Apache-2.0
//! `rdma-ipam` with a pool, agents and a controller.

use crate::{Given, Scale, Side, Witness, conf};
use api::{IpAddress, IpBlock, IpPool};
use apiserver::identity::{ACCOUNT, NAMESPACE};
use apiserver::{Server, objects};
use bench_kube::call::Call;
use bench_kube::exact::Exact;
use bench_kube::nodes::Nodes;
use bench_kube::witness::{Assignment, Difference, compare, uncovered};
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

/// The pool of all nodes.
const POOL: &str = "thousand";

/// The plugin with its nodes.
pub(crate) struct Ours {
    plugin: PathBuf,
    nodes: Nodes,
    admin: Client,
    addresses: u32,
}

impl Ours {
    /// Creates a pool with an address for each pod, and starts the agents. Other settings of the pool are the defaults,
    /// except the size of the blocks with fewer than 64 pods on a node.
    pub(crate) async fn start(server: &Server, dir: &Path, plugin: &Path, scale: Scale) -> Self {
        let admin = server.admin().await;
        let exact = Exact::new(Ipv4Addr::new(10, 61, 0, 0), scale.pods);
        let exclude: Vec<String> = exact.excluded().into_iter().collect();
        let spec = json!({
            "ranges": [{ "subnet": exact.subnet.to_string(), "gateway": "none", "exclude": exclude }],
            "blockSize": { "v4": 1 << scale.each().ilog2().min(6) },
        });
        let pools: Api<IpPool> = Api::all(admin.clone());
        objects::create(&pools, objects::pool(POOL, &spec)).await;
        Self {
            plugin: plugin.to_owned(),
            nodes: Nodes::start(server, dir, POOL, usize::try_from(scale.nodes).unwrap()).await,
            admin,
            addresses: scale.pods,
        }
    }

    /// Ends the agents.
    pub(crate) async fn end(self) {
        self.nodes.end().await;
    }

    /// The leases on all nodes.
    fn leases(&self) -> Vec<Assignment> {
        self.nodes.data.iter().flat_map(|data| leases(data)).collect()
    }

    async fn objects(&self) -> (Vec<IpBlock>, Vec<IpAddress>) {
        let (blocks, addresses) = (Api::all(self.admin.clone()), Api::all(self.admin.clone()));
        let all = ListParams::default();
        (
            blocks.list(&all).await.unwrap().items,
            addresses.list(&all).await.unwrap().items,
        )
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

    fn call(&self, verb: &'static str, node: usize, pod: &str, sandbox: &str) -> Call {
        Call {
            program: self.plugin.clone(),
            verb,
            id: sandbox.to_owned(),
            pod: pod.to_owned(),
            conf: conf(&json!({ "type": "rdma-ipam", "pool": POOL, "dataDir": self.nodes.data[node] })),
            agent: Some(self.nodes.sockets[node].clone()),
            node: None,
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
    let folder = data.join(format!("pools/{POOL}/boot-{}/leases", boot.trim()));
    let files = std::fs::read_dir(folder).into_iter().flatten();
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
