// SPDX-License-Identifier: Apache-2.0
//! `rdmanet release --node`: frees the blocks and addresses of a machine that is off.
//!
//! Invariant: a block is freed only if its Node object is gone, no pod is bound to a node of that name, and the
//! quarantine has passed since it was orphaned. After that time the machine allocates nothing from the block if it starts
//! again.

use super::confirmed;
use crate::answer::{Answer, Failure, Outcome};
use crate::cluster::snapshot::{Block, Snapshot};
use api::requests::{ApiError, WriteResult, delete_block, release_address};
use api::{AddressState, BlockState, IpAddress, IpBlock};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::time::{Duration, SystemTime};

/// The quarantine if the block does not record that of its owner.
const QUARANTINE: Duration = Duration::from_secs(600);

/// The blocks and addresses of a gone node.
struct Left<'s> {
    blocks: Vec<&'s IpBlock>,
    addresses: Vec<&'s IpAddress>,
}

impl<'s> Left<'s> {
    fn of(snapshot: &'s Snapshot, node: &str) -> Self {
        let blocks = snapshot.blocks().iter().map(|block: &Block| &block.object);
        let addresses = snapshot.addresses.iter().map(|(_, address)| address);
        Self {
            blocks: blocks
                .filter(|block| block.spec.owner.node == node && block.spec.state == BlockState::Orphaned)
                .collect(),
            addresses: addresses
                .filter(|address| {
                    address.spec.node.node == node && address.spec.state == AddressState::Orphaned
                })
                .collect(),
        }
    }

    /// Describes the blocks and addresses for the person who decides.
    fn describe(&self) -> Vec<String> {
        let block = |block: &&IpBlock| {
            let used = block.status.as_ref().map_or(0, |status| status.used);
            format!(
                "block {} had {used} addresses in use by its last report",
                block.spec.cidr
            )
        };
        let address = |address: &&IpAddress| {
            let pod = address
                .spec
                .pod
                .as_ref()
                .map(|pod| format!("{}/{}", pod.namespace, pod.name));
            let pod = pod.unwrap_or_else(|| "unknown".to_owned());
            format!("{} was bound to pod {pod}", address.spec.address)
        };
        let blocks = self.blocks.iter().map(block);
        blocks.chain(self.addresses.iter().map(address)).collect()
    }
}

/// Frees the blocks and addresses of `node` after a confirmation. With `yes` there is no question.
///
/// # Errors
/// The node exists, pods are bound to it, the quarantine is not over, there was no confirmation, or the cluster does not
/// respond.
pub(super) async fn release(
    client: &Client,
    snapshot: &Snapshot,
    node: &str,
    yes: bool,
) -> Result<Answer, Failure> {
    require_gone(snapshot, node)?;
    let left = Left::of(snapshot, node);
    for block in &left.blocks {
        require_quarantine(block, SystemTime::now())?;
    }
    let evidence = left.describe();
    if evidence.is_empty() {
        return Ok(Answer {
            text: format!("nothing to release: no orphaned block or address is of node {node}\n"),
            json: json!({ "version": 1, "released": [] }),
            outcome: Outcome::Fine,
        });
    }
    if !yes
        && !confirmed(
            &format!("what node {node} has left, if its machine is off"),
            &evidence,
        )?
    {
        return Err(Failure(format!("what node {node} has left is not released")));
    }
    free(client, &left).await?;
    Ok(Answer {
        text: format!("released from node {node}: {}\n", evidence.join("; ")),
        json: json!({ "version": 1, "node": node, "released": evidence }),
        outcome: Outcome::Fine,
    })
}

fn require_gone(snapshot: &Snapshot, node: &str) -> Result<(), Failure> {
    if snapshot.nodes.contains_key(node) {
        return Err(Failure(format!(
            "node {node} is registered: its agent returns blocks by itself; if the machine is off for good, delete the Node object and run this again after the quarantine"
        )));
    }
    let bound = |pod: &&crate::cluster::pods::PodFacts| pod.lives && pod.node.as_deref() == Some(node);
    match snapshot.pods.iter().find(bound) {
        None => Ok(()),
        Some(pod) => Err(Failure(format!(
            "pod {} is bound to node {node}; Kubernetes deletes it within minutes after the node, or delete it",
            pod.name
        ))),
    }
}

/// Until the quarantine is over, the machine might allocate from the block right after it starts.
fn require_quarantine(block: &IpBlock, now: SystemTime) -> Result<(), Failure> {
    let seconds = block
        .spec
        .quarantine_seconds
        .and_then(|seconds| u64::try_from(seconds).ok());
    let quarantine = seconds.map_or(QUARANTINE, Duration::from_secs);
    let since = block
        .spec
        .orphaned
        .as_ref()
        .map(|orphaned| SystemTime::from(orphaned.since.0));
    let age = since
        .and_then(|since| now.duration_since(since).ok())
        .unwrap_or_default();
    let left = quarantine.saturating_sub(age);
    if left.is_zero() {
        return Ok(());
    }
    Err(Failure(format!(
        "block {} is in quarantine for {} s more; run this again then",
        block.spec.cidr,
        left.as_secs() + 1
    )))
}

async fn free(client: &Client, left: &Left<'_>) -> Result<(), Failure> {
    let (blocks, addresses) = (Api::all(client.clone()), Api::all(client.clone()));
    for block in &left.blocks {
        done(&block.name_any(), delete_block(&blocks, block).await)?;
    }
    for address in &left.addresses {
        done(&address.name_any(), release_address(&addresses, address).await)?;
    }
    Ok(())
}

fn done(name: &str, written: Result<WriteResult<()>, ApiError>) -> Result<(), Failure> {
    match written {
        Ok(WriteResult::Applied(())) => Ok(()),
        Ok(WriteResult::Conflict) => Err(Failure(format!(
            "{name} has just been changed and is not released; look again"
        ))),
        Err(trouble) => Err(Failure(format!("{name} is not released: {trouble}"))),
    }
}

#[cfg(test)]
mod tests;
