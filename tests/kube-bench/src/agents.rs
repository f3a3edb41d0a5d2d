// SPDX-License-Identifier: Apache-2.0
//! Agents in this process: the daemon's own code, told what the daemon is told.

use agent::config::Config;
use clap::Parser;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::path::Path;

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    config: Config,
}

/// The defaults of the daemon, for the node called `node` with its leases below `data`, and `more` flags.
pub fn config(node: &str, data: &Path, more: &[&str]) -> Config {
    let data = data.to_str().unwrap();
    let flags = ["rdmanet-agent", "--node", node, "--data-dir", data];
    Flags::parse_from(flags.iter().chain(more)).config
}

/// The daemon's client.
pub async fn client(config: Kubeconfig) -> Client {
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
    agent::client::new(config.unwrap()).unwrap()
}
