// SPDX-License-Identifier: Apache-2.0
//! The number of attachments on each parent: an empty file for each attachment, beside the journal.
//!
//! An ADD that chooses a parent counts these files. It reads no file of another attachment, of which a node
//! may have thousands.
//!
//! Invariant: a file here exists only while the attachment's file does, since it is created later and removed
//! earlier. So a kill leaves no extra file.
//!
//! An error here is logged and fails no call, because a wrong number only makes the choice uneven. A release
//! that does not know these files creates and removes none. GC removes those that it left.

use super::{Written, io_error, make_empty, named_below, names};
use crate::error::Error;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
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

/// The number of attachments per parent, over all networks. An attachment counts from its intent to its
/// removal, whether its namespace lives or not.
pub(crate) fn loads(state: &Path) -> BTreeMap<String, usize> {
    let root = state.join(PARENTS);
    let mut loads = BTreeMap::new();
    for parent in list(&root).into_iter().filter_map(|name| name.into_string().ok()) {
        let networks = root.join(&parent);
        let files = |network| fs::read_dir(networks.join(network)).map_or(0, Iterator::count);
        let load = list(&networks).into_iter().map(files).sum();
        loads.insert(parent, load);
    }
    loads
}

/// The journal entries of the attachments on `parent`, of every network. Each step of the iterator reads one file.
///
/// # Errors
/// [`Error::Io`]: a directory cannot be listed.
pub(crate) fn on_parent<'s>(
    state: &'s Path,
    parent: &str,
) -> Result<impl Iterator<Item = Written> + use<'s>, Error> {
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
