// SPDX-License-Identifier: Apache-2.0
//! SQLite with a write-ahead log.

use super::{Backend, FIRST, record};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use std::error::Error;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

pub struct Sqlite(Connection);

impl Sqlite {
    pub fn open(dir: &Path, synced: bool) -> Result<Self, Box<dyn Error>> {
        let connection = Connection::open(dir.join("leases.db"))?;
        connection.busy_timeout(Duration::from_secs(10))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", if synced { "FULL" } else { "OFF" })?;
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS lease (key TEXT PRIMARY KEY, record TEXT) WITHOUT ROWID;
             CREATE TABLE IF NOT EXISTS address (ip INTEGER PRIMARY KEY, key TEXT);
             CREATE TABLE IF NOT EXISTS cursor (id INTEGER PRIMARY KEY, ip INTEGER);",
        )?;
        Ok(Self(connection))
    }
}

impl Backend for Sqlite {
    fn add(&mut self, key: &str) -> Result<Ipv4Addr, Box<dyn Error>> {
        let change = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let known: Option<String> = change
            .query_row("SELECT record FROM lease WHERE key = ?1", [key], |row| row.get(0))
            .optional()?;
        if known.is_some() {
            return Err("there is a lease already".into());
        }
        let cursor: Option<u32> = change
            .query_row("SELECT ip FROM cursor WHERE id = 0", [], |row| row.get(0))
            .optional()?;
        let mut ip = cursor.map_or(FIRST, |ip| ip + 1);
        while change
            .query_row("SELECT 1 FROM address WHERE ip = ?1", [ip], |_| Ok(()))
            .optional()?
            .is_some()
        {
            ip += 1;
        }
        let address = Ipv4Addr::from(ip);
        change.execute(
            "INSERT INTO lease VALUES (?1, ?2)",
            params![key, record(key, address)],
        )?;
        change.execute("INSERT INTO address VALUES (?1, ?2)", params![ip, key])?;
        change.execute("INSERT OR REPLACE INTO cursor VALUES (0, ?1)", [ip])?;
        change.commit()?;
        Ok(address)
    }
}
