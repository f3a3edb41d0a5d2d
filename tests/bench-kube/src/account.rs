// SPDX-License-Identifier: Apache-2.0
//! An account for each peer, so that the audit log shows its requests separately.

use apiserver::{Server, install, objects};
use kube::api::DynamicObject;
use serde_json::json;
use std::path::PathBuf;

/// The namespace of the peers' accounts.
const NAMESPACE: &str = "kube-system";

/// The user name of the account `name` in the audit log.
pub fn user(name: &str) -> String {
    format!("system:serviceaccount:{NAMESPACE}:{name}")
}

/// Creates the account `name` with all rights. Returns the path of its kubeconfig.
pub async fn kubeconfig(server: &Server, name: &str) -> PathBuf {
    let admin = server.admin().await;
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": NAMESPACE },
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": NAMESPACE }],
    });
    for object in [account, binding] {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        install::apply(&admin, &object).await;
    }
    let token = objects::token(&admin, NAMESPACE, name, None).await.unwrap();
    let config = server.config_with(&token);
    let path = server.dir().join(format!("{name}.kubeconfig"));
    std::fs::write(&path, serde_norway::to_string(&config).unwrap()).unwrap();
    path
}
