// SPDX-License-Identifier: Apache-2.0
//! Addresses that are also objects of the cluster: requested before the lease is made, released after it has
//! ended.
//!
//! ```text
//! boot-<boot id>/asking/<container id>@<ifname>   an ADD that has a request at the agent: the request's ID
//! releases/<address>                              the lease that held it; the agent deletes the object, then this file
//! ```
//!
//! Invariant: a lease with such an address is made only while the owner's file in `asking/` has the ID of the
//! request that got the address. So the agent may release an address of an attachment without a lease, once
//! it has removed that file under the lock. An ADD that was stopped for a minute meanwhile finds the file
//! gone, or that of a later ADD of the same attachment; it fails, and holds no address of another pod.

use super::error::{failed, is_full};
use super::lease::{Lease, ended, is_without_del};
use super::{Locked, Store, lease_name};
use common::cni::{Attachment, Error};
use ipnetwork::IpNetwork;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An address whose lease has ended, while its object in the cluster still exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    /// The address.
    pub ip: IpAddr,
    /// The lease that held it; `None` if the file cannot be read.
    pub lease: Option<Lease>,
    /// The end of the lease, on the clock of its boot.
    pub ended: Option<Duration>,
    /// Whether the lease ended without DEL. A process of its pod may still use the address.
    pub without_del: bool,
    /// The inode of the file.
    pub inode: u64,
}

impl Released {
    /// Whether the address has rested for `cooldown` at the time `now`, so that other nodes may allocate it.
    pub fn has_rested(&self, now: Duration, cooldown: Duration) -> bool {
        // A time in the future belongs to an earlier boot.
        let rested = |ended| now.checked_sub(ended).is_none_or(|rested| rested >= cooldown);
        self.ended.is_none_or(rested)
    }
}

/// The ID of the requests of one ADD: an ADD that repeats a stopped one has another ID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(String);

impl RequestId {
    /// A random ID of 64 bits. The standard library takes the keys of its hash maps from the kernel, and no two states of
    /// a thread have the same keys.
    pub fn random() -> Self {
        Self(format!("{:016x}", RandomState::new().hash_one(())))
    }
}

impl Store<'_> {
    fn asking_path(&self, owner: &Attachment) -> PathBuf {
        self.boot.join("asking").join(lease_name(owner))
    }

    pub(super) fn release_path(&self, ip: IpAddr) -> PathBuf {
        self.network.join("releases").join(ip.to_string())
    }

    /// Whether an ADD of `owner` has a request at the agent, or was killed while it had one.
    pub fn is_asking(&self, owner: &Attachment) -> bool {
        self.may_exist(&self.asking_path(owner))
    }

    /// The addresses whose objects the agent must delete, in no order.
    ///
    /// # Errors
    /// [`common::cni::Code::IO`] if the directory cannot be listed.
    pub fn releases(&self) -> Result<Vec<Released>, Error> {
        let disk = self.node.disk;
        let path = self.network.join("releases");
        let names = match disk.list(&path, usize::MAX) {
            Ok(names) => names,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(failed("list", &path, &e)),
        };
        let released = |ip: IpAddr| {
            let inode = disk.identity(&self.release_path(ip)).ok()?.inode;
            let content = disk.read(&self.release_path(ip)).ok()?;
            Some(Released {
                ip,
                lease: Lease::from_file(&content).ok(),
                ended: ended(&content),
                without_del: is_without_del(&content),
                inode,
            })
        };
        let ips = names.iter().filter_map(|name| name.to_str()?.parse().ok());
        Ok(ips.filter_map(released).collect())
    }
}

