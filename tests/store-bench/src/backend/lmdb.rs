// SPDX-License-Identifier: Apache-2.0
//! LMDB by way of heed.

use super::{Backend, FIRST, record};
use heed::byteorder::BigEndian;
use heed::types::{Str, U32};
use heed::{Database, Env, EnvFlags, EnvOpenOptions};
use std::error::Error;
use std::net::Ipv4Addr;
use std::path::Path;

pub struct Lmdb(Env);

impl Lmdb {
    pub fn open(dir: &Path, synced: bool) -> Result<Self, Box<dyn Error>> {
        let mut options = EnvOpenOptions::new();
        options.map_size(64 << 20).max_dbs(3);
        if !synced {
            // SAFETY: the flag gives up durability, not the memory safety of what is mapped.
            unsafe { options.flags(EnvFlags::NO_SYNC) };
        }
        // SAFETY: only this program opens the files of its own temporary directory, and always through LMDB.
        Ok(Self(unsafe { options.open(dir) }?))
    }
}

impl Backend for Lmdb {
    fn add(&mut self, key: &str) -> Result<Ipv4Addr, Box<dyn Error>> {
        let mut change = self.0.write_txn()?;
        let leases: Database<Str, Str> = self.0.create_database(&mut change, Some("lease"))?;
        let addresses: Database<U32<BigEndian>, Str> =
            self.0.create_database(&mut change, Some("address"))?;
        let cursors: Database<Str, U32<BigEndian>> = self.0.create_database(&mut change, Some("cursor"))?;
        if leases.get(&change, key)?.is_some() {
            return Err("there is a lease already".into());
        }
        let mut ip = cursors.get(&change, "0")?.map_or(FIRST, |ip| ip + 1);
        while addresses.get(&change, &ip)?.is_some() {
            ip += 1;
        }
        let address = Ipv4Addr::from(ip);
        leases.put(&mut change, key, &record(key, address))?;
        addresses.put(&mut change, &ip, key)?;
        cursors.put(&mut change, "0", &ip)?;
        change.commit()?;
        Ok(address)
    }
}
