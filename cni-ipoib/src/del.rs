// SPDX-License-Identifier: Apache-2.0
//! DEL: removes everything that ADD made, from a complete or an interrupted ADD, with or without the
//! container.

use crate::config::Identity;
use crate::error::Error;
use crate::journal::Entry;
use crate::node::Node;
use crate::teardown::{Caller, DetachTarget, take_down};
use common::cni::dispatch::Call;
use common::cni::{self, Attachment, Delegate};
use std::path::Path;

/// Detaches a container.
///
/// # Guarantees
/// Succeeds if there is nothing to do: repeated, without namespace, without `prevResult`, with the parent
/// gone. A link is deleted only if it has this attachment's mark, matches the journal, or is proven by
/// `prevResult` to be its own. Under a peer's name, and without a journal entry, the name proves it. The
/// addresses are released once no link has them any more.
///
/// # Caveats
/// If the link cannot be deleted, the addresses stay allocated, and DEL fails. containerd then retries, unless
/// ADD had failed; CRI-O does not retry. Without a retry the agent collects (docs/design/garbage.md). A link
/// that the pod has moved into another namespace is found only after the end of that namespace.
pub(crate) fn del(
    node: &Node,
    call: &Call,
    attachment: &Attachment,
    netns: Option<&Path>,
) -> Result<(), cni::Error> {
    let identity = Identity::read(call);
    let mut entry = entry_for_del(node, call, attachment)?;
    let intent = entry.as_ref().and_then(|entry| entry.intent.clone());
    let done = entry.as_ref().is_some_and(|entry| entry.done);
    let mut ipam = identity
        .ipam
        .clone()
        .or_else(|| intent.as_ref().and_then(|intent| intent.ipam.clone()));
    if let (Some(plugin), Some(_), None) = (&ipam, &entry, &intent)
        && let Err(error) = Delegate::new(plugin, call, identity.delegate_timeout)?.program()
    {
        // ADD was refused for the same reason, so nothing is allocated. An error would keep the pod forever.
        tracing::warn!(%error, "IPAM plugin is missing, so it holds no address; nothing to release");
        ipam = None;
    }
    let target = DetachTarget {
        attachment,
        netns,
        ipam,
        intent,
        done,
        by_name: identity.is_peer,
        answered: call.conf.prev_result().unwrap_or_default(),
        notes: entry.as_ref().and_then(|entry| entry.notes().ok()),
        gone: None,
    };
    let caller = Caller {
        node,
        call,
        identity: &identity,
    };
    take_down(&caller, &target, entry.as_mut())?;
    entry.map_or(Ok(()), Entry::remove)?;
    Ok(())
}

/// Locks the attachment. A state directory that cannot be written must not keep a container from being
/// removed.
fn entry_for_del(node: &Node, call: &Call, attachment: &Attachment) -> Result<Option<Entry>, Error> {
    match node.journal(&call.conf.network).open(attachment) {
        Ok(entry) => Ok(Some(entry)),
        Err(Error::Io {
            what, path, source, ..
        }) => {
            tracing::warn!(operation = what, file = %path.display(), error = %source, "cannot open the journal entry; continuing without it");
            Ok(None)
        }
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests;