impl Locked<'_> {
    /// Records that an ADD of `owner` is about to request addresses from the agent. The answer to an earlier ADD becomes no
    /// lease from here on.
    ///
    /// # Errors
    /// [`common::cni::Code::IO`].
    pub fn begin_asking(&self, owner: &Attachment, request: &RequestId) -> Result<(), Error> {
        let path = self.store.asking_path(owner);
        let written = match self.write_request(&path, request) {
            // Addresses that have finished resting have a block each.
            Err((_, _, e)) if is_full(&e) && self.sweep(usize::MAX) > 0 => self.write_request(&path, request),
            written => written,
        };
        written.map_err(|(action, of, e)| {
            // The file may be there without its content.
            let _ = self.store.node.disk.unlink(&path);
            failed(action, &of, &e)
        })
    }

    /// Writes the file of a request, and makes the directories of its beginning and its end. An error names its action and its path.
    fn write_request(
        &self,
        path: &Path,
        request: &RequestId,
    ) -> Result<(), (&'static str, PathBuf, io::Error)> {
        let disk = self.store.node.disk;
        for directory in [
            self.store.boot.join("asking"),
            self.store.network.join("releases"),
        ] {
            disk.make_directory(&directory)
                .map_err(|e| ("make the directory", directory, e))?;
        }
        disk.create(path, request.0.as_bytes())
            .map_err(|e| ("write", path.to_owned(), e))
    }

    /// Whether `owner` may still use the answer to its request.
    pub fn is_asking(&self, owner: &Attachment) -> bool {
        self.store.is_asking(owner)
    }

    /// Whether an answer to this request of `owner` may become a lease. If the disk fails, it may not: the agent may have ended
    /// the request.
    ///
    /// # Errors
    /// [`common::cni::Code::IO`].
    pub(crate) fn may_lease(&self, owner: &Attachment, request: &RequestId) -> Result<bool, Error> {
        let path = self.store.asking_path(owner);
        match self.store.node.disk.read(&path) {
            Ok(content) => Ok(content == request.0.as_bytes()),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(failed("read", &path, &e)),
        }
    }

    /// Ends this request of `owner`, and leaves that of a later ADD.
    ///
    /// # Errors
    /// [`common::cni::Code::IO`].
    pub(crate) fn end_request(&self, owner: &Attachment, request: &RequestId) -> Result<(), Error> {
        if self.may_lease(owner, request)? {
            return self.end_asking(owner);
        }
        Ok(())
    }

    /// Ends every request of `owner`: from now on no lease is made from the answer.
    ///
    /// # Errors
    /// [`common::cni::Code::IO`].
    pub fn end_asking(&self, owner: &Attachment) -> Result<(), Error> {
        self.remove(&self.store.asking_path(owner))
    }

    /// Leaves the resting addresses of `block` to the agent, which creates their objects: the block is about to be shared, and until
    /// then each DEL would begin another rest. On a full disk an address stays as it is.
    ///
    /// # Errors
    /// [`common::cni::Code::IO`].
    pub fn hand_over_resting(&self, block: IpNetwork) -> Result<(), Error> {
        let resting = self.named_addresses(&self.store.boot.join("resting"))?;
        for ip in resting.into_iter().filter(|ip| block.contains(*ip)) {
            if self.rest_of(ip).is_some() && !self.holds(ip)? {
                self.hand_over(&self.store.resting_path(ip), ip)?;
            }
        }
        Ok(())
    }

    /// Whether an attachment of this node holds `ip`.
    ///
    /// # Errors
    /// [`common::cni::Code::IO`].
    pub fn holds(&self, ip: IpAddr) -> Result<bool, Error> {
        Ok(self.store.identity(&self.store.address_path(ip))?.is_some())
    }

    /// Removes the record of a release whose object is gone, unless a later lease of the address has ended
    /// since.
    ///
    /// # Errors
    /// [`common::cni::Code::IO`].
    pub fn end_release(&self, released: &Released) -> Result<(), Error> {
        let path = self.store.release_path(released.ip);
        match self.store.identity(&path)? {
            Some(identity) if identity.inode == released.inode => self.remove(&path),
            _ => Ok(()),
        }
    }
}
