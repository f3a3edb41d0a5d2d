// SPDX-License-Identifier: Apache-2.0
//! Removes what is left of an attachment, for DEL, GC, and an ADD that follows an interrupted one.
//!
//! Invariant: addresses are released after every link of the attachment is gone. Every step can be repeated.

mod device;
mod rdma;

use crate::config::Identity;
use crate::detach::{self, Known, Recorded, ReturnedChildren};
use crate::error::Error;
use crate::intent::Intent;
use crate::journal::{Entry, Notes};
use crate::kernel::{Kernel, Side};
use crate::mark::{self, Mark};
use crate::netns::pod_if_there;
use crate::node::Node;
use crate::rdma::record;
use crate::{device_info, policy};
use common::cni::dispatch::Call;
use common::cni::{self, Attachment, CniResult, Delegate, UNFINISHED};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The call that removes an attachment.
pub(crate) struct Caller<'a> {
    pub(crate) node: &'a Node,
    pub(crate) call: &'a Call,
    pub(crate) identity: &'a Identity,
}

/// The parts of an attachment that may be left, and their places.
pub(crate) struct DetachTarget<'a> {
    pub(crate) attachment: &'a Attachment,
    /// `CNI_NETNS`, if the runtime passes it.
    pub(crate) netns: Option<&'a Path>,
    /// The intent from the journal.
    pub(crate) intent: Option<Intent>,
    /// Whether ADD completed: none of its links is on the host, unless the kernel returned it.
    pub(crate) done: bool,
    /// Whether the link may be identified by its name if the journal has no entry, as by the peer whose name
    /// this call used.
    pub(crate) by_name: bool,
    /// The result of ADD, for links without a mark.
    pub(crate) answered: Option<CniResult>,
    /// The IPAM plugin to call.
    pub(crate) ipam: Option<String>,
    /// Where that plugin's process is recorded; `None` if the state directory cannot be written.
    pub(crate) notes: Option<Notes>,
    /// A moment at which no namespace of the attachment existed any more, if the caller has checked.
    pub(crate) gone: Option<Instant>,
}

impl Caller<'_> {
    fn network(&self) -> &str {
        &self.call.conf.network
    }
}

/// Whether an attachment may still have a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// None is left.
    Removed,
    /// None was found, and the kernel may still return one from a namespace that something holds open.
    MayReturn,
}

/// Removes what is left of an attachment: its link, then its files, then its addresses once no link has
/// them. `entry` is its journal entry, if it has one.
///
/// # Errors
/// The kernel or the IPAM plugin refused, or a device has not returned yet: the call must be repeated. If
/// only the RDMA device cannot be returned, the link and the addresses are removed all the same.
pub(crate) fn take_down(
    caller: &Caller<'_>,
    target: &DetachTarget<'_>,
    entry: Option<&mut Entry>,
) -> Result<Links, cni::Error> {
    let rdma = rdma::return_device(caller, target);
    let links = remove_link(caller, target)?;
    // The kernel recreates an IPoIB link whose RDMA device returns. Then the link needs its state again.
    if rdma.is_ok() {
        entry.into_iter().for_each(record_restored);
    }
    let intent = target.intent.as_ref();
    if let Some(file) = intent.and_then(|intent| intent.device_info.as_deref())
        && let Err(error) = device_info::remove(file)
    {
        tracing::warn!(file = %file.display(), %error, "cannot remove the device-info file");
    }
    if let Err(error) = record::remove(caller.node.state(), caller.network(), target.attachment) {
        tracing::warn!(%error, "cannot remove the record of the RDMA device");
    }
    if let Some(plugin) = &target.ipam {
        let note = |pid| {
            target.note(pid);
            Ok(())
        };
        let mut delegate = Delegate::new(plugin, caller.call, caller.identity.delegate_timeout)?;
        if intent.is_some() && !target.done {
            delegate = delegate.with(UNFINISHED, true.into());
        }
        delegate.notifying(&note).del(target.attachment, target.netns)?;
    }
    rdma?;
    Ok(links)
}

/// Records that the whole link is the host's again. If a later step fails, the call is repeated, and the node may have
/// changed its link by then. A full disk must not keep a container from being removed.
fn record_restored(entry: &mut Entry) {
    let Some(intent) = entry.intent.clone().filter(|intent| intent.device.is_some()) else {
        return;
    };
    if let Err(error) = entry.reduce(intent.without_device()) {
        tracing::warn!(%error, "cannot record that the link is restored; a repeated call restores it again");
    }
}

