// SPDX-License-Identifier: Apache-2.0
//! The flags of the controller. Each has an environment variable, for a `Deployment`.

use api::pace;
use api::quarantine::Quarantines;
use clap::Args;
use std::net::SocketAddr;
use std::time::Duration;

/// Accepts pools, counts addresses, and frees the blocks and addresses of gone nodes, for the whole cluster.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// The name of this replica (`metadata.name` of its pod)
    #[arg(long, env = "RDMANET_IDENTITY")]
    pub identity: String,
    /// The address of /metrics, /healthz and /readyz
    #[arg(long, env = "RDMANET_LISTEN", default_value = "0.0.0.0:9472")]
    pub listen: SocketAddr,
    /// The namespace of the controller's Lease
    #[arg(long, env = "RDMANET_NAMESPACE", default_value = "rdmanet-system")]
    pub namespace: String,
    /// How long the blocks and addresses of a deleted node are kept from other nodes
    #[command(flatten)]
    pub quarantines: Quarantines,
    /// The minimum time between the two observations that prove an address unused
    #[arg(long, env = "RDMANET_OBSERVATION_INTERVAL", default_value = "30s", value_parser = humantime::parse_duration)]
    pub observation_interval: Duration,
    /// How often the controller reconciles all pools
    #[arg(long, env = "RDMANET_RECONCILE_INTERVAL", default_value = "2s", value_parser = pace::period)]
    pub reconcile_interval: Duration,
    /// The minimum time between two writes of a pool's utilization
    #[arg(long, env = "RDMANET_REPORT_INTERVAL", default_value = "30s", value_parser = pace::period)]
    pub report_interval: Duration,
    /// error, warn, info, debug or trace
    #[arg(long, env = "RDMANET_LOG", default_value = "info")]
    pub log: String,
}

impl Config {
    /// The minimum time between two writes of the utilization of a pool with this many blocks.
    pub fn write_interval(&self, blocks: i64) -> Duration {
        pace::report_interval(self.report_interval, blocks)
    }
}
