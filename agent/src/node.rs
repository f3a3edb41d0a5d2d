// SPDX-License-Identifier: Apache-2.0
//! This node's files, through the store of `ipam`. Blocking operations run on a thread for blocking work.
//!
//! Invariant: `pool.json` is written under the store's lock, based on the content that was read under the same lock.
//!
//! Invariant: the agent acts only on a `pool.json` that a power loss does not replace by an earlier one. A process that died, or
//! an error of the disk, may have left the new file without the sync of its directory. So a process syncs the directory of each
//! pool before it first uses the pool's store, and again after each error.

use block::{LocalBlock, Mode, Usage};
use common::cni::id::is_name;
use common::cni::{Code, Error};
use ipam::clock::KernelClock;
use ipam::config::Place;
use ipam::pool::{Block, BlockState, POOLS, PoolFile, PoolName};
use ipam::store::{Disk, LOCK_WAIT, Leases, Locked, NodeDisk, Released, Store, Unattributed};
use ipnetwork::IpNetwork;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The stores of this node's pools.
#[derive(Clone)]
pub struct Stores {
    data_dir: Arc<Path>,
    disk: Arc<dyn Disk + Send + Sync>,
    /// The pools whose directories are synced.
    synced: Arc<Mutex<HashSet<PoolName>>>,
}

/// What a node's files contain about one pool.
#[derive(Clone, Debug, Default)]
pub struct LocalPool {
    /// The file; none if this node has no part of the pool.
    pub file: Option<PoolFile>,
    /// The use of each requested block, in the order of the request.
    pub usage: Vec<Usage>,
}

impl Stores {
    /// The stores below `data_dir`.
    pub fn new(data_dir: PathBuf) -> Self {
        Self {
            data_dir: data_dir.into(),
            disk: Arc::new(NodeDisk),
            synced: Arc::default(),
        }
    }

    /// The pools that have files on this node.
    pub fn pools(&self) -> Vec<PoolName> {
        let entries = std::fs::read_dir(self.data_dir.join(POOLS))
            .into_iter()
            .flatten()
            .flatten();
        let name = |entry: std::fs::DirEntry| PoolName::try_from(entry.file_name().into_string().ok()?).ok();
        entries.filter_map(name).collect()
    }

    /// Whether this node has a `pool.json` for `pool`.
    pub fn has_file(&self, pool: &PoolName) -> bool {
        let directory = self.data_dir.join(POOLS).join(pool.as_str());
        directory.join("pool.json").exists()
    }

