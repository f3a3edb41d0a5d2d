// SPDX-License-Identifier: Apache-2.0
//! Which program works on an attachment for a call: a note in the attachment's file.
//!
//! A runtime that kills ADD at its time limit does not kill the IPAM plugin that ADD waits for. The lock on the attachment's file
//! ends with ADD. So ADD notes the IPAM plugin's process before that process gets its configuration, and the next call waits
//! until the noted process has ended. What the IPAM plugin leaves behind is not waited for: a plugin has answered when its
//! process ends.
//!
//! Invariant: a process is noted before it can do anything, since a plugin that gets no configuration does nothing. A process
//! is known by its number and its start time, so that a later one with the same number is another one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What the line of a note begins with.
const RUNNING: &str = "running";

/// Where the notes of one attachment are written.
#[derive(Debug)]
pub struct Notes {
    file: File,
}

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Running {
    pid: u32,
    /// When it started, in clock ticks since the node did.
    started: u64,
    /// The PID namespace that the number belongs to, by its inode.
    namespace: u64,
}

impl Notes {
    pub(super) fn of(file: &File) -> io::Result<Self> {
        file.try_clone().map(|file| Self { file })
    }

    /// Notes that the process `pid`, a child of this one, works on the attachment. One that has ended already, as a script
    /// may that reads no configuration, needs no note: no later call has to wait for it.
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

    /// Reads the line of a note.
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

    /// Whether the process is still there. One of another PID namespace is not: when a namespace ends, the kernel kills
    /// what is in it, and a runtime calls all its plugins in one namespace.
    pub(super) fn is_alive(self) -> bool {
        own_namespace().is_ok_and(|own| own == self.namespace) && start_of(self.pid) == Some(self.started)
    }
}

/// Whether `line` of an attachment's file is a note, whole or not.
pub(super) fn is_note(line: &[u8]) -> bool {
    line.starts_with(RUNNING.as_bytes())
}

fn own_namespace() -> io::Result<u64> {
    fs::metadata("/proc/self/ns/pid").map(|namespace| namespace.ino())
}

/// The start time of a process (field 22 of `/proc/PID/stat`); none if it has ended, reaped or not.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    // The second field is the program's name in parentheses, which may contain anything.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    // From the fourth field on.
    let started = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(started)
}

#[cfg(test)]
mod tests;
