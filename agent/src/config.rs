// SPDX-License-Identifier: Apache-2.0
//! The configuration of the agent. Each flag has an environment variable, for a `DaemonSet`.

mod link_scope;

pub use link_scope::{LinkScope, LinkScopeError};

use api::flags::DaemonFlags;
use clap::Parser;
use common::collector::{SOCKET, SOCKET_VARIABLE};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// The flags of the daemon.
#[derive(Parser, Clone, Debug)]
pub struct Config {
    /// The name of this node (`spec.nodeName` of the agent's pod)
    #[arg(long, env = "RDMANET_NODE")]
    pub node: String,
    /// The directory of rdma-ipam's leases on this node
    #[arg(long, env = "RDMANET_DATA_DIR", default_value = ipam::config::DATA_DIR)]
    pub data_dir: PathBuf,
    /// The Unix socket on which the agent serves the plugins
    #[arg(long, env = "RDMANET_AGENT_SOCKET", default_value = ipam::agent::SOCKET)]
    pub socket: PathBuf,
    /// The Unix socket of the node's collector
    #[arg(long, env = SOCKET_VARIABLE, default_value = SOCKET)]
    pub collector: PathBuf,
    /// The address of /metrics, /healthz and /readyz
    #[arg(long, env = "RDMANET_LISTEN", default_value = "127.0.0.1:9471")]
    pub listen: SocketAddr,
    /// How long a block must be unused before it is returned
    #[arg(long, env = "RDMANET_IDLE", default_value = "5m", value_parser = humantime::parse_duration)]
    pub idle: Duration,
    /// Which links the Node's condition rdmanet.io/LinksReady is about: rdma, the names of links (ib*,bond0), or none
    #[arg(long, env = "RDMANET_LINKS", default_value = "rdma")]
    pub links: LinkScope,
    /// The flags of both daemons
    #[command(flatten)]
    pub daemon: DaemonFlags,
}

impl Config {
    /// The maximum age of an answer of the API server that the agent acts upon. It is far shorter than the quarantine, so that
    /// the agent never writes a block into this node's files after another node may have claimed it.
    pub fn answer_age(&self) -> Duration {
        // Also shorter than the time until the pod garbage collector deletes the agent's Pod, 40 s after the Node object is gone.
        (self.daemon.quarantines.unused / 4).min(MINUTE / 3)
    }

    /// How often this node's registration is read.
    pub fn confirm_every(&self) -> Duration {
        // An agent must report its pods before the pod garbage collector deletes its own Pod, 40 s after the Node object is gone.
        (self.daemon.quarantines.unused / 5).clamp(Duration::from_secs(1), MINUTE / 2)
    }
}

#[cfg(test)]
mod tests;
