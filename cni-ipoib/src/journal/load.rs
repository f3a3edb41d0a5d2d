// SPDX-License-Identifier: Apache-2.0
//! The number of attachments on each parent: an empty file for each attachment, beside the journal. A child of a macvlan or
//! ipvlan link has a second one, below the parent that the kernel gives it.
//!
//! An ADD that chooses a parent counts these files. For the count it reads no file of another attachment, of
//! which a node may have thousands.
//!
//! Invariant: a file here exists only while the attachment's file does, since it is created later and removed
//! earlier. So a kill leaves no extra file.
//!
//! An error here is logged and fails no call, because a wrong number only makes the choice uneven. A release
//! that does not know these files creates and removes none. GC removes those that it left.

use super::{Written, io_error, make_empty, named_below, names};
use crate::error::Error;
use common::cni::ContainerId;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};

/// The directory below the state directory. Its files are `PARENT/NETWORK/CONTAINER@IFNAME`.
const PARENTS: &str = "parents";

/// The file of one attachment.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    root: PathBuf,
    /// The network, and the name of the attachment's file.
    place: PathBuf,
}

impl Counted {
    /// The file that belongs to the attachment's file at `place` below the directory of attachments.
    pub(super) fn of(state: &Path, place: &Path) -> Self {
        Self {
            root: state.join(PARENTS),
            place: place.to_owned(),
        }
    }

    /// Counts the attachment on `parent`.
    pub(super) fn set(&self, parent: &str) {
        // A damaged journal must not choose another directory.
        if Path::new(parent).file_name() == Some(parent.as_ref()) {
            logged(make_empty(&self.root, &Path::new(parent).join(&self.place)));
        }
    }

    /// Counts the attachment on no parent.
    pub(super) fn unset(&self) {
        for parent in list(&self.root) {
            logged(remove(&self.root.join(parent).join(&self.place)));
        }
    }
}

/// The attachments on a parent, over all networks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// The number of attachments.
    pub all: usize,
    /// How many of them are of the container whose ADD asks.
    pub own: usize,
}

/// The attachments per parent. An attachment counts from its intent to its removal, whether its namespace lives or not.
pub(crate) fn loads(state: &Path, container: Option<&ContainerId>) -> BTreeMap<String, Load> {
    let root = state.join(PARENTS);
    let is_own = |file: &DirEntry| {
        let name = file.file_name();
        let owner = name.to_str().and_then(|name| name.split_once('@'));
        owner.is_some_and(|(owner, _)| container.is_some_and(|container| container.as_str() == owner))
    };
    let mut loads = BTreeMap::new();
    for parent in list(&root).into_iter().filter_map(|name| name.into_string().ok()) {
        let networks = root.join(&parent);
        let mut load = Load::default();
        for network in list(&networks) {
            for file in fs::read_dir(networks.join(network)).into_iter().flatten() {
                load.all += 1;
                load.own += usize::from(file.as_ref().is_ok_and(is_own));
            }
        }
        loads.insert(parent, load);
    }
    loads
}

/// The journal entries of the attachments on `parent`, of every network. Each step of the iterator reads one file, and not
/// the names of the others.
///
/// # Errors
/// [`Error::Io`]: the list of networks cannot be read. A list of attachments that cannot be read is an item of the iterator.
pub(crate) fn on_parent<'s>(
    state: &'s Path,
    parent: &str,
) -> Result<impl Iterator<Item = Result<Written, Error>> + use<'s>, Error> {
    named_below(state, &state.join(PARENTS).join(parent))
}

/// Whether the attachment of the file at `place` counts on `parent`.
pub(super) fn is_counted(state: &Path, parent: &str, place: &Path) -> bool {
    state.join(PARENTS).join(parent).join(place).exists()
}

/// Removes the files of `network` whose attachment is not in the journal at `dir`.
pub(super) fn forget_removed(state: &Path, network: &Path, dir: &Path) {
    let root = state.join(PARENTS);
    for parent in list(&root) {
        let directory = root.join(parent).join(network);
        for name in list(&directory) {
            if !dir.join(&name).exists() {
                logged(remove(&directory.join(name)));
            }
        }
    }
}

fn list(dir: &Path) -> Vec<OsString> {
    logged(names(dir))
}

fn remove(file: &Path) -> Result<(), Error> {
    match fs::remove_file(file) {
        Err(e) if e.kind() != io::ErrorKind::NotFound && e.kind() != io::ErrorKind::NotADirectory => {
            Err(io_error("remove", file, e))
        }
        _ => Ok(()),
    }
}

fn logged<T: Default>(outcome: Result<T, Error>) -> T {
    outcome.unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot count attachments by parent; the choice of a parent is uneven");
        T::default()
    })
}

#[cfg(test)]
mod tests;
