// SPDX-License-Identifier: Apache-2.0
//! GC: removes every attachment of this network that the runtime no longer lists.
//!
//! Invariant: GC skips an attachment that another call works on, and one whose file is damaged. No ADD begins
//! while the IPAM plugin collects, though the specification asks runtimes to run no ADD beside GC. GC passes
//! every attachment of the journal to the IPAM plugin as valid, since a link may still have its addresses.

use crate::config::Identity;
use crate::detach;
use crate::error::Error;
use crate::intent::Intent;
use crate::journal::{Entry, Journal};
use crate::netns::pod_if_there;
use crate::node::Node;
use crate::teardown::{Caller, DetachTarget, take_down};
use common::cni::dispatch::Call;
use common::cni::{self, Attachment, Delegate, GcConf};
use std::time::Instant;

/// The attachments in the journal that are not valid.
#[derive(Default)]
struct Stale {
    /// Locked for the whole of GC, so that no ADD begins on one.
    idle: Vec<Idle>,
    /// Skipped: another call works on them, or they cannot be opened.
    left: Vec<Attachment>,
}

/// An attachment that no other call works on.
struct Idle {
    attachment: Attachment,
    entry: Entry,
}

/// Removes the attachments that are not valid.
///
/// # Guarantees
/// Continues after errors and reports them together. Never touches attachments of other networks. Calls DEL
/// of the IPAM plugin for each removed attachment, for plugins without GC, and then its GC.
pub(crate) fn gc(node: &Node, call: &Call, gc: &GcConf) -> Result<(), cni::Error> {
    let identity = Identity::read(call);
    let caller = Caller {
        node,
        call,
        identity: &identity,
    };
    let journal = node.journal(&call.conf.network);
    let mut errors = Vec::new();
    let stale = stale(&journal, &gc.valid, &mut errors);
    let dead: Vec<bool> = stale.idle.iter().map(|idle| is_dead(&idle.entry)).collect();
    let looked = Instant::now();
    for (stale, dead) in stale.idle.into_iter().zip(dead) {
        tracing::info!(attachment = %stale.attachment, "removing an attachment that is no longer valid");
        if let Err(error) = collect(&caller, stale, dead.then_some(looked)) {
            errors.push(error);
        }
    }
    let kept = [gc.valid.clone(), stale.left].concat();
    collect_returned(&caller, &kept, &mut errors);
    if let Some(plugin) = &identity.ipam
        && let Err(error) = forward(call, &identity, plugin, &journal, &gc.valid)
    {
        errors.push(error);
    }
    journal.forget_removed();
    together(errors)
}

/// `gone` is a moment at which its namespace did not exist any more, if it is dead.
fn collect(caller: &Caller<'_>, stale: Idle, gone: Option<Instant>) -> Result<(), cni::Error> {
    let Idle {
        attachment,
        mut entry,
    } = stale;
    let intent = entry.intent.clone();
    let target = DetachTarget {
        done: entry.done,
        ipam: intent
            .as_ref()
            .and_then(|intent| intent.ipam.clone())
            .or_else(|| caller.identity.ipam.clone()),
        intent,
        notes: entry.notes().ok(),
        gone,
        ..DetachTarget::new(&attachment)
    };
    take_down(caller, &target, Some(&mut entry))?;
    Ok(entry.remove()?)
}

/// Removes links whose namespace ended and whose journal entry is gone as well: the link's mark names its
/// attachment.
fn collect_returned(caller: &Caller<'_>, kept: &[Attachment], errors: &mut Vec<cni::Error>) {
    let network = &caller.call.conf.network;
    let found = caller
        .node
        .kernel(None)
        .and_then(|mut kernel| detach::returned_children(&mut *kernel, network));
    let found = match found {
        Ok(found) => found,
        Err(error) => return errors.push(error.into()),
    };
    let journal = caller.node.journal(network);
    for (_, attachment) in found.iter().filter(|(_, of)| !kept.contains(of)) {
        let entry = match journal.open_now(attachment) {
            Ok(entry) if entry.intent.is_none() => entry,
            // An ADD that began meanwhile removes what an earlier one of its attachment left.
            Ok(_) | Err(Error::Busy(_)) => continue,
            Err(error) => {
                errors.push(error.into());
                continue;
            }
        };
        let target = DetachTarget {
            ipam: caller.identity.ipam.clone(),
            notes: entry.notes().ok(),
            ..DetachTarget::new(attachment)
        };
        let taken = take_down(caller, &target, None);
        errors.extend(taken.and_then(|_| Ok(entry.remove()?)).err());
    }
}

fn stale(journal: &Journal, valid: &[Attachment], errors: &mut Vec<cni::Error>) -> Stale {
    let mut stale = Stale::default();
    let known = journal.attachments().unwrap_or_else(|e| {
        errors.push(e.into());
        Vec::new()
    });
    for attachment in known.into_iter().filter(|known| !valid.contains(known)) {
        match journal.idle(&attachment) {
            // Its links may live, with their addresses, in a namespace that GC does not know.
            Ok(Some(entry)) if entry.is_damaged() => {
                tracing::warn!(%attachment, "the attachment's file is damaged, so its namespace is unknown: GC leaves the attachment and its addresses to DEL");
            }
            Ok(Some(entry)) => stale.idle.push(Idle { attachment, entry }),
            Ok(None) => {}
            Err(Error::Busy(_)) => {
                tracing::info!(%attachment, "another call works on the attachment; skipped until the next GC");
                stale.left.push(attachment);
            }
            Err(error) => {
                errors.push(error.into());
                stale.left.push(attachment);
            }
        }
    }
    stale
}

/// Whether the namespace in the journal is gone.
///
/// GC checks every attachment before it removes the first. The kernel returns the links of a dead namespace
/// within a fixed time of its end, so one wait covers all namespaces that were gone at that moment.
fn is_dead(entry: &Entry) -> bool {
    let there = |intent: &Intent| pod_if_there(&intent.netns, Some(intent.netns_id));
    // If the namespace cannot be checked, the removal reports that.
    entry
        .intent
        .as_ref()
        .is_some_and(|intent| matches!(there(intent), Ok(None)))
}

/// Calls GC of the IPAM plugin. Every entry that is now in the journal is valid, could not be removed, or is
/// new.
fn forward(
    call: &Call,
    identity: &Identity,
    plugin: &str,
    journal: &Journal,
    valid: &[Attachment],
) -> Result<(), cni::Error> {
    let _shut = journal.shut()?;
    let mut keep = valid.to_vec();
    keep.extend(
        journal
            .attachments()?
            .into_iter()
            .filter(|known| !valid.contains(known)),
    );
    Delegate::new(plugin, call, identity.delegate_timeout)?.gc(&keep)
}

/// One error for all: the code of the first, every message.
fn together(errors: Vec<cni::Error>) -> Result<(), cni::Error> {
    let mut errors = errors.into_iter();
    let Some(mut first) = errors.next() else {
        return Ok(());
    };
    for error in errors {
        first.msg = format!("{}; {}", first.msg, error.msg);
        if !error.details.is_empty() {
            first.details = format!("{}; {}", first.details, error.details);
        }
    }
    Err(first)
}

#[cfg(test)]
mod tests;
