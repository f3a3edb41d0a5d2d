// SPDX-License-Identifier: Apache-2.0
//! Remembers, over restarts and reboots, which links have had carrier on this node. A port that has no carrier after a reboot is
//! then reported as down.
//!
//! The file is written without a sync. If it is lost, a port counts only once it has carrier again.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file and its content.
#[derive(Debug)]
pub(super) struct CarrierHistory {
    file: PathBuf,
    seen: BTreeSet<String>,
}

#[derive(Serialize, Deserialize)]
struct Content {
    seen: BTreeSet<String>,
}

impl CarrierHistory {
    /// Reads the memory of the node whose leases are below `data_dir`.
    pub(super) fn read(data_dir: &Path) -> Self {
        let file = data_dir.join(".links.json");
        let seen = match fs::read(&file).map(|text| serde_json::from_slice(&text)) {
            Ok(Ok(Content { seen })) => seen,
            Err(e) if e.kind() == io::ErrorKind::NotFound => BTreeSet::new(),
            Ok(Err(e)) => unreadable(&file, &e),
            Err(e) => unreadable(&file, &e),
        };
        Self { file, seen }
    }

    /// The names of links that have had carrier.
    pub(super) fn seen(&self) -> &BTreeSet<String> {
        &self.seen
    }

    /// Adds names. If they cannot be written, they are known until the agent ends.
    pub(super) fn add(&mut self, names: Vec<String>) {
        let known = self.seen.len();
        self.seen.extend(names);
        if self.seen.len() == known {
            return;
        }
        if let Err(e) = self.write() {
            tracing::warn!(file = %self.file.display(), error = %e, "writing the carrier history of links failed");
        }
    }

    /// Writes under another name first, so that no process reads an incomplete file.
    fn write(&self) -> io::Result<()> {
        let unfinished = self.file.with_extension("json.new");
        let content = Content {
            seen: self.seen.clone(),
        };
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options
            .open(&unfinished)?
            .write_all(&serde_json::to_vec(&content)?)?;
        fs::rename(unfinished, &self.file)
    }
}

fn unreadable(file: &Path, why: &dyn std::error::Error) -> BTreeSet<String> {
    tracing::warn!(file = %file.display(), error = %why, "reading the carrier history of links failed");
    BTreeSet::new()
}

#[cfg(test)]
mod tests;
