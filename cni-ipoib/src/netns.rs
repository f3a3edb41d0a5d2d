// SPDX-License-Identifier: Apache-2.0
//! Validates `CNI_NETNS`: it must be the container's namespace and not the plugin's own.

use crate::error::Error;
use common::netns::{self, Fate, Netns};
use nix::errno::Errno;
use std::io;
use std::path::Path;

/// Opens the container's namespace for ADD and CHECK.
///
/// # Errors
/// It is gone (code 3), not a namespace, or the plugin's own (code 4): a pod's interface would be created on
/// the host. `CNI_NETNS_OVERRIDE` allows the latter, as in the CNI project's skeleton.
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

/// Opens the container's namespace for DEL and GC; `None` if it is gone. `id` is the namespace that ADD found
/// at this path: another one there belongs to another container.
///
/// # Errors
/// The path exists but could not be opened: a link may exist there, so its addresses must not be released.
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

/// Whether the namespace `id` that ADD found at `path` is proven gone.
pub(crate) fn is_gone(path: &Path, id: (u64, u64)) -> bool {
    Fate::of(path, id).is_proven_gone()
}

/// Whether a later attempt to open the path may succeed: the failure is of this process or node, not of the
/// path.
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
