// SPDX-License-Identifier: Apache-2.0
//! The objects of other nodes and of the cluster that no agent writes: pods and their owners, Namespaces, Secrets and
//! accounts, and what installs and restricts rdmanet itself.

use super::targets::{Target, make, of_metadata};
use super::{VICTIM, send};
use crate::objects;
use http::Method;
use kube::Client;
use serde_json::{Value, json};

/// The namespace of the victim's pods.
pub(super) const TENANT: &str = "tenant";

/// The path of a pod on the victim's node.
pub(super) fn pod_of_the_victim() -> String {
    format!("/api/v1/namespaces/{TENANT}/pods/of-the-victim")
}

/// Creates the objects that do not exist yet. `namespace` is the one of the agents.
pub(super) async fn create(admin: &Client, namespace: &str) -> Vec<Target> {
    let mut all = spaces(admin, namespace).await;
    all.extend(pods(admin, namespace).await);
    all.extend(owners_of_pods(admin, namespace).await);
    all.extend(secrets_and_accounts(admin, namespace).await);
    all.extend(installation(admin, namespace).await);
    all
}

fn with_metadata(more: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let mut all = of_metadata();
    all.extend(more);
    all
}

/// The tenant's Namespace, whose labels a `namespaceSelector` reads, and the agents' one, whose labels admit their pods.
async fn spaces(admin: &Client, namespace: &str) -> Vec<Target> {
    let tenant = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": TENANT, "labels": { "a": "c" } } });
    make(admin, "/api/v1/namespaces", &tenant).await;
    let open = json!({ "metadata": { "labels": { "a": "b" } } });
    let restricted =
        json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    let target = |name: &str, change| Target {
        path: format!("/api/v1/namespaces/{name}"),
        changes: with_metadata([change]),
    };
    vec![target(TENANT, open), target(namespace, restricted)]
}

/// A pod of the victim's node, and the pod of its agent, whose token ends with it.
async fn pods(admin: &Client, namespace: &str) -> Vec<Target> {
    objects::account(admin, TENANT, "default").await;
    let mut pod = objects::pod(&json!({ "name": "of-the-victim" }), VICTIM);
    (pod["apiVersion"], pod["kind"]) = (json!("v1"), json!("Pod"));
    make(admin, &format!("/api/v1/namespaces/{TENANT}/pods"), &pod).await;
    let agent = format!("/api/v1/namespaces/{namespace}/pods/rdmanet-agent-{VICTIM}");
    let mut all = Vec::new();
    for (path, container) in [(pod_of_the_victim(), "main"), (agent, "agent")] {
        let networks = json!({ "k8s.v1.cni.cncf.io/networks": "stolen" });
        all.push(Target {
            path: path.clone(),
            changes: with_metadata([
                json!({ "metadata": { "annotations": networks } }),
                json!({ "spec": { "containers": [{ "name": container, "image": "stolen" }] } }),
                json!({ "spec": { "activeDeadlineSeconds": 1 } }),
                json!({ "status": { "phase": "Failed" } }),
            ]),
        });
        let debugger = json!([{ "name": "stolen", "image": "stolen" }]);
        all.push(Target {
            path: format!("{path}/ephemeralcontainers"),
            changes: vec![json!({ "spec": { "ephemeralContainers": debugger } })],
        });
    }
    all
}

/// The objects whose controllers create the pods of rdmanet and of a tenant.
async fn owners_of_pods(admin: &Client, namespace: &str) -> Vec<Target> {
    let mut set = objects::stateful_set("db", 2);
    (set["apiVersion"], set["kind"]) = (json!("apps/v1"), json!("StatefulSet"));
    let of_tenant = format!("/apis/apps/v1/namespaces/{TENANT}");
    make(admin, &format!("{of_tenant}/statefulsets"), &set).await;
    let ours = format!("/apis/apps/v1/namespaces/{namespace}");
    for (kind, plural, name) in [
        ("DaemonSet", "daemonsets", "rdmanet-agent"),
        ("Deployment", "deployments", "rdmanet-controller"),
    ] {
        make_missing(admin, &format!("{ours}/{plural}"), name, &owner(kind, name)).await;
    }
    let changes = |container: &str, more: Value| {
        let containers = json!([{ "name": container, "image": "stolen" }]);
        with_metadata([
            json!({ "spec": { "template": { "spec": { "containers": containers } } } }),
            more,
        ])
    };
    let none = json!({ "spec": { "replicas": 0 } });
    let nowhere = json!({ "spec": { "template": { "spec": { "nodeSelector": { "no": "node" } } } } });
    let mut all = Vec::new();
    for (path, container, more) in [
        (format!("{of_tenant}/statefulsets/db"), "main", &none),
        (format!("{ours}/daemonsets/rdmanet-agent"), "agent", &nowhere),
        (
            format!("{ours}/deployments/rdmanet-controller"),
            "controller",
            &none,
        ),
    ] {
        if *more == none {
            all.push(Target {
                path: format!("{path}/scale"),
                changes: vec![none.clone()],
            });
        }
        all.push(Target {
            path,
            changes: changes(container, more.clone()),
        });
    }
    all
}

