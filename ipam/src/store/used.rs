// SPDX-License-Identifier: Apache-2.0
//! The addresses that this node has used since it got their block: no other host uses them any more, so they
//! need no probe.
//!
//! ```text
//! used/<network>-<length>@<epoch>    one address per line
//! ```
//!
//! Invariant: an address is recorded only after a lease of it lasted for [`BRIEF`], and under the epoch of
//! its block. The records of a block end with its ownership, because its epoch may come again. A lost record costs one
//! probe.

use super::error::failed;
use super::lease::Lease;
use super::query::BRIEF;
use super::{Locked, Store};
use crate::pool::{Block, PoolFile};
use common::cni::Error;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

fn name(block: &Block) -> String {
    let cidr = block.cidr;
    format!("{}-{}@{}", cidr.network(), cidr.prefix(), block.epoch)
}

impl Store<'_> {
    fn used_directory(&self) -> PathBuf {
        self.network.join("used")
    }
}

impl Locked<'_> {
    /// Whether this node has used `ip` since it got `block`.
    pub(crate) fn has_used(&self, block: &Block, ip: IpAddr) -> bool {
        let path = self.store.used_directory().join(name(block));
        let content = self.store.node.disk.read(&path).unwrap_or_default();
        let mut lines = content.split(|byte| *byte == b'\n');
        lines.any(|line| str::from_utf8(line).ok().and_then(|line| line.parse().ok()) == Some(ip))
    }

    /// Records the addresses of `lease`, ended at `ended`, that had to be probed.
    pub(super) fn note_used(&self, lease: &Lease, ended: Duration) {
        let probed = lease.result.ips.iter().filter(|ip| ip.probe);
        let probed: Vec<IpAddr> = probed.map(|ip| ip.address.ip()).collect();
        if !self.store.is_pool || probed.is_empty() || ended.saturating_sub(lease.since_boot) < BRIEF {
            return;
        }
        let blocks = self
            .pool()
            .ok()
            .flatten()
            .map(|pool| pool.blocks)
            .unwrap_or_default();
        for ip in probed {
            let block = blocks.iter().find(|block| block.cidr.contains(ip));
            if let Some(block) = block.filter(|block| block.epoch > 1 && !self.has_used(block, ip)) {
                self.append_used(block, ip);
            }
        }
    }

    fn append_used(&self, block: &Block, ip: IpAddr) {
        let disk = self.store.node.disk;
        let directory = self.store.used_directory();
        let path = directory.join(name(block));
        let line = format!("{ip}\n");
        let appended = match disk.append(&path, line.as_bytes()) {
            Err(e) if e.kind() == ErrorKind::NotFound => disk
                .make_directory(&directory)
                .and_then(|()| disk.create(&path, line.as_bytes())),
            other => other,
        };
        if let Err(e) = appended {
            tracing::debug!(file = %path.display(), %ip, error = %e, "cannot record a used address; it will be probed again");
        }
    }

    /// Removes the records of all blocks that are not both in `before` and in `after`, with their epochs. Call it before
    /// `after` becomes the file of the pool.
    ///
    /// # Errors
    /// [`common::cni::Code::IO`].
    pub(super) fn forget_other_blocks(
        &self,
        before: Option<&PoolFile>,
        after: &PoolFile,
    ) -> Result<(), Error> {
        let disk = self.store.node.disk;
        let directory = self.store.used_directory();
        let names = |pool: &PoolFile| -> BTreeSet<String> { pool.blocks.iter().map(name).collect() };
        let stay = &before.map(names).unwrap_or_default() & &names(after);
        let mut others = disk.list(&directory, usize::MAX).unwrap_or_default();
        others.retain(|found| found.to_str().is_none_or(|found| !stay.contains(found)));
        for found in &others {
            self.remove(&directory.join(found))?;
        }
        if others.is_empty() {
            return Ok(());
        }
        // A power loss must not restore them beside the new file of the pool.
        disk.sync(&directory).map_err(|e| failed("sync", &directory, &e))
    }
}
