// SPDX-License-Identifier: Apache-2.0
//! Nodes with agents as in a cluster, with socket and metrics.

use crate::agents;
use agent::daemon;
use api::IpPool;
use api::supervisor::Supervisor;
use apiserver::install::until;
use apiserver::{Identity, Server, objects};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The nodes. [`Nodes::end`] ends their agents.
pub struct Nodes {
    /// Their names.
    pub names: Vec<String>,
    /// The directories of the nodes' leases.
    pub data: Vec<PathBuf>,
    /// The sockets of the agents.
    pub sockets: Vec<PathBuf>,
    identities: Vec<Identity>,
    /// Ends the agent of one node.
    stops: Vec<CancellationToken>,
    admin: Client,
    tasks: TaskTracker,
    stop: CancellationToken,
    controller: Supervisor,
}

/// Creates the pool `name` with one range, in blocks of `block` addresses.
pub async fn pool(server: &Server, name: &str, subnet: &str, block: u32) {
    let spec = json!({
        "ranges": [{ "subnet": subnet, "gateway": "none" }],
        "blockSize": { "v4": block },
        "cooldownSeconds": 0,
    });
    let pools: Api<IpPool> = Api::all(server.admin().await);
    objects::create(&pools, objects::pool(name, &spec)).await;
}

/// The name of the node with this number.
pub fn name(number: usize) -> String {
    format!("node-{number:02}")
}

impl Nodes {
    /// `count` nodes below `dir`, each with a block of the existing pool `pool`. `more`: additional flags of the agents and
    /// of the controller.
    pub async fn start(server: &Server, dir: &Path, pool: &str, count: usize, more: &[&str]) -> Self {
        let admin = server.admin().await;
        let stop = CancellationToken::new();
        let mut nodes = Self {
            names: Vec::new(),
            data: Vec::new(),
            sockets: Vec::new(),
            identities: Vec::new(),
            stops: Vec::new(),
            admin: admin.clone(),
            tasks: TaskTracker::new(),
            controller: Supervisor::new(stop.clone()),
            stop,
        };
        agents::controller(server, more, &nodes.controller).await;
        for i in 0..count {
            let name = name(i);
            let (data, socket) = (dir.join(&name), dir.join(format!("{name}.sock")));
            let own = ["--socket", socket.to_str().unwrap(), "--listen", "127.0.0.1:0"];
            let flags = [&own[..], more].concat();
            let identity = Identity::new(&admin, &name).await;
            let config = agents::config(&name, &data, &flags);
            let client = agents::clients(identity.config(server)).await;
            let stop = nodes.stop.child_token();
            nodes.stops.push(stop.clone());
            nodes
                .tasks
                .spawn(async move { daemon::run(config, client, stop).await.unwrap() });
            nodes.identities.push(identity);
            nodes.names.push(name);
            nodes.data.push(data);
            nodes.sockets.push(socket);
        }
        for data in &nodes.data {
            until(&format!("{} has a block", data.display()), async || {
                has_block(data, pool)
            })
            .await;
        }
        nodes
    }

    /// Ends the agent of the node `i`. The directory with the leases stays.
    pub async fn stop_agent(&self, i: usize) {
        self.stops[i].cancel();
        let socket = &self.sockets[i];
        until("the agent has ended", async || !socket.exists()).await;
    }

    /// Deletes the Node `i` and its agent's pod.
    pub async fn delete(&self, i: usize) {
        self.identities[i].leave(&self.admin).await;
    }

    /// Ends the agents.
    pub async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.controller.wait().await;
    }
}

fn has_block(data: &Path, pool: &str) -> bool {
    let file = std::fs::read(data.join("pools").join(pool).join("pool.json"));
    let file: Value = file.map_or(Value::Null, |file| serde_json::from_slice(&file).unwrap());
    file["blocks"].as_array().is_some_and(|blocks| !blocks.is_empty())
}
