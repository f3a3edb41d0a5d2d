// SPDX-License-Identifier: Apache-2.0
//! The node that a call works on: its paths, its journal, and its kernel.

use crate::config::Paths;
use crate::error::{Error, Step};
use crate::journal::Journal;
use crate::kernel::{Kernel, Namespaces};
use common::cni::{self, Env};
use common::netlink;
use common::netns::Netns;
use common::rdma::Sysfs;
use std::path::{Path, PathBuf};

/// Opens the namespaces. Tests replace the kernel.
pub type OpenKernel = Box<dyn for<'n> Fn(Option<&'n Netns>) -> Result<Box<dyn Kernel + 'n>, netlink::Error>>;

/// A node.
pub(crate) struct Node {
    paths: Paths,
    open: OpenKernel,
}

impl Node {
    /// The node of this process.
    ///
    /// # Errors
    /// Those of [`Paths::of_node`].
    pub(crate) fn of_process(env: &Env) -> Result<Self, cni::Error> {
        let open: OpenKernel = Box::new(|netns| Ok(Box::new(Namespaces::open(netns)?)));
        Ok(Self::new(Paths::of_node(env)?, open))
    }

    pub(crate) fn new(paths: Paths, open: OpenKernel) -> Self {
        Self { paths, open }
    }

    /// The state directory.
    pub(crate) fn state(&self) -> &Path {
        &self.paths.state
    }

    /// Its devices.
    pub(crate) fn sysfs(&self) -> Sysfs {
        Sysfs::at(&self.paths.sysfs)
    }

    /// The directories that may contain device-info files.
    pub(crate) fn device_info_dirs(&self) -> &[PathBuf] {
        &self.paths.device_info
    }

    /// The journal of `network`.
    pub(crate) fn journal(&self, network: &str) -> Journal {
        Journal::new(self.state(), network)
    }

    /// The kernel, with the pod's namespace `netns` if there is one.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub(crate) fn kernel<'n>(&self, netns: Option<&'n Netns>) -> Result<Box<dyn Kernel + 'n>, Error> {
        (self.open)(netns).step(|| "open a netlink socket; the plugin must run as root".to_owned())
    }
}
