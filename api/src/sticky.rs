// SPDX-License-Identifier: Apache-2.0
//! When the address of a pod of a `StatefulSet` passes from one incarnation of that pod to the next, and when it comes free.
//!
//! Holds always: it passes on only when nobody has it, or when the earlier pod is gone from the cluster and the machine
//! that it was on either says by its store that nothing there has the address, or cannot be heard any more. A `StatefulSet`
//! makes a pod anew only once the earlier one is gone; what is left is a pod that was deleted by force, whose machine is then asked.

use crate::{Holder, IpPool, Sticky};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use std::time::Duration;

/// What is known of whoever the object names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Nobody has the address.
    Nobody,
    /// Somebody on this node.
    Here {
        /// The store has a lease of it.
        held: bool,
    },
    /// Somebody on another node, or on an earlier registration of this one.
    There {
        /// It is the pod that asks: one pod cannot be on two nodes, so something is not what it seems.
        same_pod: bool,
        /// That node.
        node: NodeState,
        /// For how long this process has seen the object as it is.
        unchanged: Option<Duration>,
    },
}

/// A node as the cluster sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It lives, so its agent will say when the address is let go.
    Lives,
    /// Its kubelet is not heard.
    Lost,
    /// It is not registered any more.
    Gone,
}

/// Whether the address passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does.
    Pass,
    /// It may, if it stays as it is: remember when it was seen.
    Watch,
    /// Not yet.
    Wait(Wait),
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The DEL of an earlier sandbox here.
    Sandbox,
    /// That the cluster agrees with itself.
    SamePod,
    /// The agent of the node that the earlier pod was on.
    Agent,
    /// The second observation.
    Observation,
    /// The quarantine: the node is gone, and its machine may still run.
    Quarantine,
}

/// Whether the address passes to a new incarnation; `observe`: how far apart two observations are.
///
/// If the node is not heard, a person has deleted the earlier pod by force, which states that it is dead: two observations are enough.
/// If the Node object is gone, the garbage collector has deleted the pod, and nobody stated anything: then the `quarantine` must
/// pass, as for a block.
pub fn verdict(before: Before, observe: Duration, quarantine: Duration) -> Verdict {
    match before {
        Before::Here { held: true } => Verdict::Wait(Wait::Sandbox),
        Before::There { same_pod: true, .. } => Verdict::Wait(Wait::SamePod),
        Before::There {
            node: NodeState::Lives,
            ..
        } => Verdict::Wait(Wait::Agent),
        Before::There { unchanged: None, .. } => Verdict::Watch,
        Before::There {
            unchanged: Some(time),
            ..
        } if time < observe => Verdict::Wait(Wait::Observation),
        Before::There {
            node: NodeState::Gone,
            unchanged: Some(time),
            ..
        } if time < quarantine => Verdict::Wait(Wait::Quarantine),
        Before::Nobody | Before::Here { held: false } | Before::There { .. } => Verdict::Pass,
    }
}

/// The `StatefulSet` that made `pod`, if one did.
pub fn set_of(pod: &Pod) -> Option<&str> {
    let owners = pod.metadata.owner_references.iter().flatten();
    owners
        .filter(|owner| owner.controller == Some(true) && owner.kind == "StatefulSet")
        .find(|owner| owner.api_version.starts_with("apps/"))
        .map(|owner| owner.name.as_str())
}

/// Why nobody will ask for an address that is kept for `holder` any more; none if somebody may.
pub fn is_over(holder: &Holder, pool: Option<&IpPool>, set: Option<&StatefulSet>) -> Option<String> {
    let Some(pool) = pool else {
        return Some("its pool is gone".to_owned());
    };
    if pool.metadata.deletion_timestamp.is_some() {
        return Some("its pool is being deleted".to_owned());
    }
    let accepted = pool.status.as_ref().and_then(|status| status.accepted.as_ref());
    if accepted.is_some_and(|spec| spec.sticky == Sticky::Never) {
        return Some("its pool keeps addresses for nobody any more".to_owned());
    }
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