/// A `DaemonSet` or `Deployment` with the name of ours. The manifests of some servers have the real one already.
fn owner(kind: &str, name: &str) -> Value {
    let labels = json!({ "app": name });
    let container = name.trim_start_matches("rdmanet-");
    json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": name },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": container, "image": "ours" }] },
            },
        },
    })
}

async fn make_missing(admin: &Client, directory: &str, name: &str, object: &Value) {
    let path = format!("{directory}/{name}");
    let (status, _) = send(admin, Method::GET, &path, "application/json", &json!({})).await;
    if !status.is_success() {
        make(admin, directory, object).await;
    }
}

async fn secrets_and_accounts(admin: &Client, namespace: &str) -> Vec<Target> {
    let mut all = Vec::new();
    for space in [TENANT, namespace] {
        for (kind, plural) in [("Secret", "secrets"), ("ConfigMap", "configmaps")] {
            let value = if kind == "Secret" { "dGhlaXJz" } else { "theirs" };
            let object = json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": "of-others" }, "data": { "key": value } });
            let directory = format!("/api/v1/namespaces/{space}/{plural}");
            make(admin, &directory, &object).await;
            all.push(Target {
                path: format!("{directory}/of-others"),
                changes: with_metadata([json!({ "data": { "key": "c3RvbGVu" } })]),
            });
        }
    }
    let pull = json!({ "imagePullSecrets": [{ "name": "stolen" }] });
    for (space, name) in [
        (TENANT, "default"),
        (namespace, "rdmanet-agent"),
        (namespace, "rdmanet-controller"),
    ] {
        all.push(Target {
            path: format!("/api/v1/namespaces/{space}/serviceaccounts/{name}"),
            changes: with_metadata([pull.clone()]),
        });
    }
    all
}

/// The kinds of the cluster's objects that install rdmanet and restrict its agents, each with a change that would end the
/// restriction.
fn kinds(namespace: &str) -> Vec<(String, Value)> {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let roles = format!("{rbac}/namespaces/{namespace}");
    let everything = json!({ "rules": [{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }] });
    let subject = json!([{ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "stolen" }]);
    let webhook =
        json!({ "clientConfig": { "url": "https://stolen.example/" }, "conversionReviewVersions": ["v1"] });
    let admission = "/apis/admissionregistration.k8s.io/v1";
    let queues = "/apis/flowcontrol.apiserver.k8s.io/v1";
    vec![
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(),
            json!({ "spec": { "conversion": { "strategy": "Webhook", "webhook": webhook } } }),
        ),
        (format!("{rbac}/clusterroles"), everything.clone()),
        (format!("{roles}/roles"), everything),
        (
            format!("{rbac}/clusterrolebindings"),
            json!({ "subjects": subject }),
        ),
        (format!("{roles}/rolebindings"), json!({ "subjects": subject })),
        (
            format!("{admission}/validatingadmissionpolicies"),
            json!({ "spec": { "failurePolicy": "Ignore" } }),
        ),
        (
            format!("{admission}/validatingadmissionpolicybindings"),
            json!({ "spec": { "validationActions": ["Audit"] } }),
        ),
        (
            format!("{queues}/flowschemas"),
            json!({ "spec": { "matchingPrecedence": 9999 } }),
        ),
        (
            format!("{queues}/prioritylevelconfigurations"),
            json!({ "spec": { "limited": { "nominalConcurrencyShares": 0 } } }),
        ),
    ]
}

/// Each object of [`kinds`] that is part of rdmanet. Each kind must have one.
async fn installation(admin: &Client, namespace: &str) -> Vec<Target> {
    let mut all = Vec::new();
    for (directory, change) in kinds(namespace) {
        let (status, text) = send(admin, Method::GET, &directory, "application/json", &json!({})).await;
        assert!(status.is_success(), "GET {directory}: {text}");
        let list: Value = serde_json::from_str(&text).unwrap();
        let before = all.len();
        for item in list["items"].as_array().unwrap() {
            let name = item["metadata"]["name"].as_str().unwrap();
            if name.starts_with("rdmanet-") || name.ends_with(".rdmanet.io") {
                all.push(Target {
                    path: format!("{directory}/{name}"),
                    changes: vec![
                        json!({ "metadata": { "labels": { "stolen": "yes" } } }),
                        change.clone(),
                    ],
                });
            }
        }
        assert!(all.len() > before, "no object of rdmanet in {directory}");
    }
    all
}
