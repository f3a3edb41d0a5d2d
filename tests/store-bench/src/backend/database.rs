// SPDX-License-Identifier: Apache-2.0
//! redb: one process at a time may have the file open, so others wait and try again.

use super::{Backend, FIRST, record};
use redb::{Database, DatabaseError, Durability, ReadableTable, TableDefinition};
use std::error::Error;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

const LEASE: TableDefinition<&str, &str> = TableDefinition::new("lease");
const ADDRESS: TableDefinition<u32, &str> = TableDefinition::new("address");
const CURSOR: TableDefinition<u32, u32> = TableDefinition::new("cursor");

pub struct Redb {
    database: Database,
    synced: bool,
}

impl Redb {
    pub fn open(dir: &Path, synced: bool) -> Result<Self, Box<dyn Error>> {
        loop {
            match Database::builder()
                .set_cache_size(1 << 20)
                .create(dir.join("leases.redb"))
            {
                Ok(database) => return Ok(Self { database, synced }),
                Err(DatabaseError::DatabaseAlreadyOpen) => std::thread::sleep(Duration::from_millis(1)),
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl Backend for Redb {
    fn add(&mut self, key: &str) -> Result<Ipv4Addr, Box<dyn Error>> {
        let mut change = self.database.begin_write()?;
        change.set_durability(if self.synced {
            Durability::Immediate
        } else {
            Durability::None
        })?;
        let address = {
            let (mut leases, mut addresses) = (change.open_table(LEASE)?, change.open_table(ADDRESS)?);
            let mut cursors = change.open_table(CURSOR)?;
            if leases.get(key)?.is_some() {
                return Err("there is a lease already".into());
            }
            let mut ip = cursors.get(0)?.map_or(FIRST, |ip| ip.value() + 1);
            while addresses.get(ip)?.is_some() {
                ip += 1;
            }
            let address = Ipv4Addr::from(ip);
            leases.insert(key, record(key, address).as_str())?;
            addresses.insert(ip, key)?;
            cursors.insert(0, ip)?;
            address
        };
        change.commit()?;
        Ok(address)
    }
}
