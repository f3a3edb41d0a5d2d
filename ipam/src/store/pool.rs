// SPDX-License-Identifier: Apache-2.0
//! The files of a pool beside its leases: `pool.json` and `confirmed`, which the node's agent writes.

use super::failure::{failed, is_nowhere};
use super::{Locked, Store};
use crate::pool::{Confirmed, PoolFile, Standing};
use common::cni::Error;
use std::path::PathBuf;

impl Store<'_> {
    /// Where the pool of this store is described.
    pub fn pool_path(&self) -> PathBuf {
        self.network.join("pool.json")
    }

    fn confirmed_path(&self) -> PathBuf {
        self.network.join("confirmed")
    }

    /// The pool, if the agent has written it. What is read without the lock may be out of date at once.
    ///
    /// # Errors
    /// Those of [`PoolFile::read`], and [`common::cni::Code::IO`].
    pub fn pool(&self) -> Result<Option<PoolFile>, Error> {
        let path = self.pool_path();
        match self.node.disk.read(&path) {
            Ok(content) => PoolFile::read(&content, &path).map(Some),
            // Below a file there is no pool either, and the first to write there says so.
            Err(e) if is_nowhere(&e) => Ok(None),
            Err(e) => Err(failed("read the pool", &path, &e)),
        }
    }

    /// When the agent last knew the blocks to be this node's; none if no file says so.
    pub fn confirmed(&self) -> Option<Confirmed> {
        let content = self.node.disk.read(&self.confirmed_path()).ok()?;
        Confirmed::read(&content)
    }

    /// Notes that the blocks are this node's now. To be called after the cluster has said so, with the time before it was
    /// asked; a note that is lost makes the next boot wait for the agent, no more.
    ///
    /// # Errors
    /// [`common::cni::Code::IO`].
    pub fn confirm(&self, confirmed: Confirmed) -> Result<(), Error> {
        let (path, new) = (self.confirmed_path(), self.network.join("confirmed.new"));
        let disk = self.node.disk;
        disk.create(&new, confirmed.to_line().as_bytes())
            .map_err(|e| failed("write", &new, &e))?;
        disk.rename(&new, &path).map_err(|e| failed("make", &path, &e))
    }

    /// Whether the agent has written the pool.
    pub fn has_pool(&self) -> bool {
        self.node.disk.identity(&self.pool_path()).is_ok()
    }

    /// Whether addresses may be given from the blocks of `pool` now.
    pub fn standing(&self, pool: &PoolFile) -> Standing {
        Standing::of(pool, &self.boot_id, self.node.clock, || self.confirmed())
    }
}

impl Locked<'_> {
    /// The pool, as no other process changes it meanwhile.
    ///
    /// # Errors
    /// As [`Store::pool`].
    pub fn pool(&self) -> Result<Option<PoolFile>, Error> {
        self.store.pool()
    }

    /// With addresses that rest as long as the pool says, if this is part of one. A pool that cannot be read must not keep
    /// an address from being released.
    pub(super) fn resting_as_the_pool_says(self) -> Self {
        let pool = if self.store.is_pool {
            self.pool().ok().flatten()
        } else {
            None
        };
        let cooldown = pool.map_or(self.cooldown, |pool| pool.cooldown());
        Self { cooldown, ..self }
    }

    /// Replaces `pool.json`, for good: once this returns, a power loss does not bring the old one back.
    ///
    /// # Errors
    /// [`common::cni::Code::IO`]: the old file still counts, unless only its directory could not be synced.
    pub fn write_pool(&self, pool: &PoolFile) -> Result<(), Error> {
        let (path, new) = (self.store.pool_path(), self.store.network.join("pool.json.new"));
        let disk = self.store.node.disk;
        let content = pool.to_bytes()?;
        disk.create(&new, &content)
            .map_err(|e| failed("write", &new, &e))?;
        disk.sync(&new).map_err(|e| failed("sync", &new, &e))?;
        disk.rename(&new, &path).map_err(|e| failed("make", &path, &e))?;
        disk.sync(&self.store.network)
            .map_err(|e| failed("sync", &self.store.network, &e))
    }

    /// Removes `pool.json`: this node has no part of the pool any more. The store stays as long as leases live.
    ///
    /// # Errors
    /// [`common::cni::Code::IO`].
    pub fn remove_pool(&self) -> Result<(), Error> {
        self.remove(&self.store.pool_path())?;
        self.store
            .node
            .disk
            .sync(&self.store.network)
            .map_err(|e| failed("sync", &self.store.network, &e))
    }
}
