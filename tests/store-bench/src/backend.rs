// SPDX-License-Identifier: Apache-2.0
//! The candidates.

mod database;
mod files;
mod lmdb;
mod sqlite;

use std::error::Error;
use std::net::Ipv4Addr;
use std::path::Path;

/// A store that one process opens, uses once and closes.
pub trait Backend {
    /// Gives the attachment `key` the next free address.
    fn add(&mut self, key: &str) -> Result<Ipv4Addr, Box<dyn Error>>;
}

/// Each candidate as it is, and with every ADD forced to the disk. The two groups are measured apart: what one process
/// forces to the disk, the next one's changes of directories wait for.
pub const GROUPS: [[&str; 4]; 2] = [
    ["files", "sqlite", "redb", "lmdb"],
    ["files, synced", "sqlite, synced", "redb, synced", "lmdb, synced"],
];

/// The first address of 10.0.0.0/16 that is given.
pub const FIRST: u32 = 0x0a00_0001;

/// What a lease is in every store.
pub fn record(key: &str, ip: Ipv4Addr) -> String {
    let (container, ifname) = key.split_once('@').unwrap_or((key, "eth0"));
    format!(
        r#"{{"container":"{container}","ifname":"{ifname}","since":"2026-01-01T00:00:00Z","boottime_ms":1,"result":{{"cniVersion":"1.1.0","dns":{{}},"ips":[{{"address":"{ip}/16"}}]}}}}"#
    )
}

/// Opens the candidate `kind` in `dir`.
pub fn open(kind: &str, dir: &Path) -> Result<Box<dyn Backend>, Box<dyn Error>> {
    let synced = kind.ends_with("synced");
    Ok(match kind.split(',').next() {
        Some("files") => Box::new(files::Files::open(dir, synced)?),
        Some("sqlite") => Box::new(sqlite::Sqlite::open(dir, synced)?),
        Some("redb") => Box::new(database::Redb::open(dir, synced)?),
        Some("lmdb") => Box::new(lmdb::Lmdb::open(dir, synced)?),
        _ => return Err(format!("unknown store {kind:?}").into()),
    })
}

/// Makes `count` leases; nothing of it is measured.
pub fn fill(kind: &str, dir: &Path, count: usize) -> Result<(), Box<dyn Error>> {
    let mut backend = open(kind.trim_end_matches(", synced"), dir)?;
    (0..count).try_for_each(|i| backend.add(&format!("fill-{i}@eth0")).map(|_| ()))
}
