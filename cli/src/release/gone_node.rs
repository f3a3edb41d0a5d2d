// SPDX-License-Identifier: Apache-2.0
//! `rdmanet release --node`: frees the blocks and addresses of a machine that is off.
//!
//! Invariant: a block or an address is freed only if its Node object is gone, no pod is bound to a node of that name, and
//! the [quarantine](super::quarantine) is over.

use super::{check_outcome, confirmed, quarantine};
use crate::cluster::snapshot::{Block, Snapshot, bound_pod};
use crate::output::{CommandError, Outcome, Output};
use api::convert::in_use;
use api::deadline::Deadline;
use api::requests::Requests;
use api::{AddressState, BlockState, IpAddress, IpBlock};
use kube::{Client, ResourceExt};
use serde_json::json;

/// The blocks and addresses of a gone node.
struct Orphans<'s> {
    blocks: Vec<&'s IpBlock>,
    addresses: Vec<&'s IpAddress>,
}

impl<'s> Orphans<'s> {
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

    /// Describes the blocks and addresses, for the confirmation.
    fn describe(&self) -> Vec<String> {
        let block = |block: &&IpBlock| {
            let use_of_block = match &block.status {
                Some(status) => format!("had {} addresses in use in its last report", status.used),
                None if in_use(block) => {
                    "was never reported, and pods had addresses of it when its node claimed it".to_owned()
                }
                None => "was never reported".to_owned(),
            };
            format!("block {} {use_of_block}", block.spec.cidr)
        };
        let address = |address: &&IpAddress| {
            let pod = bound_pod(address).unwrap_or_else(|| "unknown".to_owned());
            format!("{} was bound to pod {pod}", address.spec.address)
        };
        let blocks = self.blocks.iter().map(block);
        blocks.chain(self.addresses.iter().map(address)).collect()
    }
}

/// Frees the blocks and addresses of `node` after a confirmation. With `yes` there is no question.
///
/// # Errors
/// The node exists, pods are bound to it, a block or an address of it is not orphaned, the quarantine is not over, there was no
/// confirmation, or the cluster does not respond.
pub(super) async fn release(
    client: &Client,
    snapshot: &Snapshot,
    node: &str,
    yes: bool,
) -> Result<Output, CommandError> {
    require_gone(snapshot, node)?;
    require_orphaned(snapshot, node)?;
    let orphans = Orphans::of(snapshot, node);
    quarantine::require_over(client, &orphans.blocks, &orphans.addresses).await?;
    let evidence = orphans.describe();
    if evidence.is_empty() {
        return Ok(Output {
            text: format!("nothing to release: node {node} has no orphaned block or address\n"),
            json: json!({ "version": 1, "released": [] }),
            outcome: Outcome::Fine,
        });
    }
    if !yes
        && !confirmed(
            &format!("all blocks and addresses of node {node}, if its machine is off"),
            &evidence,
        )?
    {
        return Err(CommandError(format!(
            "the blocks and addresses of node {node} were not released"
        )));
    }
    free(client, &orphans).await?;
    Ok(Output {
        text: format!("released from node {node}: {}\n", evidence.join("; ")),
        json: json!({ "version": 1, "node": node, "released": evidence }),
        outcome: Outcome::Fine,
    })
}

fn require_gone(snapshot: &Snapshot, node: &str) -> Result<(), CommandError> {
    if snapshot.nodes.contains_key(node) {
        let agent = if snapshot.has_ready_agent(node) {
            "so its agent returns its blocks"
        } else {
            "and only its agent may return its blocks, but none is ready there; let it run"
        };
        return Err(CommandError(format!(
            "node {node} is registered, {agent}; if the machine is off for good, delete the Node object and run this again after the quarantine"
        )));
    }
    let bound = |pod: &&crate::cluster::pods::PodFacts| pod.is_running && pod.node.as_deref() == Some(node);
    match snapshot.pods.iter().find(bound) {
        None => Ok(()),
        Some(pod) => Err(CommandError(format!(
            "pod {} is bound to node {node}; Kubernetes deletes it within minutes after the node, or delete it",
            pod.name
        ))),
    }
}

/// The quarantine of a block or an address begins when the controller marks it as orphaned.
fn require_orphaned(snapshot: &Snapshot, node: &str) -> Result<(), CommandError> {
    let mut addresses = snapshot.addresses.iter().map(|(_, address)| address);
    let bound =
        |address: &&IpAddress| address.spec.node.node == node && address.spec.state == AddressState::Bound;
    if let Some(address) = addresses.find(bound) {
        return Err(quarantine::not_begun(snapshot, address));
    }
    let mut blocks = snapshot.blocks().iter().map(|block| &block.object);
    let owned = |block: &&IpBlock| {
        block.spec.owner.node == node && matches!(block.spec.state, BlockState::Active | BlockState::Draining)
    };
    blocks
        .find(owned)
        .map_or(Ok(()), |block| Err(quarantine::not_begun_of_block(block)))
}

async fn free(client: &Client, orphans: &Orphans<'_>) -> Result<(), CommandError> {
    let api = Requests::new(client.clone(), Deadline::background());
    for block in &orphans.blocks {
        check_outcome(&block.name_any(), api.delete_block(block).await)?;
    }
    for address in &orphans.addresses {
        check_outcome(&address.name_any(), api.release_address(address).await)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
