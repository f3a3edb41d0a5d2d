// SPDX-License-Identifier: Apache-2.0
//! Names the process that holds a flock(2).
//!
//! Invariant: the query never blocks and never fails. If the holder is unknown, it is "another process".

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

/// Describes the process that holds a lock on `file`, such as `process 9495 (flock)`. For messages only: the
/// lock may have changed hands since.
///
/// Source: `proc_locks(5)`.
pub fn holder(file: &File) -> String {
    let inode = file.metadata().map(|meta| meta.ino()).unwrap_or_default();
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let Some(pid) = locks.lines().find_map(|line| holds(line, inode)) else {
        return "another process".to_owned();
    };
    let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("process {pid} ({})", command.trim())
}

/// Returns the pid of a line such as `1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`. Waiting processes
/// have `->` before FLOCK.
fn holds(line: &str, inode: u64) -> Option<&str> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, "FLOCK", _, _, pid, file, ..] = words.as_slice() else {
        return None;
    };
    (file.rsplit(':').next()?.parse() == Ok(inode)).then_some(pid)
}

#[cfg(test)]
mod tests;
