// SPDX-License-Identifier: Apache-2.0
//! A node that has joined the cluster, with its agent's pod and that pod's token.

use crate::objects::{self, try_create};
use api::NodeRef;
use k8s_openapi::api::authentication::v1::BoundObjectReference;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::DeleteParams;
use kube::config::Kubeconfig;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

/// The namespace of the agents.
pub const NAMESPACE: &str = "rdmanet-system";

/// The service account of the agents.
pub const ACCOUNT: &str = "rdmanet-agent";

/// The service account of the controller.
pub const CONTROLLER: &str = "rdmanet-controller";

/// A node and its agent.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The node.
    pub node: NodeRef,
    /// The token that identifies a client as this node's agent.
    pub token: String,
}

impl Identity {
    /// Creates the Node `node` and the pod of its agent.
    pub async fn new(admin: &Client, node: &str) -> Self {
        Self::try_new(admin, node).await.unwrap()
    }

    /// Like [`Self::new`], but returns the error if the API server is down. A repeated call is safe.
    pub async fn try_new(admin: &Client, node: &str) -> kube::Result<Self> {
        Self::try_within(admin, node, NAMESPACE).await
    }

    /// Like [`Self::new`], with agents in `namespace`.
    pub async fn within(admin: &Client, node: &str, namespace: &str) -> Self {
        Self::try_within(admin, node, namespace).await.unwrap()
    }

    async fn try_within(admin: &Client, node: &str, namespace: &str) -> kube::Result<Self> {
        let node = join(admin, node).await?;
        let pods: Api<Pod> = Api::namespaced(admin.clone(), namespace);
        let pod = match try_create(&pods, agent_pod(&node.node, namespace)).await {
            Err(kube::Error::Api(status)) if status.code == 409 => pods.get(&pod_name(&node.node)).await?,
            made => made?,
        };
        Ok(Self {
            token: token_of(admin, ACCOUNT, &pod).await?,
            node,
        })
    }

    /// The configuration of this agent's client for `server`.
    pub fn config(&self, server: &crate::Server) -> Kubeconfig {
        server.config_with(&self.token)
    }

    /// Deletes the Node object and the agent's pod.
    pub async fn leave(&self, admin: &Client) {
        self.try_leave(admin).await.unwrap();
    }

    /// Like [`Self::leave`], but returns the error if the API server is down. A repeated call is safe.
    pub async fn try_leave(&self, admin: &Client) -> kube::Result<()> {
        self.leave_within(admin, NAMESPACE).await
    }

    /// Like [`Self::try_leave`], with agents in `namespace`.
    pub async fn leave_within(&self, admin: &Client, namespace: &str) -> kube::Result<()> {
        let now = DeleteParams::default().grace_period(0);
        let pods: Api<Pod> = Api::namespaced(admin.clone(), namespace);
        gone(pods.delete(&pod_name(&self.node.node), &now).await)?;
        let nodes: Api<Node> = Api::all(admin.clone());
        gone(nodes.delete(&self.node.node, &now).await)
    }
}

/// Treats a missing object as deleted.
fn gone<T>(answer: kube::Result<T>) -> kube::Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Creates a Node object, or returns the existing one.
pub async fn join(admin: &Client, name: &str) -> kube::Result<NodeRef> {
    let nodes: Api<Node> = Api::all(admin.clone());
    let node = match try_create(&nodes, json!({ "metadata": { "name": name } })).await {
        Err(kube::Error::Api(status)) if status.code == 409 => nodes.get(name).await?,
        made => made?,
    };
    Ok(NodeRef {
        node: name.to_owned(),
        node_uid: node.uid().unwrap(),
    })
}

fn pod_name(node: &str) -> String {
    format!("{ACCOUNT}-{node}")
}

fn agent_pod(node: &str, namespace: &str) -> Value {
    json!({
        "metadata": {
            "name": pod_name(node),
            "namespace": namespace,
            // As in the DaemonSet; `rdmanet check` finds agents by it.
            "labels": { "app.kubernetes.io/name": ACCOUNT },
        },
        "spec": {
            "serviceAccountName": ACCOUNT,
            "nodeName": node,
            "hostNetwork": true,
            "containers": [{ "name": "agent", "image": "agent" }],
        },
    })
}

/// Creates the controller's pod `name` and returns its token.
pub async fn controller_token(admin: &Client, name: &str) -> String {
    let pods: Api<Pod> = Api::namespaced(admin.clone(), NAMESPACE);
    let pod = json!({
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": {
            "serviceAccountName": CONTROLLER,
            "containers": [{ "name": "controller", "image": "controller" }],
        },
    });
    let pod = objects::create(&pods, pod).await;
    token_of(admin, CONTROLLER, &pod).await.unwrap()
}

/// A token that is valid as long as `pod` exists, and names its node.
async fn token_of(admin: &Client, account: &str, pod: &Pod) -> kube::Result<String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or(NAMESPACE);
    let bound = BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
    };
    objects::token(admin, namespace, account, Some(bound)).await
}
