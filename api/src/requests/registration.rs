// SPDX-License-Identifier: Apache-2.0
//! Node objects: whether a node is registered, which pods are bound to it, and the one condition that its agent writes.

use super::{ApiError, MANAGER, Requests, refused, request};
use crate::block::NodeRef;
use crate::convert::now;
use crate::sticky::NodeState;
use block::Owner;
use block::orphan::{Decider, OwnerState};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use std::collections::BTreeMap;

/// The part of a Node object that the agent needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Name and UID.
    pub owner: Owner,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The Node is not Ready: its kubelet has not reported for a while, or reports that it cannot run pods.
    pub lost: bool,
    /// Its conditions, by type.
    pub conditions: BTreeMap<String, NodeCondition>,
}

/// A condition of a Node, without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCondition {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The reason: one word for programs.
    pub reason: String,
    /// The message: a sentence for people.
    pub message: String,
}

/// The state of the registration that `named` names. `node` is the Node object that has this name now.
pub fn registration_state(node: Option<&Registration>, named: &NodeRef) -> NodeState {
    match node {
        Some(node) if *node.owner.uid != named.node_uid => NodeState::Gone,
        Some(node) if node.lost => NodeState::NotReady,
        Some(_) => NodeState::Alive,
        None => NodeState::Gone,
    }
}

/// The conditions of a Node, by type.
pub fn conditions(node: &Node) -> BTreeMap<String, NodeCondition> {
    let all = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    all.map(|one| {
        let condition = NodeCondition {
            status: one.status.clone(),
            reason: one.reason.clone().unwrap_or_default(),
            message: one.message.clone().unwrap_or_default(),
        };
        (one.type_.clone(), condition)
    })
    .collect()
}

/// The patch that sets or deletes one condition and leaves all others alone. The API server keeps members that are absent
/// from the patch, such as the time of the last transition.
fn condition_patch(kind: &str, condition: Option<&NodeCondition>, turned: bool) -> serde_json::Value {
    let mut patched = match condition {
        None => serde_json::json!({ "type": kind, "$patch": "delete" }),
        Some(condition) => serde_json::json!({
            "type": kind, "status": condition.status, "reason": condition.reason, "message": condition.message, "lastHeartbeatTime": now(),
        }),
    };
    if turned && condition.is_some() {
        patched["lastTransitionTime"] = serde_json::json!(now());
    }
    serde_json::json!({ "status": { "conditions": [patched] } })
}

impl Requests {
    /// Reads the Node called `name`, if there is one.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn registration(&self, name: &str) -> Result<Option<Registration>, ApiError> {
        let node: Option<Node> = self.get(name).await?;
        Ok(node.map(|node| {
            let conditions = conditions(&node);
            Registration {
                owner: Owner {
                    node: name.into(),
                    uid: node.uid().unwrap_or_default().into(),
                },
                // A Node without a Ready condition does not count as lost.
                lost: conditions
                    .get("Ready")
                    .is_some_and(|ready| ready.status != "True"),
                conditions,
                labels: node.metadata.labels.unwrap_or_default(),
            }
        }))
    }

    /// Sets or deletes the condition `kind` of the Node called `name`. `turned` is true if its status differs from the
    /// one before.
    ///
    /// # Errors
    /// [`ApiError`]. A Node that is gone is not an error.
    pub async fn patch_node_condition(
        &self,
        name: &str,
        kind: &str,
        condition: Option<&NodeCondition>,
        turned: bool,
    ) -> Result<(), ApiError> {
        let what = request::<Node>("PATCH", &format!("{name}/status"));
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Strategic(condition_patch(kind, condition, turned));
        let api = self.all::<Node>();
        match self.send(&what, api.patch_status(name, &params, &patch)).await? {
            Ok(_) => Ok(()),
            Err(status) if status.code == 404 => Ok(()),
            Err(status) => Err(refused(&what, &status)),
        }
    }

    /// Reads now what remains in the cluster of a node that may be gone.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn owner_state(&self, node: &NodeRef) -> Result<OwnerState, ApiError> {
        let registered = self.registration(&node.node).await?;
        let has_pods = registered.is_none() && self.has_pods(&node.node).await?;
        Ok(OwnerState {
            decider: Decider::Controller,
            registered: registered.map(|node| node.owner),
            has_pods,
        })
    }

    /// Whether a pod without `hostNetwork` is bound to the node called `node` and has not ended.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn has_pods(&self, node: &str) -> Result<bool, ApiError> {
        let fields = format!("spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed");
        let pods: Vec<Pod> = self.list(&fields).await?;
        let own_network = |pod: &Pod| {
            pod.spec
                .as_ref()
                .is_none_or(|spec| spec.host_network != Some(true))
        };
        Ok(pods.iter().any(own_network))
    }
}
