// SPDX-License-Identifier: Apache-2.0
//! rdma-ipam: a CNI IPAM plugin that allocates addresses from ranges with exclusions, for one node.
//!
//! ```text
//! stdin -> config (valid Config) -> allocator (decides) -> store (takes effect) -> stdout
//! ```
//!
//! Invariant: an address belongs to at most one attachment of a network, or of several networks if their
//! configuration promises that ([`config::Space`]). An ADD that fails leaves nothing.
//! The plugin never opens the container's namespace.
//!
//! Floors: a module imports only modules of lower floors (`tests/floors`).
//!
//! ```text
//! pool_mode                     | the verbs with pools
//! add check del gc status       | the verbs
//! agent                         | asks the agent of the node
//! store
//! allocator                     | pure
//! config
//! pool                          | what the agent writes for the plugin
//! range
//! clock interval text
//! ```

pub mod agent;
pub mod allocator;
pub mod clock;
pub mod config;
pub mod interval;
pub mod pool;
pub mod range;
pub mod store;
pub mod text;

mod add;
mod check;
mod del;
mod gc;
mod pool_mode;
mod status;
#[cfg(test)]
mod testing;

use agent::Client;
use clock::{Clock, KernelClock};
use common::cni::dispatch::{Call, Plugin};
use common::cni::{Attachment, CniResult, Error, GcConf};
use config::PoolPlace;
use pool_mode::Pools;
use std::path::Path;
use std::time::Duration;
use store::{Disk, LOCK_WAIT, Node, NodeDisk};

/// The plugin on a node.
#[derive(Debug)]
pub struct RdmaIpam<D = NodeDisk, C = KernelClock> {
    /// The node's file system.
    pub disk: D,
    /// The node's clock.
    pub clock: C,
    /// How long a call waits for another call on the same network.
    pub lock_wait: Duration,
    /// The client of the node's agent, for networks of pools.
    pub agent: Client,
}

impl Default for RdmaIpam {
    fn default() -> Self {
        Self {
            disk: NodeDisk,
            clock: KernelClock,
            lock_wait: LOCK_WAIT,
            agent: Client::default(),
        }
    }
}

impl<D: Disk, C: Clock> RdmaIpam<D, C> {
    fn node(&self) -> Node<'_> {
        Node {
            disk: &self.disk,
            clock: &self.clock,
            lock_wait: self.lock_wait,
        }
    }

    /// The pools of `call`; `None` if its network uses ranges of this node.
    fn pools<'n>(&'n self, node: &'n Node<'n>, call: &Call) -> Result<Option<Pools<'n>>, Error> {
        Ok(PoolPlace::read(&call.conf)?.map(|place| Pools {
            node,
            agent: &self.agent,
            place,
            reader: call.reader,
        }))
    }
}

impl<D: Disk, C: Clock> Plugin for RdmaIpam<D, C> {
    fn about(&self) -> &'static str {
        concat!(
            "rdma-ipam ",
            env!("CARGO_PKG_VERSION"),
            " (rdmanet): CNI IPAM from ranges with exclusions, leases kept on this node"
        )
    }

    fn add(&self, call: &Call, attachment: &Attachment, netns: &Path) -> Result<CniResult, Error> {
        let node = self.node();
        match self.pools(&node, call)? {
            Some(pools) => pool_mode::add(&pools, call, attachment, netns),
            None => add::add(&node, call, attachment, netns),
        }
    }

    fn del(&self, call: &Call, attachment: &Attachment, _netns: Option<&Path>) -> Result<(), Error> {
        let node = self.node();
        match self.pools(&node, call) {
            Ok(Some(pools)) => pool_mode::del(&pools, call, attachment),
            Ok(None) => del::del(&node, call, attachment),
            // ADD refuses such a place, so nothing exists. An error would keep the pod from being deleted.
            Err(error) => {
                tracing::warn!(%attachment, error = %error.msg, "nothing to release: ADD refuses such a configuration");
                Ok(())
            }
        }
    }

    fn check(&self, call: &Call, attachment: &Attachment, _netns: &Path) -> Result<(), Error> {
        let node = self.node();
        match self.pools(&node, call)? {
            Some(pools) => pool_mode::check(&pools, call, attachment),
            None => check::check(&node, call, attachment),
        }
    }

    fn gc(&self, call: &Call, gc: &GcConf) -> Result<(), Error> {
        let node = self.node();
        match self.pools(&node, call)? {
            Some(pools) => pool_mode::gc(&pools, gc),
            None => gc::gc(&node, call, gc),
        }
    }

    fn status(&self, call: &Call) -> Result<(), Error> {
        let node = self.node();
        match self.pools(&node, call)? {
            Some(pools) => pool_mode::status(&pools, call),
            None => status::status(&node, call),
        }
    }
}
