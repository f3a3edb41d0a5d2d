// SPDX-License-Identifier: Apache-2.0
//! A node that has joined the cluster, with its agent's pod and the token which that pod would be given.

use agent::api::NodeRef;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::api::{DeleteParams, PostParams};
use kube::config::Kubeconfig;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

/// The namespace of the agents.
pub const NAMESPACE: &str = "rdmanet-system";

/// The service account of the agents.
pub const ACCOUNT: &str = "rdmanet-agent";

/// A node and its agent.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The node.
    pub node: NodeRef,
    /// What tells the API server that a client is this node's agent.
    pub token: String,
}

impl Identity {
    /// Lets `node` join, with the pod of its agent.
    pub async fn new(admin: &Client, node: &str) -> Self {
        let node = join(admin, node).await;
        let pod = agent_pod(&node.node);
        let pods: Api<Pod> = Api::namespaced(admin.clone(), NAMESPACE);
        let pod = pods.create(&PostParams::default(), &pod).await.unwrap();
        Self {
            token: token(admin, &pod).await,
            node,
        }
    }

    /// The configuration of this agent's client for `server`.
    pub fn config(&self, server: &crate::Server) -> Kubeconfig {
        server.config_with(&self.token)
    }

    /// Takes the Node object and the agent's pod away.
    pub async fn leave(&self, admin: &Client) {
        let now = DeleteParams::default().grace_period(0);
        let pods: Api<Pod> = Api::namespaced(admin.clone(), NAMESPACE);
        pods.delete(&pod_name(&self.node.node), &now).await.unwrap();
        let nodes: Api<Node> = Api::all(admin.clone());
        nodes.delete(&self.node.node, &now).await.unwrap();
    }
}

/// Makes a Node object.
pub async fn join(admin: &Client, name: &str) -> NodeRef {
    let node: Node = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
    let nodes: Api<Node> = Api::all(admin.clone());
    let node = nodes.create(&PostParams::default(), &node).await.unwrap();
    NodeRef {
        node: name.to_owned(),
        node_uid: node.uid().unwrap(),
    }
}

fn pod_name(node: &str) -> String {
    format!("{ACCOUNT}-{node}")
}

fn agent_pod(node: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": { "name": pod_name(node), "namespace": NAMESPACE },
        "spec": {
            "serviceAccountName": ACCOUNT,
            "nodeName": node,
            "hostNetwork": true,
            "containers": [{ "name": "agent", "image": "agent" }],
        },
    }))
    .unwrap()
}

/// A token that is good for as long as `pod` exists, and says where it runs.
async fn token(admin: &Client, pod: &Pod) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), NAMESPACE);
    let request = TokenRequest {
        spec: TokenRequestSpec {
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: pod.metadata.name.clone(),
                uid: pod.metadata.uid.clone(),
            }),
            expiration_seconds: Some(86_400),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request(ACCOUNT, &PostParams::default(), &request)
        .await
        .unwrap();
    answer.status.unwrap().token
}
