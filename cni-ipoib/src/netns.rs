// SPDX-License-Identifier: Apache-2.0
//! `CNI_NETNS`, judged: it must be the container's namespace and not our own.

use crate::error::Error;
use common::netns::{self, Netns};
use nix::errno::Errno;
use std::io;
use std::path::Path;

/// Opens the container's namespace for ADD and CHECK.
///
/// # Errors
/// It is gone (code 3), something else, or the plugin's own (code 4): an interface that is meant for a pod would be
/// put among the host's. `CNI_NETNS_OVERRIDE` allows the latter, as in the CNI project's own skeleton.
pub(crate) fn pod(path: &Path, own_allowed: bool) -> Result<Netns, Error> {
    let wrong = |what: String| Error::NetnsWrong {
        path: path.to_owned(),
        what,
    };
    let netns = Netns::open(path).map_err(|e| match e {
        netns::Error::Missing { .. } => Error::NetnsGone(path.to_owned()),
        netns::Error::NotANamespace { .. } => wrong("no network namespace".to_owned()),
        netns::Error::Io { source, .. } => wrong(format!("not to be opened ({source})")),
    })?;
    if !own_allowed && is_own(&netns) {
        return Err(wrong("the namespace of the plugin itself, the host's".to_owned()));
    }
    Ok(netns)
}

/// Opens the container's namespace for DEL and GC, for which one that is gone is no error. `id` is what ADD saw at
/// this path: another namespace there belongs to another container.
///
/// # Errors
/// Something is there that could not be opened: a link may live in it, so its addresses must not be released.
pub(crate) fn pod_if_there(path: &Path, id: Option<(u64, u64)>) -> Result<Option<Netns>, Error> {
    let netns = match Netns::open(path) {
        Ok(netns) => netns,
        Err(netns::Error::Io { path, source }) if is_passing(&source) => {
            return Err(Error::Io {
                what: "open the container's namespace",
                path,
                remedy: "the plugin must run as root, and the node have memory and open files to spare",
                source,
            });
        }
        Err(error) => {
            tracing::debug!(%error, "the container's namespace is gone");
            return Ok(None);
        }
    };
    if is_own(&netns) || id.is_some_and(|id| id != netns.id()) {
        tracing::debug!(path = %path.display(), "another namespace is at this path now");
        return Ok(None);
    }
    Ok(Some(netns))
}

/// Whether the same path may well be opened later: the failure tells of this process or node, not of the path.
fn is_passing(error: &io::Error) -> bool {
    let passing = [
        Errno::EACCES,
        Errno::EPERM,
        Errno::EMFILE,
        Errno::ENFILE,
        Errno::ENOMEM,
    ];
    error
        .raw_os_error()
        .is_some_and(|errno| passing.contains(&Errno::from_raw(errno)))
}

fn is_own(netns: &Netns) -> bool {
    Netns::current().is_ok_and(|own| own.is_same(netns))
}

#[cfg(test)]
mod tests;
