// SPDX-License-Identifier: Apache-2.0
//! When the address of a pod of a `StatefulSet` passes from one incarnation of the pod to the next, and when it is freed.
//!
//! Invariant: the address passes on only if no pod has it, or if the earlier pod is gone from the cluster and one of two
//! things holds: the store of its node shows that no pod there has the address, or the node is unreachable or gone.
//!
//! A `StatefulSet` creates a pod again only after the earlier one is gone. What remains is a pod that was deleted by
//! force; then its node decides.

use crate::address::Holder;
use crate::pool::{IpPool, Sticky};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use std::time::Duration;

/// What is known of the pod that the address object names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressUse {
    /// No pod has the address.
    Unused,
    /// A pod on this node has the address.
    Local {
        /// The store has a lease of the address.
        leased: bool,
    },
    /// A pod on another node has the address, or a pod on an earlier registration of this node.
    Remote {
        /// The named pod is the one that requests the address. One pod cannot be on two nodes, so some object is out of
        /// date.
        same_pod: bool,
        /// The state of that node.
        node: NodeState,
        /// For how long this process has seen the object unchanged.
        unchanged: Option<Duration>,
    },
}

/// A node as the cluster sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// The node is registered and not lost. Its agent will report the release of the address.
    Alive,
    /// The node is not Ready: its kubelet does not report, or cannot run pods.
    NotReady,
    /// The Node object is gone, or has been registered anew.
    Gone,
}

/// Whether the address passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handover {
    /// The address passes on.
    Pass,
    /// The address may pass on if the object stays unchanged. The caller records when it saw the object.
    Watch,
    /// Not yet.
    Wait(Wait),
}

/// What the request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The DEL of an earlier sandbox here.
    Sandbox,
    /// Consistent objects: the pod is recorded on two nodes.
    SamePod,
    /// The agent of the earlier pod's node.
    Agent,
    /// The second observation.
    Observation,
    /// The quarantine: the Node object is gone, and its machine may still run.
    Quarantine,
}

/// Decides whether the address passes to a new incarnation. `interval` is the time between two observations.
///
/// If the node is not Ready, a person has deleted the earlier pod by force, which states that the pod is dead. Two
/// observations are then enough. If the Node object is gone, the garbage collector has deleted the pod, and that states
/// nothing. Then the `quarantine` must pass, as for a block.
pub fn handover(before: AddressUse, interval: Duration, quarantine: Duration) -> Handover {
    match before {
        AddressUse::Local { leased: true } => Handover::Wait(Wait::Sandbox),
        AddressUse::Remote { same_pod: true, .. } => Handover::Wait(Wait::SamePod),
        AddressUse::Remote {
            node: NodeState::Alive,
            ..
        } => Handover::Wait(Wait::Agent),
        AddressUse::Remote { unchanged: None, .. } => Handover::Watch,
        AddressUse::Remote {
            unchanged: Some(time),
            ..
        } if time < interval => Handover::Wait(Wait::Observation),
        AddressUse::Remote {
            node: NodeState::Gone,
            unchanged: Some(time),
            ..
        } if time < quarantine => Handover::Wait(Wait::Quarantine),
        AddressUse::Unused | AddressUse::Local { leased: false } | AddressUse::Remote { .. } => {
            Handover::Pass
        }
    }
}

/// The name of the `StatefulSet` that created `pod`, if there is one.
pub fn stateful_set_of(pod: &Pod) -> Option<&str> {
    let owners = pod.metadata.owner_references.iter().flatten();
    owners
        .filter(|owner| owner.controller == Some(true) && owner.kind == "StatefulSet")
        .find(|owner| owner.api_version.starts_with("apps/"))
        .map(|owner| owner.name.as_str())
}

/// Reason why no address of `pool` stays reserved, or `None` if the pool keeps addresses.
pub fn end_by_pool(pool: Option<&IpPool>) -> Option<String> {
    let Some(pool) = pool else {
        return Some("its pool is gone".to_owned());
    };
    if pool.metadata.deletion_timestamp.is_some() {
        return Some("its pool is being deleted".to_owned());
    }
    let accepted = pool.status.as_ref().and_then(|status| status.accepted.as_ref());
    accepted
        .is_some_and(|spec| spec.sticky == Sticky::Never)
        .then(|| "its pool has no sticky addresses any more".to_owned())
}

/// Reason why the `StatefulSet` of `holder` will not create its pod again, or `None` if it may.
pub fn end_by_set(holder: &Holder, set: Option<&StatefulSet>) -> Option<String> {
    let Some(set) = set else {
        return Some(format!(
            "StatefulSet {}/{} is gone",
            holder.namespace, holder.stateful_set
        ));
    };
    let spec = set.spec.as_ref()?;
    let first = spec
        .ordinals
        .as_ref()
        .and_then(|ordinals| ordinals.start)
        .unwrap_or(0);
    let replicas = spec.replicas.unwrap_or(1);
    let (_, ordinal) = holder.pod.rsplit_once('-')?;
    let ordinal: i64 = ordinal.parse().ok()?;
    let wanted = i64::from(first)..i64::from(first) + i64::from(replicas);
    (!wanted.contains(&ordinal)).then(|| {
        format!(
            "StatefulSet {}/{} has {replicas} replicas from ordinal {first} on, and {} is none of them",
            holder.namespace, holder.stateful_set, holder.pod
        )
    })
}

#[cfg(test)]
mod tests;
