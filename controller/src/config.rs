// SPDX-License-Identifier: Apache-2.0
//! What the controller is told when it starts: each flag has an environment variable, for a `Deployment`.

use api::pace;
use api::quarantine::{AfterUse, Quarantines};
use clap::Args;
use std::net::SocketAddr;
use std::time::Duration;

/// Accepts pools, counts them, and ends what gone nodes have left, for the whole cluster.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// The name of this process among the replicas (`metadata.name` of its pod)
    #[arg(long, env = "RDMANET_IDENTITY")]
    pub identity: String,
    /// Where /metrics, /healthz and /readyz are served
    #[arg(long, env = "RDMANET_LISTEN", default_value = "0.0.0.0:9472")]
    pub listen: SocketAddr,
    /// The namespace of the controller's Lease
    #[arg(long, env = "RDMANET_NAMESPACE", default_value = "rdmanet-system")]
    pub namespace: String,
    /// For how long nobody is given the blocks of a node that is gone, at least 2m
    #[arg(long, env = "RDMANET_QUARANTINE", default_value = "10m", value_parser = humantime::parse_duration)]
    pub quarantine: Duration,
    /// The same where the node's last report had addresses in use, as a time or `never`. Set a time only where a Node object is deleted
    /// only after its machine was switched off, as cloud controllers do
    #[arg(long, env = "RDMANET_QUARANTINE_IN_USE", default_value = "never")]
    pub quarantine_in_use: AfterUse,
    /// Lets tests use a quarantine below two minutes, with which one address may get two pods
    #[arg(long, hide = true)]
    pub short_quarantine_for_tests: bool,
    /// How far apart two observations are that together prove an address unused
    #[arg(long, env = "RDMANET_OBSERVE", default_value = "30s", value_parser = humantime::parse_duration)]
    pub observe: Duration,
    /// How often the controller looks at all pools when nothing calls for it
    #[arg(long, env = "RDMANET_TICK", default_value = "2s", value_parser = pace::period)]
    pub tick: Duration,
    /// How often, at most, a pool's numbers are written
    #[arg(long, env = "RDMANET_MIRROR", default_value = "30s", value_parser = pace::period)]
    pub mirror: Duration,
    /// error, warn, info, debug or trace
    #[arg(long, env = "RDMANET_LOG", default_value = "info")]
    pub log: String,
}

impl Config {
    /// How long the blocks and addresses of a gone node are kept from other nodes.
    pub fn quarantines(&self) -> Quarantines {
        Quarantines {
            unused: self.quarantine,
            in_use: self.quarantine_in_use,
            short_for_tests: self.short_quarantine_for_tests,
        }
    }

    /// How often, at most, the numbers of a pool with so many blocks are written.
    pub fn tell_every(&self, blocks: i64) -> Duration {
        pace::tell_every(self.mirror, blocks)
    }
}
