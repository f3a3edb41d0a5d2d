// SPDX-License-Identifier: Apache-2.0
//! Records the program that works on an attachment for a call, in the attachment's file.
//!
//! A runtime that kills ADD at its time limit does not kill the IPAM plugin that ADD waits for, but the lock
//! on the attachment's file ends with ADD. So ADD records the IPAM plugin's process before that process gets
//! its configuration, and the next call waits until the recorded process has ended. It does not wait for that
//! process' children: a plugin has answered when its own process ends.
//!
//! Invariant: a process is recorded before it can change anything, since a plugin without its configuration
//! does nothing. A process is identified by its id and its start time, so that a reused id is not the same
//! process.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The first word of a record's line.
const RUNNING: &str = "running";

/// Writes the records of one attachment.
#[derive(Debug)]
pub struct Notes {
    file: File,
}

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Running {
    pid: u32,
    /// Its start time, in clock ticks since the node booted.
    started: u64,
    /// The PID namespace of the id, by its inode.
    namespace: u64,
}

impl Notes {
    pub(super) fn of(file: &File) -> io::Result<Self> {
        file.try_clone().map(|file| Self { file })
    }

    /// Records that the process `pid`, a child of this one, works on the attachment. A process that has ended
    /// already, such as a script that reads no configuration, needs no record: no later call must wait for
    /// it.
    ///
    /// # Errors
    /// The file cannot be written, or /proc cannot be read.
    pub fn running(&self, pid: u32) -> io::Result<()> {
        match Running::of(pid)? {
            Some(running) => (&self.file).write_all(format!("{running}\n").as_bytes()),
            None => Ok(()),
        }
    }
}

impl std::fmt::Display for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            pid,
            started,
            namespace,
        } = self;
        write!(f, "{RUNNING} {pid} {started} {namespace}")
    }
}

impl Running {
    /// The process `pid`; `None` if it has ended, reaped or not.
    fn of(pid: u32) -> io::Result<Option<Self>> {
        let namespace = own_namespace()?;
        Ok(start_of(pid).map(|started| Self {
            pid,
            started,
            namespace,
        }))
    }

    /// Parses the line of a record.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(line)
            .ok()?
            .strip_prefix(RUNNING)?
            .split(' ')
            .skip(1);
        let mut number = || words.next()?.parse::<u64>().ok();
        let (pid, started, namespace) = (number()?, number()?, number()?);
        let pid = u32::try_from(pid).ok()?;
        words.next().is_none().then_some(Self {
            pid,
            started,
            namespace,
        })
    }

    /// Whether the process is still running. A process of another PID namespace is not: the kernel kills all
    /// processes of a namespace that ends, and a runtime calls all its plugins in one namespace.
    pub(super) fn is_alive(self) -> bool {
        own_namespace().is_ok_and(|own| own == self.namespace) && start_of(self.pid) == Some(self.started)
    }
}

/// Whether `line` of an attachment's file is a record, complete or not.
pub(super) fn is_note(line: &[u8]) -> bool {
    line.starts_with(RUNNING.as_bytes())
}

fn own_namespace() -> io::Result<u64> {
    fs::metadata("/proc/self/ns/pid").map(|namespace| namespace.ino())
}

/// The start time of a process (field 22 of `/proc/PID/stat`); `None` if it has ended, reaped or not.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    // The second field is the program's name in parentheses, which may contain anything.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    // Counted from the fourth field.
    let started = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(started)
}

#[cfg(test)]
mod tests;
