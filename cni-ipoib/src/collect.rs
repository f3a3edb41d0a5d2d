// SPDX-License-Identifier: Apache-2.0
//! The collector of a node: removes attachments that lost their DEL, for the agent of the node
//! (`docs/design/garbage.md`).
//!
//! Invariant: an attachment is removed only if its namespace is proven gone, seen under the lock of the
//! attachment. The agent's request is the second source of evidence: the API server has no such pod any more. An
//! attachment without a pod is neither listed nor removed.

mod reach;
mod serve;

pub use serve::run_process;

use crate::config::Identity;
use crate::error::Error;
use crate::intent::Intent;
use crate::journal::{Entry, Written, written};
use crate::netns::is_gone;
use crate::node::Node;
use crate::teardown::{Caller, DetachTarget, Links, take_down};
use common::cni;
use common::cni::dispatch::Call;
use common::cni::{Args, Conf, IfName, Reader};
use common::collector::{DeadAttachment, Reply, Request};
use reach::Reach;
use serde_json::json;
use std::collections::HashSet;
use std::time::Duration;

/// How long the collector awaits the link of a namespace without a path, from the moment when the agent first saw the attachment
/// unused. After a DEL that failed, CRI-O holds the namespace open until the kubelet removes the sandbox: 80 s were seen.
const RETURNED_WITHIN: Duration = Duration::from_secs(600);

/// The IPAM plugin whose leases the agent ends itself.
const OWN_IPAM: &str = "rdma-ipam";

/// Answers one request of the agent.
pub(crate) fn answer(node: &Node, reach: Reach, request: &Request) -> Reply {
    let answered = match request {
        Request::List => list(node).map(Reply::Dead).map_err(cni::Error::from),
        Request::Collect { dead, seconds } => collect(node, reach, dead, Duration::from_secs(*seconds)),
    };
    answered.unwrap_or_else(|error| Reply::Failed(error.msg))
}

/// The attachments of pods whose namespaces are gone.
///
/// # Errors
/// [`Error::Io`]: the journal cannot be listed.
fn list(node: &Node) -> Result<Vec<DeadAttachment>, Error> {
    let (dead, others): (Vec<Written>, Vec<Written>) = written(node.state())?
        .into_iter()
        .partition(|of| is_gone(&of.intent.netns, of.intent.netns_id));
    let living: HashSet<(&str, &IfName)> = others
        .iter()
        .filter_map(|of| Some((of.intent.pod.as_ref()?.uid.as_str(), &of.attachment.ifname)))
        .collect();
    let listed = |of: Written| {
        let pod = of.intent.pod.clone().filter(|_| is_left(&of.intent))?;
        Some(DeadAttachment {
            replaced: living.contains(&(pod.uid.as_str(), &of.attachment.ifname)),
            network: of.network,
            attachment: of.attachment,
            netns_id: of.intent.netns_id,
            pod,
        })
    };
    Ok(dead.into_iter().filter_map(listed).collect())
}

/// Removes what is left of an attachment, as DEL does. The agent ends a lease of [`OWN_IPAM`] by itself.
/// Another IPAM plugin needs the configuration of its network, so its address waits for DEL or GC.
///
/// # Errors
/// Those of [`take_down`]; the attachment stays in the journal.
fn collect(node: &Node, reach: Reach, dead: &DeadAttachment, unused: Duration) -> Result<Reply, cni::Error> {
    let call = call_of(&dead.network)?;
    let journal = node.journal(&dead.network);
    let mut entry = match journal.idle(&dead.attachment) {
        Ok(Some(entry)) => entry,
        Ok(None) => return Ok(Reply::Collected),
        Err(Error::Busy(_)) => return Ok(kept("another call works on it")),
        Err(error) => return Err(error.into()),
    };
    let Some(intent) = entry.intent.clone() else {
        return Ok(kept("its journal entry is not complete"));
    };
    if intent.pod.as_ref() != Some(&dead.pod) || intent.netns_id != dead.netns_id {
        return Ok(kept("it belongs to another pod or namespace now"));
    }
    if !is_gone(&intent.netns, intent.netns_id) {
        return Ok(kept("its network namespace is not proven gone"));
    }
    let foreign = intent.ipam.as_deref().is_some_and(is_foreign);
    if foreign && !entry.done {
        return Ok(kept("ADD was interrupted, so its IPAM plugin may be running"));
    }
    if let Some(missing) = reach.missing_for(&intent) {
        return Ok(kept(missing));
    }
    let caller = Caller {
        node,
        call: &call,
        identity: &Identity::read(&call),
    };
    let target = target(dead, &entry, &intent);
    let links = take_down(&caller, &target, Some(&mut entry))?;
    if links == Links::MayReturn && unused < RETURNED_WITHIN {
        return Ok(kept(
            "the kernel has not returned its link: a process may hold its network namespace open",
        ));
    }
    if foreign {
        keep_address(entry, intent)?;
    } else {
        entry.remove()?;
    }
    Ok(Reply::Collected)
}

/// The attachment without its namespace, and without an IPAM plugin.
fn target<'a>(dead: &'a DeadAttachment, entry: &Entry, intent: &Intent) -> DetachTarget<'a> {
    DetachTarget {
        attachment: &dead.attachment,
        netns: None,
        intent: Some(intent.clone()),
        done: entry.done,
        by_name: false,
        answered: None,
        ipam: None,
        notes: entry.notes().ok(),
        gone: None,
    }
}

/// A call of the attachment's network, as a runtime would send it without a configuration.
///
/// # Errors
/// `network` is no valid name, which also cannot be a path.
fn call_of(network: &str) -> Result<Call, cni::Error> {
    let conf = json!({ "cniVersion": "1.1.0", "name": network, "type": "cni-ipoib" });
    Ok(Call {
        program: "cni-ipoib".to_owned(),
        conf: Conf::read(conf.to_string().as_bytes())?,
        args: Args::default(),
        args_text: String::new(),
        path: Vec::new(),
        netns_override: false,
        reader: Reader::PRESENT,
    })
}

/// Whether ADD left anything besides an address of another IPAM plugin.
fn is_left(intent: &Intent) -> bool {
    let foreign = intent.ipam.as_deref().is_some_and(is_foreign);
    let links = !intent.made.is_empty() || intent.rdma.is_some() || intent.device.is_some();
    !foreign || links || intent.device_info.is_some()
}

/// Whether an IPAM plugin is not ours.
fn is_foreign(ipam: &str) -> bool {
    ipam != OWN_IPAM
}

/// Reduces the entry of a complete ADD to the address, for the DEL or GC that releases it.
fn keep_address(mut entry: Entry, intent: Intent) -> Result<(), Error> {
    entry.reduce(Intent {
        device_info: None,
        rdma: None,
        made: Vec::new(),
        ..intent.without_device()
    })
}

fn kept(why: impl Into<String>) -> Reply {
    Reply::Kept(why.into())
}

#[cfg(test)]
mod tests;
