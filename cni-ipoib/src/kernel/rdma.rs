// SPDX-License-Identifier: Apache-2.0
//! Requests to the kernel's RDMA subsystem.
//!
//! Invariant: the netlink sockets are opened by the first request, because opening one may load `ib_core`,
//! which a node without RDMA does not need.

use super::{Namespaces, Side};
use common::netlink::{Error, NetnsMode, QueuePair, Rdma, RdmaDevice, RdmaPort, Socket};
use common::netns::Netns;
use common::rdma::Sysfs;
use nix::errno::Errno;
use std::io;

/// The RDMA devices of the host and of the pod.
pub trait RdmaSubsystem {
    /// Whether the node's namespaces share the RDMA devices.
    fn rdma_mode(&mut self) -> Result<NetnsMode, Error>;
    /// The RDMA devices that a namespace sees; empty without an RDMA subsystem.
    fn rdma_devices(&mut self, side: Side) -> Result<Vec<RdmaDevice>, Error>;
    /// The ports of a device that the namespace sees.
    fn rdma_ports(&mut self, side: Side, device: u32) -> Result<Vec<RdmaPort>, Error>;
    /// The queue pairs of a device on the host: those of programs in all namespaces, and those of kernel modules.
    fn rdma_queue_pairs(&mut self, device: u32) -> Result<Vec<QueuePair>, Error>;
    /// Moves a device from `from` to the other namespace.
    fn move_rdma_device(&mut self, index: u32, from: Side) -> Result<(), Error>;
    /// The file in `/dev/infiniband` of the device `name`, in whatever namespace the device is.
    fn verbs_file(&mut self, name: &str) -> Option<String>;
    /// Renames a device that the namespace sees.
    fn rename_rdma_device(&mut self, side: Side, index: u32, name: &str) -> Result<(), Error>;
}

/// The open sockets.
#[derive(Default)]
pub(super) struct RdmaSockets {
    host: Option<Socket<Rdma>>,
    pod: Option<Socket<Rdma>>,
}

impl Namespaces<'_> {
    fn rdma(&mut self, side: Side) -> Result<&mut Socket<Rdma>, Error> {
        match side {
            Side::Host => open_once(&mut self.rdma.host, Socket::open),
            Side::Pod => {
                let netns = self.pod()?.1;
                open_once(&mut self.rdma.pod, || Socket::open_in(netns))
            }
        }
    }
}

fn open_once(
    slot: &mut Option<Socket<Rdma>>,
    open: impl FnOnce() -> Result<Socket<Rdma>, Error>,
) -> Result<&mut Socket<Rdma>, Error> {
    match slot {
        Some(socket) => Ok(socket),
        None => Ok(slot.insert(open()?)),
    }
}

/// Whether the error means that the kernel has no RDMA subsystem.
fn is_without_rdma(error: &Error) -> bool {
    matches!(error, Error::Socket(e) if e.raw_os_error() == Some(Errno::EPROTONOSUPPORT as i32))
}

impl RdmaSubsystem for Namespaces<'_> {
    fn rdma_mode(&mut self) -> Result<NetnsMode, Error> {
        match self.rdma(Side::Host) {
            Err(e) if is_without_rdma(&e) => Ok(NetnsMode::Shared),
            socket => socket?.netns_mode(),
        }
    }

    fn rdma_devices(&mut self, side: Side) -> Result<Vec<RdmaDevice>, Error> {
        match self.rdma(side) {
            Err(e) if is_without_rdma(&e) => Ok(Vec::new()),
            socket => socket?.devices(),
        }
    }

    fn rdma_ports(&mut self, side: Side, device: u32) -> Result<Vec<RdmaPort>, Error> {
        self.rdma(side)?.ports(device)
    }

    fn rdma_queue_pairs(&mut self, device: u32) -> Result<Vec<QueuePair>, Error> {
        self.rdma(Side::Host)?.queue_pairs(device)
    }

    fn move_rdma_device(&mut self, index: u32, from: Side) -> Result<(), Error> {
        let host = Netns::current().map_err(|e| Error::Netns(io::Error::other(e)))?;
        let pod = self.pod()?.1;
        let (leave, enter) = match from {
            Side::Host => (&host, pod),
            Side::Pod => (pod, &host),
        };
        self.rdma(from)?.move_device(index, leave, enter)
    }

    fn verbs_file(&mut self, name: &str) -> Option<String> {
        Sysfs::host().verbs_file(name)
    }

    fn rename_rdma_device(&mut self, side: Side, index: u32, name: &str) -> Result<(), Error> {
        self.rdma(side)?.rename_device(index, name)
    }
}
