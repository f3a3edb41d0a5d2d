// SPDX-License-Identifier: Apache-2.0
//! Directories of boots: the first call of a boot creates its own and removes those of earlier boots.
//!
//! A different boot id does not prove another kernel. LXC and systemd-nspawn bind a random id over
//! `/proc/sys/kernel/random/boot_id` (`lxc_setup_boot_id`, `setup_boot_id`) while a pod on such a node has
//! its own `/proc`. A container that is restored from a checkpoint also gets another id. So the leases
//! themselves are checked.
//!
//! Invariant: a call that reads another boot id never deletes a lease whose network namespace this kernel
//! still has. Invariant: the plugin removes only what it made.

use super::Store;
use super::error::{failed, is_nowhere};
use super::lease::Lease;
use super::sandbox::NetnsFile;
use crate::clock::{BOOT_ID, is_boot_id};
use common::cni::{Attachment, Code, Error};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The prefix of the directory name of a boot.
const PREFIX: &str = "boot-";

/// The directories that a boot has from the start.
const DIRECTORIES: [&str; 3] = ["leases", "addresses", "resting"];

/// Lease files round the time up to whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(1);

impl Store<'_> {
    /// Creates the directory of this boot atomically, and removes those of earlier boots.
    ///
    /// # Errors
    /// [`Code::INVALID_CONFIG`] on a file system that other nodes may have mounted: their leases would look
    /// like those of an earlier boot. [`Code::STORE_CORRUPT`] if leases of another boot id are alive, and for
    /// a foreign directory.
    pub(super) fn begin_boot(&self) -> Result<(), Error> {
        self.require_own_disk()?;
        self.require_other_boots_ended(None)?;
        self.clear_earlier_boots()?;
        self.make_boot()
    }

    /// Fails if leases of another boot id are alive; with an owner, only if one of them is the owner's.
    ///
    /// # Errors
    /// [`Code::STORE_CORRUPT`] with the namespace that proves it, [`Code::IO`].
    pub(super) fn require_other_boots_ended(&self, concerns: Option<&Attachment>) -> Result<(), Error> {
        self.require_other_boots_of_ended(&self.network, concerns)
    }

    /// As [`Store::require_other_boots_ended`], for the network whose directory is `network`.
    ///
    /// # Errors
    /// Those of [`Store::require_other_boots_ended`].
    pub(super) fn require_other_boots_of_ended(
        &self,
        network: &Path,
        concerns: Option<&Attachment>,
    ) -> Result<(), Error> {
        for boot in self.other_boots(network)? {
            let name = |owner: &Attachment| boot.join("leases").join(super::lease_name(owner));
            if concerns.is_some_and(|owner| !self.may_exist(&name(owner))) {
                continue;
            }
            if let Some(lease) = self.living_lease(&boot)? {
                return Err(self.lives(&boot, &lease));
            }
        }
        Ok(())
    }

    fn require_own_disk(&self) -> Result<(), Error> {
        let network = &self.network;
        match self.node.disk.shared(network) {
            Ok(None) => Ok(()),
            Ok(Some(kind)) => Err(Error::new(
                Code::INVALID_CONFIG,
                format!(
                    "{} lies on {kind}, which is not known to be this node's alone; set ipam.dataDir to a directory on a local disk (ext4, XFS, Btrfs, …) or in memory, such as /run/rdma-ipam",
                    network.display()
                ),
            )),
            Err(e) => Err(failed("read the file system type of", network, &e)),
        }
    }

    /// The directories of other boot ids that this plugin made in `network`.
    fn other_boots(&self, network: &Path) -> Result<Vec<PathBuf>, Error> {
        let names = match self.node.disk.list(network, usize::MAX) {
            Ok(names) => names,
            Err(e) if is_nowhere(&e) => return Ok(Vec::new()),
            Err(e) => return Err(failed("list", network, &e)),
        };
        let of_another = |name: &&std::ffi::OsString| {
            let id = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            id.is_some_and(|id| is_boot_id(id) && id != self.boot_id)
        };
        let paths = names.iter().filter(of_another).map(|name| network.join(name));
        Ok(paths.filter(|path| self.is_of_this_plugin(path)).collect())
    }

    fn is_of_this_plugin(&self, boot: &Path) -> bool {
        let is_directory = |path: &Path| self.node.disk.identity(path).is_ok_and(|it| it.directory);
        is_directory(boot) && is_directory(&boot.join("leases")) && is_directory(&boot.join("addresses"))
    }

    /// A lease of `boot` that this kernel made and whose namespace still exists. `None` if another kernel
    /// made the directory, or no lease in it is alive.
    ///
    /// Two facts prove another kernel: a lease from a time that this kernel has not reached yet, and
    /// namespaces that are gone. Leases without a namespace, and damaged ones, prove nothing.
    fn living_lease(&self, boot: &Path) -> Result<Option<Lease>, Error> {
        let disk = self.node.disk;
        let now = self.node.clock.since_boot()?;
        let directory = boot.join("leases");
        let names = match disk.list(&directory, usize::MAX) {
            Ok(names) => names,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed("list", &directory, &e)),
        };
        let mut living = None;
        for name in names {
            let Some(lease) = self.lease_in(&directory.join(name)) else {
                continue;
            };
            if lease.since_boot > now + ROUNDING {
                return Ok(None);
            }
            let lives = lease.sandbox.netns.as_ref().is_some_and(NetnsFile::lives);
            if lives && living.is_none() {
                living = Some(lease);
            }
        }
        Ok(living)
    }

    fn lives(&self, boot: &Path, lease: &Lease) -> Error {
        let netns = lease
            .sandbox
            .netns
            .as_ref()
            .map(|netns| netns.path.display().to_string());
        Error::new(
            Code::STORE_CORRUPT,
            format!(
                "{} has the lease of {}, whose network namespace {} still exists, so this kernel made it; but {BOOT_ID} now reads {}. A container manager (LXC, systemd-nspawn) covers that file for some processes, or the node was restored from a checkpoint. Unmount the cover, so that the plugin and the agent read one boot id; if the node did reboot, remove that directory",
                boot.display(),
                lease.describe(),
                netns.unwrap_or_default(),
                self.boot_id
            ),
        )
    }

    /// Removes the directories of earlier boots. A directory that cannot be removed does no harm, so pods
    /// still start.
    fn clear_earlier_boots(&self) -> Result<(), Error> {
        for path in self.other_boots(&self.network)? {
            match self.node.disk.remove_tree(&path) {
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    tracing::warn!(dir = %path.display(), error = %e, "cannot remove the leases of an earlier boot; remove the directory by hand");
                }
                _ => tracing::debug!(dir = %path.display(), "removed the leases of an earlier boot"),
            }
        }
        Ok(())
    }

    fn make_boot(&self) -> Result<(), Error> {
        let Self {
            node, network, boot, ..
        } = self;
        let unfinished = network.join("boot-unfinished");
        self.require_unused(&unfinished)?;
        for directory in DIRECTORIES {
            let path = unfinished.join(directory);
            node.disk
                .make_directory(&path)
                .map_err(|e| failed("make the directory", &path, &e))?;
        }
        node.disk
            .rename(&unfinished, boot)
            .map_err(|e| failed("make the directory", boot, &e))
    }

    /// A killed call may have left some of the empty directories. Anything else is not ours to rename.
    fn require_unused(&self, unfinished: &Path) -> Result<(), Error> {
        let disk = self.node.disk;
        let names = match disk.list(unfinished, DIRECTORIES.len() + 1) {
            Ok(names) => names,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(failed("list", unfinished, &e)),
        };
        let ours = |name: &std::ffi::OsString| {
            let known = DIRECTORIES.iter().any(|directory| name == directory);
            known
                && disk
                    .list(&unfinished.join(name), 1)
                    .is_ok_and(|inside| inside.is_empty())
        };
        match names.iter().find(|name| !ours(name)) {
            None => Ok(()),
            Some(name) => Err(super::corrupt(
                unfinished,
                &format!("{} in it is not of this plugin", name.display()),
                "move it away, or set ipam.dataDir to a directory of this plugin's own",
            )),
        }
    }
}
