// SPDX-License-Identifier: Apache-2.0
//! Markers of the attachments that took a link or an RDMA device from the host: an empty file for each, beside
//! the journal.
//!
//! Every ADD looks whether a dead pod left the link that it asks for, and in exclusive mode the RDMA device. It
//! must find those few attachments without reading the files of all others, of which a node may have
//! thousands.
//!
//! Invariant: while an attachment's file names something that was taken, its marker exists. The marker is
//! created before that line is written and removed after the file. So a kill leaves at most one extra marker of
//! each kind, which costs one read.

use super::{Written, file_name, io_error, make_empty, named_below, written};
use crate::directories;
use crate::error::Error;
use crate::intent::Intent;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What an attachment takes from the host. Each kind has a directory of markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// A whole link.
    Link,
    /// The RDMA device, which in exclusive mode moves into the pod.
    RdmaDevice,
}

impl Taken {
    const ALL: [Self; 2] = [Self::Link, Self::RdmaDevice];

    /// The directory of the markers, below the state directory.
    fn directory(self) -> &'static str {
        match self {
            Self::Link => "whole",
            Self::RdmaDevice => "moved",
        }
    }

    fn is_in(self, intent: &Intent) -> bool {
        match self {
            Self::Link => intent.device.is_some(),
            Self::RdmaDevice => intent.moved().is_some(),
        }
    }
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Link => "whole link",
            Self::RdmaDevice => "RDMA device",
        })
    }
}

/// The markers of one attachment.
#[derive(Clone, Debug)]
pub(super) struct Markers {
    state: PathBuf,
    /// The network, and the name of the attachment's file.
    place: PathBuf,
}

impl Markers {
    /// The markers that belong to the attachment's file at `place` below the directory of attachments.
    pub(super) fn of(state: &Path, place: &Path) -> Self {
        Self {
            state: state.to_owned(),
            place: place.to_owned(),
        }
    }

    /// Creates the markers of what `intent` takes, before the intent is written.
    pub(super) fn set(&self, intent: &Intent) -> Result<(), Error> {
        Taken::ALL
            .into_iter()
            .filter(|taken| taken.is_in(intent))
            .try_for_each(|taken| {
                create_markers(&self.state, taken)?;
                make_empty(&self.state.join(taken.directory()), &self.place)
            })
    }

    /// The kinds of markers that exist.
    pub(super) fn present(&self) -> impl Iterator<Item = Taken> {
        Taken::ALL.into_iter().filter(|taken| self.has(*taken))
    }

    /// Whether the marker of this kind exists.
    pub(super) fn has(&self, taken: Taken) -> bool {
        self.state.join(taken.directory()).join(&self.place).exists()
    }

    /// Removes the other markers, after the file has the intent or, for `None`, before it is removed.
    pub(super) fn unset_others(&self, intent: Option<&Intent>) -> Result<(), Error> {
        let keeps = |taken: &Taken| intent.is_some_and(|intent| taken.is_in(intent));
        Taken::ALL
            .into_iter()
            .filter(|taken| !keeps(taken))
            .try_for_each(|taken| {
                let file = self.state.join(taken.directory()).join(&self.place);
                match fs::remove_file(&file) {
                    Err(e)
                        if e.kind() != io::ErrorKind::NotFound
                            && e.kind() != io::ErrorKind::NotADirectory =>
                    {
                        Err(io_error("remove", &file, e))
                    }
                    _ => Ok(()),
                }
            })
    }
}

/// The journal entries of every network that took this from the host, sorted by network and attachment. Takes no locks, as
/// [`written`].
pub(crate) fn takers(state: &Path, taken: Taken) -> Result<Vec<Written>, Error> {
    create_markers(state, taken)?;
    let all = named_below(state, &state.join(taken.directory()))?;
    let mut takers = all.collect::<Result<Vec<_>, Error>>()?;
    takers.retain(|of| taken.is_in(&of.intent));
    takers.sort_by(|a, b| (&a.network, &a.attachment).cmp(&(&b.network, &b.attachment)));
    Ok(takers)
}

/// Creates the directory of markers if it does not exist. Earlier releases wrote no markers, so all files are
/// read once. Two calls may do this at once: both write the same markers.
fn create_markers(state: &Path, taken: Taken) -> Result<(), Error> {
    let root = state.join(taken.directory());
    if root.exists() || !state.exists() {
        return Ok(());
    }
    let before = written(state)?;
    let marked = before.iter().filter(|of| taken.is_in(&of.intent));
    let unfinished = state.join(format!("{}.{}", taken.directory(), std::process::id()));
    let made = marked
        .map(|of| Path::new(&of.network).join(file_name(&of.attachment)))
        .collect::<Vec<_>>();
    directories::private(&unfinished).map_err(|e| io_error("create", &unfinished, e))?;
    made.iter().try_for_each(|place| make_empty(&unfinished, place))?;
    // The rename makes the directory appear with its full content, or not at all.
    if fs::rename(&unfinished, &root).is_err() {
        let _ = fs::remove_dir_all(&unfinished);
        made.iter().try_for_each(|place| make_empty(&root, place))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