    /// The networks with ranges that have leases on this node.
    pub fn networks(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.data_dir).into_iter().flatten().flatten();
        let name = |entry: std::fs::DirEntry| entry.file_name().into_string().ok();
        let mut networks: Vec<String> = entries.filter_map(name).collect();
        networks.retain(|name| name != POOLS && is_name(name) && self.data_dir.join(name).is_dir());
        networks
    }

    /// Runs `work` on the store of `pool`, on a thread for blocking work. If the directory of the pool may not be synced, syncs it
    /// first.
    ///
    /// # Errors
    /// The errors of `work`, and [`Code::IO`].
    pub async fn with<T: Send + 'static>(
        &self,
        pool: &PoolName,
        work: impl FnOnce(&Store<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (synced, name) = (self.synced.clone(), pool.clone());
        self.at(Place::of_pool(&self.data_dir, pool), move |store| {
            let synced = || synced.lock().unwrap_or_else(PoisonError::into_inner);
            let is_synced = synced().contains(&name);
            if !is_synced {
                store.sync()?;
                synced().insert(name.clone());
            }
            work(store).inspect_err(|_| {
                synced().remove(&name);
            })
        })
        .await
    }

    /// Runs `work` on the store of a network with ranges, on a thread for blocking work.
    ///
    /// # Errors
    /// The errors of `work`.
    pub async fn with_ranges<T: Send + 'static>(
        &self,
        network: &str,
        work: impl FnOnce(&Store<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.at(Place::of_ranges(&self.data_dir, network), work).await
    }

    async fn at<T: Send + 'static>(
        &self,
        place: Place,
        work: impl FnOnce(&Store<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let disk = self.disk.clone();
        let done = tokio::task::spawn_blocking(move || {
            let node = ipam::store::Node {
                disk: &*disk,
                clock: &KernelClock,
                lock_wait: LOCK_WAIT,
            };
            work(&Store::new(&place, &node)?)
        });
        done.await.unwrap_or_else(|e| {
            Err(Error::new(
                Code::INTERNAL,
                format!("the store's thread ended: {e}"),
            ))
        })
    }

    /// All leases of `pool` on this node.
    ///
    /// # Errors
    /// [`Code::IO`].
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method alone has one lifetime too few"
    )]
    pub async fn leases(&self, pool: &PoolName) -> Result<Leases, Error> {
        self.with(pool, |store| store.leases()).await
    }

    /// All leases of `pool` on this node, and the taken addresses that none of the readable ones has.
    ///
    /// # Errors
    /// [`Code::IO`], [`Code::STORE_CORRUPT`], [`Code::TRY_AGAIN`].
    pub async fn held(&self, pool: &PoolName) -> Result<(Leases, Vec<Unattributed>), Error> {
        self.with(pool, |store| match store.enter_existing()? {
            Some(locked) => locked.held(),
            None => Ok((Leases::default(), Vec::new())),
        })
        .await
    }

    /// Hands over the resting addresses of `block`, as [`Locked::hand_over_resting`].
    ///
    /// # Errors
    /// [`Code::IO`], [`Code::TRY_AGAIN`].
    pub async fn hand_over_resting(&self, pool: &PoolName, block: IpNetwork) -> Result<(), Error> {
        self.with(pool, move |store| match store.enter_existing()? {
            Some(locked) => locked.hand_over_resting(block),
            None => Ok(()),
        })
        .await
    }

    /// The addresses of `pool` whose leases have ended and whose objects must be released.
    ///
    /// # Errors
    /// [`Code::IO`].
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method alone has one lifetime too few"
    )]
    pub async fn releases(&self, pool: &PoolName) -> Result<Vec<Released>, Error> {
        self.with(pool, |store| store.releases()).await
    }

    /// Reads the file of `pool` and the use of each of `blocks`.
    ///
    /// # Errors
    /// [`Code::IO`], [`Code::STORE_CORRUPT`], [`Code::TRY_AGAIN`].
    pub async fn holdings(&self, pool: &PoolName, blocks: Vec<IpNetwork>) -> Result<LocalPool, Error> {
        self.with(pool, move |store| {
            let locked = store.enter_existing()?;
            // Leases may exist without a file.
            let file = store.pool()?;
            let usage = match locked {
                Some(locked) => usage(&locked, file.as_ref(), &blocks)?,
                None => vec![Usage::default(); blocks.len()],
            };
            Ok(LocalPool { file, usage })
        })
        .await
    }

    /// Changes the file of `pool` under the store's lock. If `change` returns none, nothing is written. Returns whether the file
    /// was written.
    ///
    /// # Errors
    /// The errors of `change`, [`Code::IO`], [`Code::STORE_CORRUPT`], [`Code::TRY_AGAIN`].
    pub async fn edit(
        &self,
        pool: &PoolName,
        change: impl FnOnce(&Locked<'_>, Option<PoolFile>) -> Result<Option<PoolFile>, Error> + Send + 'static,
    ) -> Result<bool, Error> {
        self.with(pool, move |store| {
            let locked = store.enter()?;
            let before = locked.pool()?;
            match change(&locked, before.clone())? {
                Some(after) if before.as_ref() != Some(&after) => locked.write_pool(&after).map(|()| true),
                _ => Ok(false),
            }
        })
        .await
    }
}

/// The use of each of `blocks`, if `file` is the content of the pool's file.
///
/// # Errors
/// [`Code::IO`], [`Code::STORE_CORRUPT`].
pub(crate) fn usage(
    locked: &Locked<'_>,
    file: Option<&PoolFile>,
    blocks: &[IpNetwork],
) -> Result<Vec<Usage>, Error> {
    let usage = locked.usage(file, blocks)?;
    Ok(usage
        .iter()
        .map(|block| Usage {
            leased: block.taken,
            unpublished: block.taken,
            resting: block.resting,
            unusable: block.unusable,
            suspect: block.suspect,
        })
        .collect())
}

/// The block `name` as the file stores it.
pub(crate) fn local_block(file: Option<&PoolFile>, name: &str) -> Option<LocalBlock> {
    let block = file?.blocks.iter().find(|block| block.name == name)?;
    Some(LocalBlock {
        epoch: block.epoch,
        mode: match block.state {
            BlockState::Active => Mode::Active,
            BlockState::Draining => Mode::Draining,
            BlockState::Sharing => Mode::Sharing,
            BlockState::Shared => Mode::Shared,
        },
    })
}

/// The file's entry for a block.
pub(crate) fn entry(name: &str, cidr: IpNetwork, local: LocalBlock) -> Block {
    Block {
        name: name.to_owned(),
        cidr,
        epoch: local.epoch,
        state: match local.mode {
            Mode::Active => BlockState::Active,
            Mode::Draining => BlockState::Draining,
            Mode::Sharing => BlockState::Sharing,
            Mode::Shared => BlockState::Shared,
        },
    }
}

#[cfg(test)]
mod tests;
