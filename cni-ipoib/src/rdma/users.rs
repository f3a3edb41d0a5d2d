// SPDX-License-Identifier: Apache-2.0
//! The programs and kernel modules that use an RDMA device by a queue pair. They need no address and no link.
//!
//! Invariant: the queue pairs that every idle device has do not count as uses.

use common::netlink::{Creator, QueuePair};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;

/// The kernel modules with queue pairs on an idle device: management, `IPoIB` and the drivers. An `IPoIB` link that carries
/// traffic has an address or is in a pod.
const IDLE: [&str; 4] = ["ib_core", "ib_ipoib", "mlx4_ib", "mlx5_ib"];

/// Programs of the host that serve every port and lose only this port by a move. Packages start them on every node.
const SERVICES: [&str; 2] = ["ibacm", "srp_daemon"];

/// A program or kernel module that created a queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// A kernel module, by its name.
    Module(String),
    /// A program.
    Program(Program),
    /// A program without a name: its thread has ended, or the kernel does not name the thread.
    Unnamed(Option<u32>),
}

/// A running program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The name of its process (`/proc/PID/comm`).
    pub name: String,
    /// Its process ID.
    pub process: u32,
}

impl User {
    /// The user that created `pair`; `None` if idle devices have such a queue pair. `programs` has the result of
    /// [`programs`].
    pub fn of(pair: &QueuePair, programs: &BTreeMap<u32, Program>) -> Option<Self> {
        match &pair.creator {
            Creator::Module(name) if IDLE.contains(&name.as_str()) => None,
            Creator::Module(name) => Some(Self::Module(name.clone())),
            Creator::Program(thread) => {
                let program = thread.and_then(|thread| programs.get(&thread));
                Some(program.map_or(Self::Unnamed(*thread), |program| Self::Program(program.clone())))
            }
        }
    }

    /// Whether the node loses nothing if the device leaves this user: a service that only looks up addresses or targets.
    pub fn is_service(&self) -> bool {
        matches!(self, Self::Program(program) if SERVICES.contains(&program.name.as_str()))
    }

    /// How the use ends.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Module(_) => "end its connections first",
            Self::Program(_) | Self::Unnamed(_) => "end it first",
        }
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Module(name) => write!(f, "the kernel module {name}"),
            Self::Program(Program { name, process }) => write!(f, "the program {name} (process {process})"),
            Self::Unnamed(Some(thread)) => write!(f, "thread {thread}"),
            Self::Unnamed(None) => f.write_str("a program that the kernel does not name"),
        }
    }
}

/// The programs that created `pairs`, by their threads. A thread that has ended has none.
pub fn programs<'p>(pairs: impl Iterator<Item = &'p QueuePair>) -> BTreeMap<u32, Program> {
    let threads = pairs.filter_map(|pair| match pair.creator {
        Creator::Program(thread) => thread,
        Creator::Module(_) => None,
    });
    threads
        .filter_map(|thread| Some((thread, program(thread)?)))
        .collect()
}

/// The program that has this thread; `None` if the thread has ended.
fn program(thread: u32) -> Option<Program> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let mut lines = status.lines();
    let process = lines.find_map(|line| line.strip_prefix("Tgid:"))?.trim();
    let name = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    Some(Program {
        name: name.trim_end().to_owned(),
        process: process.parse().ok()?,
    })
}

#[cfg(test)]
mod tests;
