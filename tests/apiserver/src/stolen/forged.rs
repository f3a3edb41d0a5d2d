// SPDX-License-Identifier: Apache-2.0
//! The objects that a thief must not create, and the paths that it must not read.

use super::foreign::{TENANT, pod_of_the_victim};
use super::targets::{GROUP, address, block, holder};
use super::{THIEF, VICTIM};
use crate::Identity;
use serde_json::{Value, json};

/// Objects that the thief must not create.
pub(super) fn forged(thief: &Identity, namespace: &str) -> Vec<(String, Value)> {
    let own = serde_json::to_value(&thief.node).unwrap();
    let victim = json!({ "node": VICTIM, "nodeUID": "u" });
    // Each block breaks one rule only.
    let claim = |third, owner, state, epoch: u8| {
        let mut object = block(third, owner, state);
        object["spec"]["epoch"] = json!(epoch);
        (format!("{GROUP}/ipblocks"), object)
    };
    let pods = format!("/api/v1/namespaces/{namespace}/pods/rdmanet-agent-{VICTIM}");
    let token = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "audiences": null } });
    let account = |name: &str| format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": "forged", "namespace": "default" },
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "rdmanet-agent", "reportingInstance": VICTIM,
        "action": "Watch", "reason": "LinkDown", "type": "Warning", "note": "forged", "regarding": { "kind": "Node", "name": VICTIM },
    });
    vec![
        claim(98, &victim, "Active", 1),
        claim(97, &own, "Orphaned", 1),
        claim(96, &own, "Shared", 1),
        claim(95, &own, "Active", 2),
        (
            format!("{GROUP}/ipaddresses"),
            address(98, &victim, "Bound", None),
        ),
        (
            format!("{GROUP}/ipaddresses"),
            address(97, &own, "Kept", Some(holder("db-5"))),
        ),
        (
            format!("{GROUP}/addressspaces"),
            json!({ "apiVersion": "rdmanet.io/v1alpha1", "kind": "AddressSpace", "metadata": { "name": "forged" }, "spec": { "pools": [] } }),
        ),
        (
            format!("{GROUP}/ippools"),
            json!({ "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPPool", "metadata": { "name": "forged" }, "spec": { "ranges": [{ "subnet": "10.79.0.0/24" }] } }),
        ),
        (
            format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"),
            json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "forged" }, "spec": {} }),
        ),
        (
            "/apis/events.k8s.io/v1/namespaces/default/events".to_owned(),
            event,
        ),
        (
            format!("{pods}/eviction"),
            json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": format!("rdmanet-agent-{VICTIM}") } }),
        ),
        (
            format!("{pods}/binding"),
            json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": format!("rdmanet-agent-{VICTIM}") }, "target": { "kind": "Node", "name": THIEF } }),
        ),
        (account("rdmanet-controller"), token.clone()),
        (account("rdmanet-agent"), token.clone()),
        (
            format!("/api/v1/namespaces/{TENANT}/serviceaccounts/default/token"),
            token,
        ),
    ]
}

/// Objects of the cluster that no agent creates, and that the thief must not create.
pub(super) fn forged_for_the_cluster(namespace: &str) -> Vec<(String, Value)> {
    let mut pod = crate::objects::pod(&json!({ "name": "forged" }), VICTIM);
    (pod["apiVersion"], pod["kind"]) = (json!("v1"), json!("Pod"));
    let mut of_the_controller = pod.clone();
    of_the_controller["spec"]["serviceAccountName"] = json!("rdmanet-controller");
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "name": "forged-too", "namespace": "default" },
        "reason": "LinkDown", "type": "Warning", "message": "forged", "involvedObject": { "kind": "Node", "name": VICTIM },
        "source": { "component": "rdmanet-agent", "host": VICTIM }, "count": 1,
    });
    let rbac = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": "forged" },
        "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "kind": "ServiceAccount", "namespace": namespace, "name": "rdmanet-agent" }],
    });
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": { "name": "forged" },
        "webhooks": [{
            "name": "forged.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": { "url": "https://stolen.example/" },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"] }],
        }],
    });
    let space = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "forged" } });
    let path = |text: &str| text.to_owned();
    vec![
        (format!("/api/v1/namespaces/{TENANT}/pods"), pod),
        (format!("/api/v1/namespaces/{namespace}/pods"), of_the_controller),
        (path("/api/v1/namespaces/default/events"), event),
        (
            path("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
            binding,
        ),
        (
            path("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"),
            webhook,
        ),
        (path("/api/v1/namespaces"), space),
    ]
}

/// The paths that the thief must not read. An administrator reads each of them.
pub(super) fn unreadable(namespace: &str) -> Vec<String> {
    [
        "/api/v1/pods",
        "/api/v1/pods?watch=1&timeoutSeconds=1",
        "/api/v1/secrets",
        "/api/v1/configmaps",
        "/api/v1/serviceaccounts",
        "/api/v1/events",
        "/apis/events.k8s.io/v1/events",
        "/api/v1/nodes",
        "/apis/apps/v1/statefulsets",
    ]
    .into_iter()
    .map(str::to_owned)
    .chain([
        format!("/api/v1/namespaces/{TENANT}/pods"),
        format!("/api/v1/namespaces/{TENANT}/secrets/of-others"),
        format!("/api/v1/namespaces/{TENANT}/configmaps/of-others"),
        format!("/apis/apps/v1/namespaces/{TENANT}/statefulsets/db"),
        format!("/api/v1/namespaces/{namespace}/pods"),
        format!("/api/v1/namespaces/{namespace}/secrets"),
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/rdmanet-controller"),
    ])
    .collect()
}

/// The paths that the thief must not read, and that only a kubelet answers. The test API server has none.
pub(super) fn of_a_kubelet() -> Vec<String> {
    let pod = pod_of_the_victim();
    let tails = [
        "/log",
        "/exec?command=id&stdout=1",
        "/attach",
        "/portforward",
        "/proxy/",
    ];
    let mut all: Vec<String> = tails.iter().map(|tail| format!("{pod}{tail}")).collect();
    all.push(format!("/api/v1/nodes/{VICTIM}/proxy/pods"));
    all
}
