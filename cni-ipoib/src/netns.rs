// SPDX-License-Identifier: Apache-2.0
//! `CNI_NETNS`, judged: it must be the container's namespace and not our own.

use crate::error::Error;
use common::netns::{self, Netns};
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
pub(crate) fn pod_if_there(path: &Path, id: Option<(u64, u64)>) -> Option<Netns> {
    let netns = match Netns::open(path) {
        Ok(netns) => netns,
        Err(error) => {
            tracing::debug!(%error, "the container's namespace is gone");
            return None;
        }
    };
    if is_own(&netns) || id.is_some_and(|id| id != netns.id()) {
        tracing::debug!(path = %path.display(), "another namespace is at this path now");
        return None;
    }
    Some(netns)
}

fn is_own(netns: &Netns) -> bool {
    Netns::current().is_ok_and(|own| own.is_same(netns))
}
