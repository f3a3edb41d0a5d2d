// SPDX-License-Identifier: Apache-2.0
//! rdma-ipam: a CNI IPAM plugin that hands out addresses from ranges with exclusions, for one node.
//!
//! ```text
//! stdin -> config (Config, cannot be invalid) -> allocator (decides) -> store (takes effect) -> stdout
//! ```
//!
//! Holds always: an address belongs to at most one attachment of a network; an ADD that fails leaves nothing; the
//! container's namespace is never opened.

pub mod agent;
pub mod allocator;
pub mod clock;
pub mod config;
pub mod interval;
pub mod pool;
pub mod range;
pub mod store;

mod add;
mod check;
mod del;
mod gc;
mod status;
#[cfg(test)]
mod testing;

use clock::{Clock, KernelClock};
use common::cni::dispatch::{Call, Plugin};
use common::cni::{Attachment, CniResult, Error, GcConf};
use std::path::Path;
use std::time::Duration;
use store::{Disk, LOCK_WAIT, Node, NodeDisk};

/// The plugin, on a node.
#[derive(Debug)]
pub struct RdmaIpam<D = NodeDisk, C = KernelClock> {
    /// The node's file system.
    pub disk: D,
    /// The node's clock.
    pub clock: C,
    /// How long a call waits for another one on the same network.
    pub lock_wait: Duration,
}

impl Default for RdmaIpam {
    fn default() -> Self {
        Self {
            disk: NodeDisk,
            clock: KernelClock,
            lock_wait: LOCK_WAIT,
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
}

impl<D: Disk, C: Clock> Plugin for RdmaIpam<D, C> {
    fn about(&self) -> &'static str {
        concat!(
            "rdma-ipam ",
            env!("CARGO_PKG_VERSION"),
            ": CNI IPAM from ranges with exclusions, leases kept on this node"
        )
    }

    fn add(&self, call: &Call, attachment: &Attachment, netns: &Path) -> Result<CniResult, Error> {
        add::add(&self.node(), call, attachment, netns)
    }

    fn del(&self, call: &Call, attachment: &Attachment, _netns: Option<&Path>) -> Result<(), Error> {
        del::del(&self.node(), call, attachment)
    }

    fn check(&self, call: &Call, attachment: &Attachment, _netns: &Path) -> Result<(), Error> {
        check::check(&self.node(), call, attachment)
    }

    fn gc(&self, call: &Call, gc: &GcConf) -> Result<(), Error> {
        gc::gc(&self.node(), call, gc)
    }

    fn status(&self, call: &Call) -> Result<(), Error> {
        status::status(&self.node(), call)
    }
}
