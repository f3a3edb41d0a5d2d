// SPDX-License-Identifier: Apache-2.0
//! The flags of the controller. Each has an environment variable, for a `Deployment`.

use api::flags::DaemonFlags;
use clap::Parser;
use std::net::SocketAddr;

/// Runs once per cluster: accepts pools, counts addresses, and frees the blocks and addresses of gone nodes.
#[derive(Parser, Clone, Debug)]
#[command(name = "rdmanet-controller", version)]
pub struct Config {
    /// The name of this replica (`metadata.name` of its pod)
    #[arg(long, env = "RDMANET_IDENTITY")]
    pub identity: String,
    /// The address of /metrics, /healthz and /readyz
    #[arg(long, env = "RDMANET_LISTEN", default_value = "[::]:9472")]
    pub listen: SocketAddr,
    /// The namespace of the controller's Lease
    #[arg(long, env = "RDMANET_NAMESPACE", default_value = "rdmanet-system")]
    pub namespace: String,
    /// The flags of both daemons
    #[command(flatten)]
    pub daemon: DaemonFlags,
}

#[cfg(test)]
mod tests;
