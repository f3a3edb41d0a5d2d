// SPDX-License-Identifier: Apache-2.0
//! What whereabouts needs: its definitions, and an account of its own, so that its requests can be told from others.

use cluster::{Server, install};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Whom the audit log names.
pub const USER: &str = "system:serviceaccount:kube-system:whereabouts";

/// The definitions of whereabouts' own module.
const DEFINITIONS: [&str; 2] = [
    "whereabouts.cni.cncf.io_ippools.yaml",
    "whereabouts.cni.cncf.io_overlappingrangeipreservations.yaml",
];

/// Installs it; returns the path of the file that its `configuration_path` names.
pub async fn install(server: &Server, definitions: &Path) -> PathBuf {
    let admin = server.admin().await;
    for file in DEFINITIONS {
        for object in install::documents(&definitions.join(file)) {
            install::apply(&admin, &object).await;
        }
    }
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "whereabouts", "namespace": "kube-system"},
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "whereabouts"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "whereabouts", "namespace": "kube-system"}],
    });
    for object in [account, binding] {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        install::apply(&admin, &object).await;
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(admin, "kube-system");
    let request = TokenRequest {
        spec: TokenRequestSpec {
            expiration_seconds: Some(86_400),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request("whereabouts", &PostParams::default(), &request)
        .await
        .unwrap();
    let config = server.config_with(&answer.status.unwrap().token);
    let kubeconfig = server.dir().join("whereabouts.kubeconfig");
    std::fs::write(&kubeconfig, serde_norway::to_string(&config).unwrap()).unwrap();
    let path = server.dir().join("whereabouts.conf");
    let defaults = json!({"datastore": "kubernetes", "kubernetes": {"kubeconfig": kubeconfig}});
    std::fs::write(&path, defaults.to_string()).unwrap();
    path
}
