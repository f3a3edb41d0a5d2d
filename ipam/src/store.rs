// SPDX-License-Identifier: Apache-2.0
//! The leases of one network on one node, as files that an administrator can read (docs/store.md).
//!
//! ```text
//! <dataDir>/.lock                        held while an address is allocated that other networks must not have
//! <dataDir>/<network>/lock               held by the working process (flock(2))
//!                     cursors/<range>    the address that the range gave last
//!                     boot-<boot id>/leases/<container id>@<ifname>   a lease; a file becomes a lease by this name
//!                                    addresses/<address>     hard link to the lease that holds it
//!                                    resting/<address>       hard link to the lease that held it
//!                                    adding                  a lease that ADD is making
//!                                    removing                a lease that DEL is ending
//! ```
//!
//! Invariants, at whatever instruction a process dies:
//! - Two leases never hold one address: its file in `addresses/` is created before the lease, and removed
//!   after it. Of two networks that must not share an address, one at a time looks for a free address and makes
//!   its lease (`siblings.rs`).
//! - A lease takes effect by one rename (`adding` to `leases/…`) and ends by one (`leases/…` to `removing`).
//!   The next process that takes the lock undoes `adding` and finishes `removing`. If the disk is too full for
//!   the second rename, the lease ends with the removal of its name in `leases/`.
//! - Leases of an earlier boot are void: their namespaces ended with their kernel. So nothing needs to
//!   survive a power loss, nothing is synced, and what a power loss damages is never read again. A different
//!   boot id alone does not prove another kernel: leases whose namespaces still exist stay (`boots.rs`).

mod block;
mod boots;
mod disk;
mod error;
mod journal;
mod lease;
mod lock;
mod pending;
mod pool;
mod query;
mod sandbox;
mod siblings;
mod used;

use crate::clock::Clock;
use crate::config::Place;
use crate::pool::PoolFile;
use common::cni::{Attachment, Code, Error};
use common::lock::current;
pub(crate) use error::is_nowhere;
use error::{corrupt, failed};
use lock::Lock;
use siblings::Siblings;
use std::fs::{File, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use block::{BlockUse, Leases, StoredLease, Unattributed};
pub use disk::{Disk, Identity, NodeDisk};
pub use lease::Lease;
pub use pending::{Released, RequestId};
pub use sandbox::{Fate, NetnsFile, Sandbox};

/// How long a call waits for other calls on the same network. A call takes about a millisecond; runtimes wait
/// minutes.
pub const LOCK_WAIT: Duration = Duration::from_secs(10);

/// How many times a lock file that keeps being replaced is opened.
const LOCK_ATTEMPTS: usize = 10;

/// What a store depends on.
pub struct Node<'n> {
    /// Its file system.
    pub disk: &'n dyn Disk,
    /// Its clock.
    pub clock: &'n dyn Clock,
    /// How long to wait for the lock.
    pub lock_wait: Duration,
}

/// The leases of one network.
pub struct Store<'n> {
    node: &'n Node<'n>,
    name: String,
    network: PathBuf,
    boot_id: String,
    boot: PathBuf,
    cooldown: Duration,
    is_pool: bool,
}

/// The leases of one network, locked against other processes.
pub struct Locked<'s> {
    store: &'s Store<'s>,
    cooldown: Duration,
    /// The other networks that may have an address of this one; `None` if each keeps its own.
    siblings: Option<Siblings>,
    _lock: Lock,
}

impl<'n> Store<'n> {
    /// The store at `place`; touches no file of it.
    ///
    /// # Errors
    /// [`Code::IO`] if the kernel does not report the boot id.
    pub fn new(place: &Place, node: &'n Node<'n>) -> Result<Self, Error> {
        let boot_id = node.clock.boot_id()?;
        let boot = place.dir.join(format!("boot-{boot_id}"));
        Ok(Self {
            node,
            boot_id,
            name: place.name.clone(),
            network: place.dir.clone(),
            boot,
            cooldown: place.cooldown,
            is_pool: place.is_pool,
        })
    }

