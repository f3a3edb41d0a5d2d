// SPDX-License-Identifier: Apache-2.0
//! The quarantine of the blocks and addresses of a gone node.
//!
//! A Node object may be deleted by mistake, or while its machine is only cut off. Kubernetes then deletes the Pod objects
//! although the containers go on. Until the quarantine is over, the machine can come back and its agent takes back what its
//! pods have. After that time the machine allocates nothing from a block if it starts again.
//!
//! Invariant: a block is released only if its quarantine has passed since it was orphaned. An address is released only if it
//! is orphaned, and no client has changed the object for the quarantine of the controller that has marked it. All times are
//! those of the API server's clock, except the time in a block, which is that of the process that marked the block.

use crate::cluster::snapshot::{Snapshot, bound_pod};
use crate::cluster::{last_change, server_time};
use crate::output::CommandError;
use api::{IpAddress, IpBlock};
use k8s_openapi::jiff::Timestamp;
use kube::{Client, ResourceExt};
use std::time::Duration;

/// The command that prints the log of the controller.
const CONTROLLER_LOG: &str = "kubectl -n rdmanet-system logs -l app.kubernetes.io/name=rdmanet-controller";

/// The quarantine if the object does not record one.
const QUARANTINE: Duration = Duration::from_secs(600);

/// Requires that the quarantine of these orphans is over.
///
/// # Errors
/// The quarantine of an orphan is not over or cannot be measured, or the cluster does not respond.
pub(super) async fn require_over(
    client: &Client,
    blocks: &[&IpBlock],
    addresses: &[&IpAddress],
) -> Result<(), CommandError> {
    if blocks.is_empty() && addresses.is_empty() {
        return Ok(());
    }
    // The clock of this machine may be set to another time.
    let now = server_time(client).await?;
    blocks.iter().try_for_each(|block| require_block(block, now))?;
    addresses
        .iter()
        .try_for_each(|address| require_address(address, now))
}

fn require_block(block: &IpBlock, now: Timestamp) -> Result<(), CommandError> {
    let quarantine = recorded(block.spec.quarantine_seconds);
    let since = block.spec.orphaned.as_ref().map(|orphaned| orphaned.since.0);
    match seconds_left(since, quarantine, now) {
        0 => Ok(()),
        seconds => Err(CommandError(format!(
            "block {} is in quarantine for {seconds} s more; run this again then",
            block.spec.cidr
        ))),
    }
}

/// Each write gives the object a new version, at which the quarantine of the controller restarts. So does this one.
fn require_address(object: &IpAddress, now: Timestamp) -> Result<(), CommandError> {
    let (ip, name, node) = (&object.spec.address, object.name_any(), &object.spec.node.node);
    let quarantine = recorded(object.spec.quarantine_seconds);
    let Some(changed) = last_change(object) else {
        return Err(CommandError(format!(
            "{ip} was not released: the time of the last change of IPAddress {name} is unknown, because its metadata.managedFields is empty, so its quarantine cannot be measured; if the machine of node {node} is off, run kubectl delete ipaddresses.rdmanet.io {name}"
        )));
    };
    match seconds_left(Some(changed), quarantine, now) {
        0 => Ok(()),
        seconds => Err(CommandError(format!(
            "{ip} is in quarantine for {seconds} s more: node {node} is gone, its pods may still run, and IPAddress {name} was last changed at {changed}, less than {} s ago; run this again then",
            quarantine.as_secs()
        ))),
    }
}

/// The error about an address of a gone node that is still `Bound`.
pub(super) fn not_begun(snapshot: &Snapshot, object: &IpAddress) -> CommandError {
    let (ip, name, node) = (&object.spec.address, object.name_any(), &object.spec.node.node);
    let pod = bound_pod(object).unwrap_or_else(|| "unknown".to_owned());
    let remedy = if snapshot.nodes.contains_key(node) {
        format!(
            "start the agent on node {node}, which was registered again: it frees the address after the quarantine, if no pod there has it; if the machine of the earlier registration is off, run kubectl patch ipaddresses.rdmanet.io {name} --type merge -p '{{\"spec\":{{\"state\":\"Orphaned\"}}}}', and this again a quarantine later"
        )
    } else {
        format!(
            "run this again a quarantine after kubectl get ipaddresses.rdmanet.io {name} shows Orphaned; if it shows Bound for minutes, look at the log of the controller: {CONTROLLER_LOG}"
        )
    };
    CommandError(format!(
        "{ip} (IPAddress {name}) is Bound to pod {pod} on node {node}, which is gone, and its quarantine has not begun; {remedy}"
    ))
}

/// The error about a block of a gone node that is still `Active` or `Draining`.
pub(super) fn not_begun_of_block(object: &IpBlock) -> CommandError {
    let (cidr, name, state) = (&object.spec.cidr, object.name_any(), object.spec.state);
    let node = &object.spec.owner.node;
    CommandError(format!(
        "block {cidr} (IPBlock {name}) of node {node}, which is gone, is {state:?}, and its quarantine has not begun; run this again a quarantine after kubectl get ipblocks.rdmanet.io {name} shows Orphaned; if it shows {state:?} for minutes, look at the log of the controller: {CONTROLLER_LOG}"
    ))
}

fn recorded(seconds: Option<i64>) -> Duration {
    let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    seconds.map_or(QUARANTINE, Duration::from_secs)
}

/// How many seconds of the quarantine are left, rounded up. Without a time, none have passed.
fn seconds_left(since: Option<Timestamp>, quarantine: Duration, now: Timestamp) -> u64 {
    let age = since
        .and_then(|since| Duration::try_from(now.duration_since(since)).ok())
        .unwrap_or_default();
    let left = quarantine.saturating_sub(age);
    if left.is_zero() { 0 } else { left.as_secs() + 1 }
}

#[cfg(test)]
mod tests;
