// SPDX-License-Identifier: Apache-2.0
//! Finds the programs and kernel modules that use a port by RDMA. They need no address and no link.
//!
//! Invariant: the queue pairs that every idle port has do not count as uses.

use common::cni::error::causes;
use common::netlink::{Creator, Error, QueuePair, Rdma, Socket};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// The kernel modules with queue pairs on an idle port: management, `IPoIB` and the drivers. An `IPoIB` link that carries
/// traffic has an address or is in a pod.
const IDLE: [&str; 4] = ["ib_core", "ib_ipoib", "mlx4_ib", "mlx5_ib"];

/// The queue pairs of RDMA devices.
#[derive(Clone, Debug, Default)]
pub struct QueuePairs {
    /// By the name of the device: its queue pairs, or why the kernel did not list them.
    pub devices: BTreeMap<String, Result<Vec<QueuePair>, String>>,
    /// The names and processes of the programs that created them, by their threads.
    pub programs: BTreeMap<u32, String>,
}

impl QueuePairs {
    /// Reads the queue pairs of `devices` from the kernel.
    pub fn read<'d>(devices: impl Iterator<Item = &'d str>) -> Self {
        // The ports of one device name it more than once.
        let names: BTreeSet<&str> = devices.collect();
        let lists = names.into_iter().map(|device| (device.to_owned(), list(device)));
        let devices: BTreeMap<_, _> = lists.collect();
        let pairs = devices.values().flatten().flatten();
        let threads = pairs.filter_map(|pair| match pair.creator {
            Creator::Program(thread) => thread,
            Creator::Module(_) => None,
        });
        let programs = threads.filter_map(|thread| Some((thread, program(thread)?)));
        Self {
            programs: programs.collect(),
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
            let (creator, remedy) = self.creator(pair)?;
            Some(match pair.port {
                Some(_) => format!("has a queue pair of {creator}: {remedy}"),
                None => format!(
                    "is a port of {device}, which has a queue pair of {creator} without a port: {remedy}"
                ),
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

    /// What created `pair`, and how its use ends; `None` if idle ports have such a queue pair.
    fn creator(&self, pair: &QueuePair) -> Option<(String, &'static str)> {
        let thread = match &pair.creator {
            Creator::Module(name) if IDLE.contains(&name.as_str()) => return None,
            Creator::Module(name) => {
                return Some((format!("the kernel module {name}"), "end its connections first"));
            }
            Creator::Program(thread) => thread,
        };
        let program = match thread {
            Some(thread) => match self.programs.get(thread) {
                Some(program) => format!("the program {program}"),
                None => format!("thread {thread}"),
            },
            None => "a program that the kernel does not name".to_owned(),
        };
        Some((program, "end it first"))
    }
}

/// The name and the process of the program that has this thread, as text; `None` if the thread has ended.
pub fn program(thread: u32) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let mut lines = status.lines();
    let process = lines.find_map(|line| line.strip_prefix("Tgid:"))?.trim();
    let name = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    Some(format!("{} (process {process})", name.trim_end()))
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
