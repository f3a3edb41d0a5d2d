// SPDX-License-Identifier: Apache-2.0
//! Agents and controller in this process: the code and the flags of the daemons.

use agent::config::Config;
use api::client::Clients;
use api::supervisor::Supervisor;
use apiserver::Server;
use clap::Parser;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::path::Path;

/// The daemon's default configuration for the node `node`, with its leases below `data` and additional flags.
pub fn config(node: &str, data: &Path, more: &[&str]) -> Config {
    let data = data.to_str().unwrap();
    let flags = ["rdmanet-agent", "--node", node, "--data-dir", data];
    Config::parse_from(flags.iter().chain(more))
}

/// Starts a controller of `server` with the default configuration of the process and additional flags.
pub async fn controller(server: &Server, more: &[&str], supervisor: &Supervisor) {
    let token =
        apiserver::identity::controller_token(&server.admin().await, "rdmanet-controller-bench").await;
    let flags = ["rdmanet-controller", "--identity", "bench"];
    let config = controller::config::Config::parse_from(flags.iter().chain(more));
    controller::daemon::start(config, client(server.config_with(&token)).await, supervisor);
}

/// A client with the administrator's rights that survives long pauses. The connection of kube's own client breaks after
/// five idle minutes.
pub async fn admin(server: &Server) -> Client {
    client(Kubeconfig::read_from(server.kubeconfig()).unwrap()).await
}

/// The daemon's clients.
pub async fn clients(config: Kubeconfig) -> Clients {
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
    Clients::new(&config.unwrap()).unwrap()
}

/// One of the daemon's clients.
pub async fn client(config: Kubeconfig) -> Client {
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
    api::client::new(config.unwrap()).unwrap()
}
