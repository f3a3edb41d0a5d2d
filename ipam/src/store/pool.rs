// SPDX-License-Identifier: Apache-2.0
//! The files of a pool besides its leases: `pool.json` and `confirmed`, which the node's agent writes.

use super::error::{failed, is_nowhere};
use super::{Locked, Node, Store};
use crate::pool::{Confirmed, PoolFile, Standing};
use common::cni::Error;
use std::path::PathBuf;
use std::time::Duration;

impl Store<'_> {
    /// The file that describes the pool of this store.
    pub fn pool_path(&self) -> PathBuf {
        self.network.join("pool.json")
    }

    fn confirmed_path(&self) -> PathBuf {
        self.network.join("confirmed")
    }

    /// The pool, if the agent has written it. Read without the lock, it may be outdated at once.
    ///
    /// # Errors
    /// Those of [`PoolFile::read`], and [`common::cni::Code::IO`].
    pub fn pool(&self) -> Result<Option<PoolFile>, Error> {
        let path = self.pool_path();
        match self.node.disk.read(&path) {
            Ok(content) => PoolFile::read(&content, &path).map(Some),
            // A path below a regular file has no pool. The first write there reports that.
            Err(e) if is_nowhere(&e) => Ok(None),
            Err(e) => Err(failed("read the pool", &path, &e)),
        }
    }

    /// Waits until the names of this store's files are on the disk. After that, a power loss does not restore a `pool.json` that
    /// was replaced or removed before.
    ///
    /// # Errors
    /// [`common::cni::Code::IO`].
    pub fn sync(&self) -> Result<(), Error> {
        match self.node.disk.sync(&self.network) {
            Err(e) if !is_nowhere(&e) => Err(failed("sync", &self.network, &e)),
            _ => Ok(()),
        }
    }

    /// When the agent last confirmed that the blocks are this node's; `None` without a record.
    pub fn confirmed(&self) -> Option<Confirmed> {
        let content = self.node.disk.read(&self.confirmed_path()).ok()?;
        Confirmed::read(&content)
    }

    /// Records that the blocks were this node's at `asked`: the time since the boot, before the request that the
    /// API server answered. A record that is at most `recent` older stays.
    ///
    /// If no time service has set the clock, removes the record: the next boot may read it by another clock. If
    /// the record is missing, the next boot waits for the agent, with no other harm.
    ///
    /// # Errors
    /// [`common::cni::Code::IO`].
    pub fn confirm(&self, asked: Duration, recent: Duration) -> Result<(), Error> {
        let (path, new) = (self.confirmed_path(), self.network.join("confirmed.new"));
        let Node { disk, clock, .. } = *self.node;
        // Before the time is read: a time service may set the clock in between.
        if !matches!(clock.is_synchronized(), Ok(true)) {
            return match disk.unlink(&path) {
                Err(e) if !is_nowhere(&e) => Err(failed("remove", &path, &e)),
                _ => Ok(()),
            };
        }
        // The time of day first: the record must not name a time after the request.
        let now = clock.now();
        let at = now - clock.since_boot()?.saturating_sub(asked);
        let is_recent = |Confirmed(last)| at.duration_since(last).is_ok_and(|since| since <= recent);
        if self.confirmed().is_some_and(is_recent) {
            return Ok(());
        }
        disk.create(&new, Confirmed(at).to_line().as_bytes())
            .map_err(|e| failed("write", &new, &e))?;
        disk.rename(&new, &path).map_err(|e| failed("make", &path, &e))
    }

    /// Whether the agent has written the pool.
    pub fn has_pool(&self) -> bool {
        self.may_exist(&self.pool_path())
    }

    /// Whether the plugin may allocate from the blocks of `pool` now.
    pub fn standing(&self, pool: &PoolFile) -> Standing {
        Standing::of(pool, &self.boot_id, self.node.clock, || self.confirmed())
    }
}

impl Locked<'_> {
    /// The pool, which no other process can change while this value is held.
    ///
    /// # Errors
    /// As [`Store::pool`].
    pub fn pool(&self) -> Result<Option<PoolFile>, Error> {
        self.store.pool()
    }

    /// As [`Store::standing`].
    pub fn standing(&self, pool: &PoolFile) -> Standing {
        self.store.standing(pool)
    }

    /// Sets the cooldown of the pool, if this store is part of one. If the pool cannot be read, leases are
    /// released all the same. Their addresses rest until the pool can be read.
    pub(super) fn with_cooldown_of_pool(self) -> Self {
        let cooldown = self.readable_pool().map_or(self.cooldown, |pool| pool.cooldown());
        Self { cooldown, ..self }
    }

    /// The pool, if this store is part of one and its file can be read.
    pub(super) fn readable_pool(&self) -> Option<PoolFile> {
        self.store.is_pool.then(|| self.pool().ok().flatten()).flatten()
    }

    /// Replaces `pool.json` durably: after this returns, a power loss does not restore the old file.
    ///
    /// # Errors
    /// [`common::cni::Code::IO`]: the old file is still valid, unless only the sync of its directory failed.
    pub fn write_pool(&self, pool: &PoolFile) -> Result<(), Error> {
        let (path, new) = (self.store.pool_path(), self.store.network.join("pool.json.new"));
        let disk = self.store.node.disk;
        let content = pool.to_bytes()?;
        self.forget_other_blocks(self.pool().ok().flatten().as_ref(), pool)?;
        disk.create(&new, &content)
            .map_err(|e| failed("write", &new, &e))?;
        disk.sync(&new).map_err(|e| failed("sync", &new, &e))?;
        disk.rename(&new, &path).map_err(|e| failed("make", &path, &e))?;
        self.store.sync()
    }

    /// Removes `pool.json`: this node has no part of the pool any more. The store stays while it has leases.
    ///
    /// # Errors
    /// [`common::cni::Code::IO`].
    pub fn remove_pool(&self) -> Result<(), Error> {
        self.remove(&self.store.pool_path())?;
        self.store.sync()
    }
}
