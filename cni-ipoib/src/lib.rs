// SPDX-License-Identifier: Apache-2.0
//! `cni-ipoib`: gives a pod an interface on an RDMA network.
//!
//! Data flow: [`Call`] → [`config::Config`] (always valid); the node → [`host::Host`] (read once);
//! [`plan::child`] (pure) → [`attach::attach`] (with its undo) → result. One file per CNI verb.

mod add;
pub mod attach;
mod check;
pub mod config;
mod del;
pub mod detach;
pub mod device;
mod device_info;
pub mod error;
mod folders;
mod gc;
pub mod host;
pub mod intent;
pub mod journal;
pub mod kernel;
pub mod mark;
pub mod mode;
#[cfg(test)]
mod model;
mod netns;
pub mod plan;
pub mod policy;
pub mod rdma;
pub mod recorded;
mod routes;
pub mod select;
mod status;

use common::cni::dispatch::{Call, Plugin};
use common::cni::{self, Attachment, CniResult, Env, GcConf};
use common::netlink;
use common::netns::Netns;
use config::Paths;
use error::Error;
use journal::Journal;
use kernel::{Kernel, Namespaces};
use std::path::Path;

/// Opens the namespaces. Tests replace the kernel.
pub type OpenKernel = Box<dyn for<'n> Fn(Option<&'n Netns>) -> Result<Box<dyn Kernel + 'n>, netlink::Error>>;

/// The plugin.
pub struct CniIpoib {
    paths: Paths,
    open: OpenKernel,
}

impl CniIpoib {
    /// The plugin as it runs on a node.
    pub fn on_node(env: &Env) -> Result<Self, cni::Error> {
        Ok(Self::new(
            Paths::of_node(env)?,
            Box::new(|netns| Ok(Box::new(Namespaces::open(netns)?))),
        ))
    }

    /// The plugin with other paths and another kernel.
    pub fn new(paths: Paths, open: OpenKernel) -> Self {
        Self { paths, open }
    }

    fn journal(&self, call: &Call) -> Journal {
        Journal::new(&self.paths.state, &call.conf.network)
    }

    fn open_kernel<'n>(&self, netns: Option<&'n Netns>) -> Result<Box<dyn Kernel + 'n>, Error> {
        (self.open)(netns).map_err(|source| Error::Kernel {
            step: "open a netlink socket; the plugin must run as root".to_owned(),
            source,
        })
    }
}

impl Plugin for CniIpoib {
    fn about(&self) -> &'static str {
        concat!(
            "cni-ipoib ",
            env!("CARGO_PKG_VERSION"),
            " (rdmanet): gives a pod an interface on an RDMA network (IPoIB, macvlan, ipvlan)"
        )
    }

    fn add(&self, call: &Call, attachment: &Attachment, netns: &Path) -> Result<CniResult, cni::Error> {
        self.add(call, attachment, netns)
    }

    fn del(&self, call: &Call, attachment: &Attachment, netns: Option<&Path>) -> Result<(), cni::Error> {
        self.del(call, attachment, netns)
    }

    fn check(&self, call: &Call, attachment: &Attachment, netns: &Path) -> Result<(), cni::Error> {
        self.check(call, attachment, netns)
    }

    fn gc(&self, call: &Call, gc: &GcConf) -> Result<(), cni::Error> {
        self.gc(call, gc)
    }

    fn status(&self, call: &Call) -> Result<(), cni::Error> {
        self.status(call)
    }
}
