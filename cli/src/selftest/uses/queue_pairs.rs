// SPDX-License-Identifier: Apache-2.0
//! Finds the programs and kernel modules that use a port by RDMA. They need no address and no link.
//!
//! Invariant: what counts as a use is what keeps the plugin from moving an RDMA device ([`cni_ipoib::rdma::users`]).

use cni_ipoib::rdma::users::{Program, User, programs};
use common::cni::error::causes;
use common::netlink::{Error, QueuePair, Rdma, Socket};
use std::collections::{BTreeMap, BTreeSet};

/// The queue pairs of RDMA devices.
#[derive(Clone, Debug, Default)]
pub struct QueuePairs {
    /// By the name of the device: its queue pairs, or why the kernel did not list them.
    pub devices: BTreeMap<String, Result<Vec<QueuePair>, String>>,
    /// The programs that created them, by their threads.
    pub programs: BTreeMap<u32, Program>,
}

impl QueuePairs {
    /// Reads the queue pairs of `devices` from the kernel.
    pub fn read<'d>(devices: impl Iterator<Item = &'d str>) -> Self {
        // The ports of one device name it more than once.
        let names: BTreeSet<&str> = devices.collect();
        let lists = names.into_iter().map(|device| (device.to_owned(), list(device)));
        let devices: BTreeMap<_, _> = lists.collect();
        Self {
            programs: programs(devices.values().flatten().flatten()),
            devices,
        }
    }

    /// Why this port is in use; `None` if it is spare, or if the kernel did not list the queue pairs.
    ///
    /// A queue pair without a port may get any port of its device, so it counts for each of them.
    pub fn use_of(&self, device: &str, port: u32) -> Option<String> {
        let pairs = self.devices.get(device)?.as_ref().ok()?;
        let mut near = pairs
            .iter()
            .filter(|pair| pair.port.is_none_or(|number| number == port));
        near.find_map(|pair| {
            let user = User::of(pair, &self.programs)?;
            let remedy = user.remedy();
            Some(match pair.port {
                Some(_) => format!("has a queue pair of {user}: {remedy}"),
                None => {
                    format!(
                        "is a port of {device}, which has a queue pair of {user} without a port: {remedy}"
                    )
                }
            })
        })
    }

    /// Why it is not known what uses `device` by RDMA; `None` if it is known.
    pub fn unknown(&self, device: &str) -> Option<String> {
        let why = self.devices.get(device)?.as_ref().err()?;
        Some(format!(
            "the kernel did not list the queue pairs of {device}: {why}"
        ))
    }
}

/// The queue pairs of the RDMA device `name`.
fn list(name: &str) -> Result<Vec<QueuePair>, String> {
    let failed = |e: Error| causes(&e);
    let mut socket = Socket::<Rdma>::open().map_err(failed)?;
    let devices = socket.devices().map_err(failed)?;
    let device = devices.iter().find(|device| device.name == name);
    let device = device.ok_or("netlink has no such device")?;
    socket.queue_pairs(device.index).map_err(failed)
}
