// SPDX-License-Identifier: Apache-2.0
//! Markers of the attachments with a whole link: an empty file for each, beside the journal.
//!
//! Every ADD looks whether a dead pod left the link that it asks for. It must find those few attachments
//! without reading the files of all others, of which a node may have thousands.
//!
//! Invariant: while an attachment's file has a whole link, its marker exists. The marker is created before
//! that line is written and removed after the file. So a kill leaves at most one extra marker, which costs
//! one read.

use super::{Journal, Written, attachment_of, io_error, make_empty, names, written};
use crate::directories;
use crate::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The directory of the markers, below the state directory.
const WHOLE: &str = "whole";

/// The marker of one attachment.
#[derive(Clone, Debug)]
pub(super) struct Marker {
    state: PathBuf,
    /// The network, and the name of the attachment's file.
    place: PathBuf,
}

impl Marker {
    /// The marker that belongs to the attachment's file at `place` below the directory of attachments.
    pub(super) fn of(state: &Path, place: &Path) -> Self {
        Self {
            state: state.to_owned(),
            place: place.to_owned(),
        }
    }

    pub(super) fn set(&self) -> Result<(), Error> {
        know(&self.state)?;
        make_empty(&self.state.join(WHOLE), &self.place)
    }

    /// Removes the marker, if it exists.
    pub(super) fn unset(&self) -> Result<(), Error> {
        let file = self.state.join(WHOLE).join(&self.place);
        match fs::remove_file(&file) {
            Err(e) if e.kind() != io::ErrorKind::NotFound && e.kind() != io::ErrorKind::NotADirectory => {
                Err(io_error("remove", &file, e))
            }
            _ => Ok(()),
        }
    }
}

/// The journal entries of every network with a whole link. Takes no locks, as [`written`].
pub(crate) fn whole_links(state: &Path) -> Result<Vec<Written>, Error> {
    know(state)?;
    let root = state.join(WHOLE);
    let mut all = Vec::new();
    for network in names(&root)?.iter().filter_map(|name| name.to_str()) {
        let journal = Journal::new(state, network);
        for name in names(&root.join(network))? {
            let attachment = name.to_str().and_then(attachment_of);
            let intent = attachment.as_ref().and_then(|of| journal.peek(of));
            if let (Some(attachment), Some(intent)) = (attachment, intent.filter(|it| it.device.is_some())) {
                all.push(Written {
                    network: network.to_owned(),
                    attachment,
                    intent,
                });
            }
        }
    }
    Ok(all)
}

/// Creates the directory of markers if it does not exist. Earlier releases wrote no markers, so all files are
/// read once. Two calls may do this at once: both write the same markers.
fn know(state: &Path) -> Result<(), Error> {
    let root = state.join(WHOLE);
    if root.exists() || !state.exists() {
        return Ok(());
    }
    let before = written(state)?;
    let marked = before.iter().filter(|of| of.intent.device.is_some());
    let unfinished = state.join(format!("{WHOLE}.{}", std::process::id()));
    let made = marked
        .map(|of| {
            Path::new(&of.network).join(format!("{}@{}", of.attachment.container_id, of.attachment.ifname))
        })
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