    /// Takes the lock, creates the store if necessary, and repairs what a killed process left.
    ///
    /// # Errors
    /// [`Code::TRY_AGAIN`] if another process holds the lock too long; [`Code::IO`] and
    /// [`Code::STORE_CORRUPT`].
    pub fn enter(&self) -> Result<Locked<'_>, Error> {
        self.enter_as_configured().map(Locked::with_cooldown_of_pool)
    }

    /// As [`Store::enter`], and returns the pool of this store; `None` if the agent has not written it.
    ///
    /// # Errors
    /// Those of [`Store::enter`] and [`Store::pool`].
    pub fn enter_pool(&self) -> Result<(Locked<'_>, Option<PoolFile>), Error> {
        let locked = self.enter_as_configured()?;
        let pool = locked.pool()?;
        let cooldown = pool.as_ref().map_or(self.cooldown, PoolFile::cooldown);
        Ok((Locked { cooldown, ..locked }, pool))
    }

    fn enter_as_configured(&self) -> Result<Locked<'_>, Error> {
        let locked = Locked {
            store: self,
            cooldown: self.cooldown,
            siblings: None,
            _lock: self.lock(&self.lock_path())?,
        };
        if self.identity(&self.boot)?.is_none() {
            self.begin_boot()?;
        }
        locked.recover()?;
        Ok(locked)
    }

    /// Takes the lock if a store of this boot exists. Creates no store: at most the file of the lock, which a person may have removed.
    ///
    /// # Errors
    /// As [`Store::enter`], and [`Code::STORE_CORRUPT`] if leases of another boot id are alive.
    pub fn enter_existing(&self) -> Result<Option<Locked<'_>>, Error> {
        self.enter_if_there(None)
    }

    /// As [`Store::enter_existing`], for one attachment: leases of another boot id that are alive are an
    /// error only if one of them is this attachment's.
    ///
    /// # Errors
    /// Those of [`Store::enter_existing`].
    pub fn enter_for(&self, owner: &Attachment) -> Result<Option<Locked<'_>>, Error> {
        self.enter_if_there(Some(owner))
    }

    fn enter_if_there(&self, concerns: Option<&Attachment>) -> Result<Option<Locked<'_>>, Error> {
        match self.node.disk.identity(&self.boot) {
            Ok(_) => {}
            // A path that cannot exist has no store: ADD could not create one there.
            Err(e) if is_nowhere(&e) => {
                self.require_other_boots_ended(concerns)?;
                return Ok(None);
            }
            Err(e) => return Err(failed("look at", &self.boot, &e)),
        }
        let locked = Locked {
            store: self,
            cooldown: self.cooldown,
            siblings: None,
            _lock: self.lock(&self.lock_path())?,
        };
        locked.recover()?;
        Ok(Some(locked.with_cooldown_of_pool()))
    }

    /// The lease of `owner`. Needs no lock, since a lease appears and disappears atomically.
    ///
    /// # Errors
    /// [`Code::STORE_CORRUPT`] if its file is damaged, [`Code::IO`] if it cannot be read.
    pub fn lease(&self, owner: &Attachment) -> Result<Option<Lease>, Error> {
        let path = self.lease_path(owner);
        let content = match self.node.disk.read(&path) {
            Ok(content) => content,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) if e.kind() == ErrorKind::InvalidData => {
                return Err(corrupt(&path, &e.to_string(), "move it away"));
            }
            Err(e) => return Err(failed("read the lease", &path, &e)),
        };
        let remedy = "DEL of this attachment releases its addresses; other attachments are not affected";
        let lease = Lease::from_file(&content).map_err(|what| corrupt(&path, &what, remedy))?;
        if lease.owner == *owner {
            return Ok(Some(lease));
        }
        Err(corrupt(
            &path,
            &format!("it is the lease of {}", lease.owner),
            remedy,
        ))
    }

    /// The lease in the file `path`; `None` if there is none that can be read.
    fn lease_in(&self, path: &Path) -> Option<Lease> {
        let content = self.node.disk.read(path).ok()?;
        Lease::from_file(&content).ok()
    }

    /// The file behind `path`; `None` if it does not exist.
    fn identity(&self, path: &Path) -> Result<Option<Identity>, Error> {
        match self.node.disk.identity(path) {
            Ok(identity) => Ok(Some(identity)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(failed("look at", path, &e)),
        }
    }

    /// Whether `owner` has a lease, damaged or not.
    pub fn has_lease(&self, owner: &Attachment) -> bool {
        self.may_exist(&self.lease_path(owner))
    }

    /// Whether there is a file at `path`. True if stat(2) fails for another reason.
    fn may_exist(&self, path: &Path) -> bool {
        !matches!(self.node.disk.identity(path), Err(e) if is_nowhere(&e))
    }

    /// Whether one of `ips` has a file in `addresses/`, of whatever lease. Needs no lock.
    pub(crate) fn has_address_of(&self, ips: &[IpAddr]) -> bool {
        ips.iter().any(|ip| self.may_exist(&self.address_path(*ip)))
    }

    fn lock_path(&self) -> PathBuf {
        self.network.join("lock")
    }

    /// Takes the lock on the file `path`, and creates the file if necessary.
    fn lock(&self, path: &Path) -> Result<Lock, Error> {
        for _ in 0..LOCK_ATTEMPTS {
            let file = self.open_lock(path)?;
            let probe = file.try_clone().map_err(|e| failed("lock", path, &e))?;
            let lock = Lock::take(file, path, self.node.lock_wait)?;
            let locked = current(&probe, path).map_err(|e| failed("look at", path, &e))?;
            if let Some(locked) = locked {
                self.close_to_others(&probe, &locked);
                return Ok(lock);
            }
        }
        Err(self.vanishing())
    }

    /// Opens the lock file for reading only, so that a read-only disk can still be queried.
    fn open_lock(&self, path: &Path) -> Result<File, Error> {
        // O_NONBLOCK, in case a FIFO has the lock's name.
        let mut reader = OpenOptions::new();
        reader
            .read(true)
            .custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOFOLLOW);
        match reader.open(path) {
            Ok(file) => return Ok(file),
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(failed("open", path, &e)),
        }
        let make_directory = |dir: &Path| {
            self.node
                .disk
                .make_directory(dir)
                .map_err(|e| failed("make the directory", dir, &e))
        };
        make_directory(&self.network)?;
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(disk::FILE_MODE);
        options.custom_flags(nix::libc::O_NOFOLLOW);
        let file = options.open(path);
        file.map_err(|e| failed("make", path, &e))
    }

    /// A store of an earlier version lets any user take the lock. Its modes are corrected as soon as it is
    /// used.
    fn close_to_others(&self, lock: &File, locked: &Metadata) {
        let others = locked.permissions().mode() & 0o177;
        if others == 0 {
            return;
        }
        if let Err(e) = disk::close_to_others(&self.network, lock) {
            tracing::debug!(dir = %self.network.display(), error = %e, "cannot close the store to other users");
        }
    }

    fn vanishing(&self) -> Error {
        Error::new(
            Code::TRY_AGAIN,
            format!(
                "{} is removed again and again by another process; try again",
                self.network.display()
            ),
        )
    }

    fn lease_path(&self, owner: &Attachment) -> PathBuf {
        self.boot.join("leases").join(lease_name(owner))
    }

    fn address_path(&self, ip: IpAddr) -> PathBuf {
        self.boot.join("addresses").join(ip.to_string())
    }

    fn resting_path(&self, ip: IpAddr) -> PathBuf {
        self.boot.join("resting").join(ip.to_string())
    }

    fn adding_path(&self) -> PathBuf {
        self.boot.join("adding")
    }

    fn removing_path(&self) -> PathBuf {
        self.boot.join("removing")
    }
}

/// The name of a lease's file.
fn lease_name(owner: &Attachment) -> String {
    format!("{}@{}", owner.container_id, owner.ifname)
}

impl Locked<'_> {
    /// The lease of `owner`.
    ///
    /// # Errors
    /// As [`Store::lease`].
    pub fn lease(&self, owner: &Attachment) -> Result<Option<Lease>, Error> {
        self.store.lease(owner)
    }

    /// Whether the network of this call made `lease`. The name of a lease's file has no network, and two networks may
    /// name one interface of a container.
    pub(crate) fn is_own(&self, lease: &Lease) -> bool {
        lease.network == self.store.name
    }

    /// The lease of `owner`, if another network made it. A damaged lease does not count, so that DEL ends it.
    pub(crate) fn lease_of_other_network(&self, owner: &Attachment) -> Option<Lease> {
        let lease = self.lease(owner).ok().flatten();
        lease.filter(|lease| !self.is_own(lease))
    }
}

#[cfg(test)]
mod tests;
