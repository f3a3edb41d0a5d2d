// SPDX-License-Identifier: Apache-2.0
//! `cni-ipoib`: gives a pod an interface on an RDMA network.
//!
//! Data flow: [`Call`] → [`config::Config`] (always valid); the node → [`host::Host`] (read once);
//! [`plan`] (pure) → [`attach::attach`] (with its undo) → result. One file per CNI verb.
//!
//! Floors: a module imports only modules of lower floors (`tests/floors`). The verbs alone know the whole
//! plugin; everything below takes the kernel, or the node that opens it, as an argument.
//!
//! ```text
//! add check collect del gc status | one file per CNI verb; the collector, which removes for the agent
//! attach teardown               | the steps of ADD with their undo; the removal of an attachment
//! detach device                 | finds and deletes links; facts, plan and state of a whole link
//! plan                          | pure
//! host                          | what the plan must know about the node
//! select                        | chooses the parent
//! rdma                          | finds, grants, moves and returns RDMA devices
//! node                          | the paths of the node, its journal, its kernel
//! journal policy                | the files of the attachments and their locks; routing rules
//! config device_info kernel netns
//! intent routes                 | what the journal holds; the routes of a result
//! error                         | the one table of codes
//! directories mark mode
//! ```

mod add;
pub mod attach;
mod check;
pub mod collect;
pub mod config;
mod del;
pub mod detach;
pub mod device;
mod device_info;
mod directories;
pub mod error;
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
mod node;
pub mod plan;
pub mod policy;
pub mod rdma;
mod routes;
pub mod select;
mod status;
mod teardown;

use common::cni::dispatch::{Call, Plugin};
use common::cni::{self, Attachment, CniResult, Env, GcConf};
use config::Paths;
use node::Node;
use std::path::Path;

pub use node::OpenKernel;

/// The plugin.
pub struct CniIpoib {
    node: Node,
}

impl CniIpoib {
    /// The plugin as it runs on a node.
    pub fn on_node(env: &Env) -> Result<Self, cni::Error> {
        Ok(Self {
            node: Node::of_process(env)?,
        })
    }

    /// The plugin with other paths and another kernel.
    pub fn new(paths: Paths, open: OpenKernel) -> Self {
        Self {
            node: Node::new(paths, open),
        }
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
        add::add(&self.node, call, attachment, netns)
    }

    fn del(&self, call: &Call, attachment: &Attachment, netns: Option<&Path>) -> Result<(), cni::Error> {
        del::del(&self.node, call, attachment, netns)
    }

    fn check(&self, call: &Call, attachment: &Attachment, netns: &Path) -> Result<(), cni::Error> {
        check::check(&self.node, call, attachment, netns)
    }

    fn gc(&self, call: &Call, gc: &GcConf) -> Result<(), cni::Error> {
        gc::gc(&self.node, call, gc)
    }

    fn status(&self, call: &Call) -> Result<(), cni::Error> {
        status::status(&self.node, call)
    }
}