/// Deletes the attachment's links: in the container, and on the host, where an interrupted ADD or the end of a
/// namespace left them.
fn remove_link(caller: &Caller<'_>, target: &DetachTarget<'_>) -> Result<Links, Error> {
    let is_restored = target.intent.as_ref().is_some_and(|intent| intent.restored);
    if is_restored || device::return_link(caller, target)? {
        return Ok(Links::Removed);
    }
    let mark = Mark::new(caller.network(), target.attachment);
    let recorded = target.intent.as_ref().map(|intent| Recorded {
        made: &intent.made,
        netns: intent.netns_id,
        state: caller.node.state(),
        network: caller.network(),
        attachment: target.attachment,
    });
    let known = Known {
        mark: &mark,
        recorded,
    };
    let made = recorded.map_or(0, |recorded| recorded.made.len());
    let mut seen = Vec::new();
    let mut deleted = 0;
    for (path, id) in target.namespaces() {
        let Some(netns) = pod_if_there(&path, id)?.filter(|netns| !seen.contains(&netns.id())) else {
            continue;
        };
        seen.push(netns.id());
        let mut kernel = caller.node.kernel(Some(&netns))?;
        // Rules are not deleted with the link, and its namespace may continue to exist.
        policy::remove(&mut *kernel, policy::table(&mark))?;
        if target.intent.is_none() {
            device::bring_down_unrecorded(&mut *kernel, &mark.alias)?;
        }
        deleted += target.delete_in(&mut *kernel, &known, netns.id())?;
        if target.done && deleted > 0 && deleted >= made {
            return Ok(Links::Removed);
        }
    }
    let mut kernel = caller.node.kernel(None)?;
    // The kernel dismantles a dead namespace asynchronously. A link that it returned later would have no
    // owner. A pod may have moved a link into a namespace of its own: the kernel returns that link too.
    let missing = target.intent.as_ref();
    let missing = missing.filter(|_| seen.is_empty() || deleted < made);
    let returned = match missing {
        Some(intent) => {
            let gone = target.gone.unwrap_or_else(Instant::now);
            detach::delete_returned(&mut *kernel, &known, &intent.master, gone)?
        }
        None => ReturnedChildren {
            deleted: detach::delete(&mut *kernel, Side::Host, &Known::marked(&mark))?,
            more: false,
        },
    };
    if returned.deleted > 0 {
        tracing::info!(attachment = %target.attachment, "deleted the attachment's link on the host");
    }
    let may_return = returned.more && returned.deleted == 0;
    Ok(if may_return {
        Links::MayReturn
    } else {
        Links::Removed
    })
}

impl<'a> DetachTarget<'a> {
    /// An attachment of which nothing is known but its name.
    pub(crate) fn new(attachment: &'a Attachment) -> Self {
        Self {
            attachment,
            netns: None,
            intent: None,
            done: false,
            by_name: false,
            answered: None,
            ipam: None,
            notes: None,
            gone: None,
        }
    }

    /// Records the IPAM plugin's process. A full disk must not keep a container from being removed.
    fn note(&self, pid: u32) {
        if let Some(notes) = &self.notes
            && let Err(error) = notes.running(pid)
        {
            tracing::warn!(%error, "cannot record the IPAM plugin's process");
        }
    }

    /// Deletes the attachment's links in the namespace `id`. Returns their number.
    fn delete_in(&self, kernel: &mut dyn Kernel, known: &Known<'_>, id: (u64, u64)) -> Result<usize, Error> {
        // Indices mean nothing in another namespace.
        let recorded = known.recorded.filter(|recorded| recorded.netns == id);
        let known = Known { recorded, ..*known };
        let deleted = detach::delete(kernel, Side::Pod, &known)?;
        if deleted > 0 {
            return Ok(deleted);
        }
        let ifname = &self.attachment.ifname;
        if let Some(answered) = &self.answered
            && detach::delete_answered(kernel, ifname, answered)?
        {
            return Ok(1);
        }
        let deleted = match (&self.intent, recorded) {
            (None, _) => self.by_name && detach::delete_named(kernel, ifname, mark::is_sound)?,
            // ADD found the name free, and was interrupted before it recorded its link. The pod may have changed the
            // mark since.
            (Some(_), Some(recorded)) if !self.done && recorded.made.is_empty() => {
                let others = recorded.others()?;
                detach::delete_named(kernel, ifname, |link| others.iter().any(|of| of.has_in(id, link)))?
            }
            (Some(_), _) => false,
        };
        Ok(usize::from(deleted))
    }

    /// The namespaces to search: the one that the runtime passes, and the one that ADD recorded. The first
    /// may be wrong, and an overlooked link would outlive its addresses.
    pub(crate) fn namespaces(&self) -> Vec<(PathBuf, Option<(u64, u64)>)> {
        let runtime = self.netns.map(|path| (path.to_owned(), None));
        let written = self
            .intent
            .as_ref()
            .map(|intent| (intent.netns.clone(), Some(intent.netns_id)));
        runtime.into_iter().chain(written).collect()
    }
}
