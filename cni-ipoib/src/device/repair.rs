// SPDX-License-Identifier: Apache-2.0
//! Links that the kernel returned to the host when their pods ended without DEL. DEL and GC restore them. An
//! ADD restores the one that it asks for.
//!
//! Invariant: ADD restores no link that it does not ask for. A journal that cannot be read is not an error of
//! an ADD that may ask for another link.

use super::restore::{delete_links_on, find, restore_state};
use super::{function, hardware_in_pods};
use crate::config::{Master, Preference, Preferences, ResolvedMaster};
use crate::error::{DeviceError, Error};
use crate::intent::Snapshot;
use crate::journal::{Journal, NodeLock, Taken, Written, takers, written};
use crate::kernel::{Kernel, Side};
use crate::select::{Candidate, Loads, candidates, choose};
use common::netlink::Link;
use common::rdma::Sysfs;
use std::path::Path;

/// The attachments with a whole link, as the journal has them.
#[derive(Debug)]
pub(crate) struct Owners {
    all: Vec<Written>,
}

impl Owners {
    /// Reads the journal below `state`.
    pub(crate) fn read(state: &Path) -> Self {
        let all = takers(state, Taken::Link).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read which links are in pods; no link is restored");
            Vec::new()
        });
        Self { all }
    }

    /// Whether no attachment has a whole link.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn with_link(&self) -> impl Iterator<Item = (&Written, &Snapshot)> {
        let all = self.all.iter();
        all.filter_map(|of| Some((of, of.intent.device.as_ref()?)))
    }

    fn dead(&self) -> impl Iterator<Item = (&Written, &Snapshot)> {
        self.with_link()
            .filter(|(of, was)| was.is_of_this_boot() && !of.lives())
    }

    /// The attachment of a dead pod that had `link`.
    pub(crate) fn dead_owner_of(&self, link: &Link) -> Option<&Written> {
        let owner = self.dead().find(|(of, _)| of.owns(link));
        owner.map(|(owner, _)| owner)
    }

    /// Fails if a living pod has `link`, or the ADD for a living pod is about to move it.
    ///
    /// # Errors
    /// [`DeviceError::Taken`].
    pub(crate) fn require_free(&self, link: &Link) -> Result<(), Error> {
        match self.all.iter().find(|of| of.owns(link) && of.lives()) {
            None => Ok(()),
            Some(owner) => Err(taken_by(owner, &link.name)),
        }
    }

    /// `refusal` of an ADD that asks for `master`, or [`DeviceError::Taken`] if a living pod has that link whole: it is not on the
    /// host then.
    pub(crate) fn explain(&self, master: &Master, refusal: Error) -> Error {
        let is_missing = matches!(
            refusal,
            Error::MasterMissing { .. } | Error::DeviceWithoutLink { .. }
        );
        match master {
            Master::Resolved(master) if is_missing => {
                let mut living = self.with_link().filter(|(of, _)| of.lives());
                let taken = living.find(|(_, was)| means(master, was));
                taken.map_or(refusal, |(of, was)| taken_by(of, &was.name))
            }
            _ => refusal,
        }
    }

    /// The attachment whose link a refused ADD asks for by `master`. A description asks for a link only if no
    /// other link of the node fits.
    ///
    /// # Errors
    /// The kernel refuses a request, or sysfs cannot be listed.
    pub(crate) fn asked_for(
        &self,
        kernel: &mut dyn Kernel,
        sysfs: &Sysfs,
        master: &Master,
        refusal: &Error,
    ) -> Result<Option<&Written>, Error> {
        for (owner, was) in self.dead() {
            let asked = match (master, refusal) {
                (Master::Resolved(master), _) => means(master, was),
                (Master::Preferred(preferences), Error::NoMaster { .. }) => {
                    may_mean(kernel, sysfs, preferences, was)?
                }
                (Master::Preferred(_), _) => false,
            };
            if asked {
                return Ok(Some(owner));
            }
        }
        Ok(None)
    }
}

/// The refusal of `link`, which `owner` has.
fn taken_by(owner: &Written, link: &str) -> Error {
    let (link, holder) = (link.to_owned(), owner.to_string());
    DeviceError::Taken { link, holder }.into()
}

