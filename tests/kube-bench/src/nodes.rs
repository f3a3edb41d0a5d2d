// SPDX-License-Identifier: Apache-2.0
//! Nodes whose agents run as they do in a cluster, with socket, metrics and all.

use agent::api::IpPool;
use agent::daemon;
use bench_kube::agents;
use cluster::install::until;
use cluster::{Identity, Server};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The pool of all nodes.
pub(crate) const POOL: &str = "rail0";

/// The nodes; their agents end with [`Nodes::end`].
pub(crate) struct Nodes {
    /// Where each keeps its leases.
    pub(crate) data: Vec<PathBuf>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Nodes {
    /// `count` nodes below `dir`, each with a block that has room for all that is measured at once.
    pub(crate) async fn start(server: &Server, dir: &Path, count: usize) -> Self {
        let admin = server.admin().await;
        let pool: IpPool = serde_json::from_value(json!({
            "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPPool", "metadata": { "name": POOL },
            "spec": {
                "ranges": [{ "subnet": "10.60.0.0/16", "gateway": "none" }],
                "blockSize": { "v4": 1024 },
                "cooldownSeconds": 0,
            },
        }))
        .unwrap();
        let pools: Api<IpPool> = Api::all(admin.clone());
        pools.create(&PostParams::default(), &pool).await.unwrap();
        let mut nodes = Self {
            data: Vec::new(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        for i in 0..count {
            let name = format!("node-{i:02}");
            let (data, socket) = (dir.join(&name), dir.join(format!("{name}.sock")));
            let flags = ["--socket", socket.to_str().unwrap(), "--listen", "127.0.0.1:0"];
            let identity = Identity::new(&admin, &name).await;
            let config = agents::config(&name, &data, &flags);
            let client = agents::client(identity.config(server)).await;
            let stop = nodes.stop.clone();
            nodes
                .tasks
                .spawn(async move { daemon::run(config, client, stop).await.unwrap() });
            nodes.data.push(data);
        }
        for data in &nodes.data {
            until(&format!("{} has a block", data.display()), async || {
                has_block(data)
            })
            .await;
        }
        nodes
    }

    /// Ends the agents.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

fn has_block(data: &Path) -> bool {
    let file = std::fs::read(data.join("pools").join(POOL).join("pool.json"));
    let file: Value = file.map_or(Value::Null, |file| serde_json::from_slice(&file).unwrap());
    file["blocks"].as_array().is_some_and(|blocks| !blocks.is_empty())
}
