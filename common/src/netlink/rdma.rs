// SPDX-License-Identifier: Apache-2.0
//! `NETLINK_RDMA`: RDMA devices, their ports, queue pairs and namespace (`include/uapi/rdma/rdma_netlink.h`).
//!
//! Invariant: a request names a device by its index, which stays the same when its name and namespace change.

pub(super) mod device;
mod message;
pub(super) mod queue_pair;

use super::error::Error;
use super::socket::{Family, Socket, Wire};
use crate::netns::Netns;
use device::{NetnsMode, RdmaDevice, RdmaPort};
use message::{Attribute, Command, Message};
use queue_pair::QueuePair;
use std::os::fd::{AsFd, AsRawFd};

/// The family of RDMA devices.
///
/// Opening a socket fails with `EPROTONOSUPPORT` while the kernel's `ib_core` is not loaded.
pub enum Rdma {}

impl Wire for Rdma {
    const PROTOCOL: isize = netlink_sys::protocols::NETLINK_RDMA;
    const STRICT: bool = false;
    type Message = Message;
}

impl Family for Rdma {}

impl Socket<Rdma> {
    /// Every RDMA device that the socket's namespace sees: its own, and in shared mode all devices of the
    /// node.
    pub fn devices(&mut self) -> Result<Vec<RdmaDevice>, Error> {
        let answers = self.dump(|| Message::new(Command::Get, []))?;
        answers.into_iter().map(RdmaDevice::decode).collect()
    }

    /// The ports of the device `device`.
    ///
    /// The kernel reports a port's netdev only to a socket in the netdev's namespace, and never for IPoIB.
    ///
    /// # Errors
    /// `EINVAL`: the socket's namespace sees no such device.
    pub fn ports(&mut self, device: u32) -> Result<Vec<RdmaPort>, Error> {
        let answers = self.dump(|| Message::new(Command::PortGet, [Attribute::DeviceIndex(device)]))?;
        answers.into_iter().map(RdmaPort::decode).collect()
    }

    /// The queue pairs of the device `device`: those of programs in all namespaces, and those of kernel modules.
    ///
    /// The kernel reports no change of the list between two of its messages. Since Linux 6.10 (commit
    /// e18fa0bbcedf) it lists queue pairs of a driver's own type, such as those of EFA, only if the request
    /// contains `DriverDetails`. Earlier kernels ignore that attribute.
    ///
    /// # Errors
    /// `EINVAL`: the socket's namespace sees no such device. If the driver cannot describe one of the queue
    /// pairs, the kernel returns the driver's error instead of a list.
    pub fn queue_pairs(&mut self, device: u32) -> Result<Vec<QueuePair>, Error> {
        let request = [Attribute::DeviceIndex(device), Attribute::DriverDetails(1)];
        let answers = self.dump(|| Message::new(Command::QueuePairGet, request.clone()))?;
        let lists: Result<Vec<_>, _> = answers.into_iter().map(QueuePair::decode).collect();
        Ok(lists?.concat())
    }

    /// Whether the node's namespaces share the RDMA devices.
    pub fn netns_mode(&mut self) -> Result<NetnsMode, Error> {
        let answer = self.get(&Message::new(Command::SystemGet, []))?;
        let mode =
            answer
                .iter()
                .flat_map(|message| &message.attributes)
                .find_map(|attribute| match attribute {
                    Attribute::NetnsMode(mode) => Some(NetnsMode::decode(*mode)),
                    _ => None,
                });
        // Linux before 5.2 has no mode and shares the devices.
        Ok(mode.unwrap_or(NetnsMode::Shared))
    }

    /// Sets the mode of the whole node.
    ///
    /// # Errors
    /// `EBUSY`: the node has further namespaces. Set the mode when a node starts, before any pod.
    pub fn set_netns_mode(&mut self, mode: NetnsMode) -> Result<(), Error> {
        self.change(
            Message::new(Command::SystemSet, [Attribute::NetnsMode(mode.encode())]),
            0,
        )
    }

    /// Moves the device `index` from its namespace `from` to `to`.
    ///
    /// The socket must be one of `from`. Every program that uses the device loses it. The kernel recreates
    /// the device's IPoIB links and removes their children: before Linux 6.17 in the first namespace, since
    /// then in `to` (commit f1208b05574f).
    ///
    /// # Errors
    /// `EOPNOTSUPP`: the node is in shared mode, or the driver cannot disassociate its users. `ENODEV`: the
    /// device is not in `from`. [`Error::Netns`]: `from` cannot be entered.
    pub fn move_device(&mut self, index: u32, from: &Netns, to: &Netns) -> Result<(), Error> {
        let fd = to.as_fd().as_raw_fd();
        let request = Message::new(
            Command::Set,
            [Attribute::DeviceIndex(index), Attribute::NetnsFd(fd)],
        );
        // The kernel moves the device out of the calling thread's namespace, not the socket's
        // (`ib_device_set_netns_put` of drivers/infiniband/core/device.c).
        from.run(|| self.change(request, 0)).map_err(Error::Netns)?
    }

    /// Renames the device `index`; names have at most 63 bytes.
    ///
    /// # Errors
    /// `EEXIST`: another device of the node has the name, in any namespace. `EINVAL`: no such device.
    pub fn rename_device(&mut self, index: u32, name: &str) -> Result<(), Error> {
        let name = Attribute::DeviceName(name.to_owned());
        self.change(
            Message::new(Command::Set, [Attribute::DeviceIndex(index), name]),
            0,
        )
    }
}

#[cfg(test)]
mod tests;