/// Restores the link of `owner` and ends its ownership. Does nothing if the kernel has not returned the link yet.
///
/// # Errors
/// The journal cannot be read or written, or the kernel refused. [`Error::Busy`]: another call, which restores the link, works on
/// the attachment.
pub(crate) fn restore_for(
    kernel: &mut dyn Kernel,
    state: &Path,
    owner: &Written,
    _lock: &NodeLock,
) -> Result<(), Error> {
    let Some(mut entry) = Journal::new(state, &owner.network).idle(&owner.attachment)? else {
        return Ok(());
    };
    let intent = entry.intent.clone();
    let Some((intent, was)) = intent.and_then(|intent| intent.device.clone().map(|was| (intent, was))) else {
        return Ok(());
    };
    function::require_bound(kernel, &was)?;
    let Some(link) = find(kernel, Side::Host, &was.hardware)? else {
        return Ok(());
    };
    tracing::info!(link = was.name, attachment = %owner.attachment, "restoring a link that returned from a dead pod");
    restore_returned(kernel, &link, &was, &written(state)?)?;
    // DEL or GC releases its addresses. The link belongs to the host again.
    entry.reduce(intent.without_device())
}

/// Restores a link that is on the host again: the GUIDs of its function, and its state. `others` are the attachments of
/// the node: the links of some may have taken its name.
///
/// Deletes the children that the pod created on it. The kernel moves these to the host when the pod's namespace ends, and
/// sets them down. Only the journal distinguishes them from a child that an ADD is creating: a pod may choose any name and mark.
///
/// # Errors
/// As [`function::restore`] and [`restore_state`].
pub(crate) fn restore_returned(
    kernel: &mut dyn Kernel,
    link: &Link,
    was: &Snapshot,
    others: &[Written],
) -> Result<(), Error> {
    let is_of_pod = |child: &Link| {
        child.kind.as_deref() == Some("ipoib") && !child.up && !others.iter().any(|of| of.is_creating(child))
    };
    delete_links_on(kernel, Side::Host, link, is_of_pod)?;
    let link = function::restore(kernel, link, was)?;
    restore_state(kernel, &link, was, &hardware_in_pods(others))
}

/// Whether `master` is the link `was`, whatever its present name is. Pure.
fn means(master: &ResolvedMaster, was: &Snapshot) -> bool {
    let hardware = &was.hardware;
    match master {
        ResolvedMaster::Named(name) => is_called(was, name),
        ResolvedMaster::Device(id) => {
            let reported = hardware
                .device
                .as_deref()
                .and_then(|device| device.split_once('/'));
            let directory = hardware.path.as_deref().and_then(Path::file_name);
            reported.is_some_and(|(_, device)| device == id)
                || directory.is_some_and(|name| name == id.as_str())
        }
        ResolvedMaster::KernelPath(directory) => {
            let inside = directory.strip_prefix("/sys").unwrap_or(directory);
            hardware.path.as_ref().is_some_and(|path| path.ends_with(inside))
        }
        ResolvedMaster::Address(address) => match address.port_guid() {
            Some(guid) => hardware.port_guid == Some(guid),
            None => hardware.address == *address || was.address == *address,
        },
        ResolvedMaster::DefaultRoute | ResolvedMaster::Unset => false,
    }
}

fn is_called(was: &Snapshot, name: &str) -> bool {
    was.name == name || was.altnames.iter().any(|altname| altname == name)
}

/// Whether the link `was` would fit `preferences` once it is restored.
fn may_mean(
    kernel: &mut dyn Kernel,
    sysfs: &Sysfs,
    preferences: &Preferences,
    was: &Snapshot,
) -> Result<bool, Error> {
    let named = |choice: &Preference| matches!(choice, Preference::Named(name) if is_called(was, name));
    if preferences.choices.iter().any(named) {
        return Ok(true);
    }
    let Some(present) = find(kernel, Side::Host, &was.hardware)? else {
        return Ok(false);
    };
    let all = candidates(kernel, sysfs, preferences, &Loads::new())?;
    let restored = all.into_iter().filter(|one| one.name == present.name);
    let restored: Vec<Candidate> = restored
        .map(|one| Candidate {
            name: was.name.clone(),
            altnames: was.altnames.clone(),
            problem: None,
            aside: None,
            ..one
        })
        .collect();
    Ok(choose(preferences, &restored).is_ok())
}

#[cfg(test)]
mod tests;
