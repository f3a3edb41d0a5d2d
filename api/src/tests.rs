// SPDX-License-Identifier: Apache-2.0
use super::*;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Deserialize;
use std::path::PathBuf;

/// The file of a definition in `conf/crds`.
fn manifest(definition: &CustomResourceDefinition) -> (PathBuf, String) {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../conf/crds");
    let text = serde_norway::to_string(definition).unwrap();
    (
        directory.join(format!("{}.yaml", definition.spec.names.plural)),
        format!(
            "# SPDX-License-Identifier: Apache-2.0\n# Made from api/src by: RDMANET_WRITE=1 cargo test -p api --lib\n{text}"
        ),
    )
}

#[test]
fn the_crd_manifests_match_the_rust_types() {
    for (path, text) in definitions().iter().map(manifest) {
        if std::env::var_os("RDMANET_WRITE").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let file = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            file == text,
            "{} is not what api/src says; run: RDMANET_WRITE=1 cargo test -p api --lib",
            path.display()
        );
    }
}

/// The API server evaluates all conditions of a policy, and looks for a False one afterwards. Only `&&` within a condition
/// ends the evaluation. Source: k8s.io/apiserver, `pkg/admission/plugin/webhook/matchconditions/matcher.go`.
#[test]
fn a_write_of_a_kubelet_to_its_node_causes_no_authorizer_check() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../conf/policies/agent.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let mut policies = Vec::new();
    for document in serde_norway::Deserializer::from_str(&text) {
        let policy = serde_json::Value::deserialize(document).unwrap();
        let of_all_clients = policy["spec"]["matchConstraints"]["resourceRules"][0]["apiGroups"][0]
            .as_str()
            .is_some_and(|group| group != "rdmanet.io");
        if !of_all_clients {
            continue;
        }
        policies.push(policy["metadata"]["name"].as_str().unwrap().to_owned());
        let conditions = policy["spec"]["matchConditions"].as_array().unwrap();
        assert_eq!(conditions.len(), 1, "{policies:?}");
        let expression = conditions[0]["expression"].as_str().unwrap();
        let first = "request.userInfo.username.startsWith('system:serviceaccount:') && ";
        assert!(expression.starts_with(first), "{policies:?}: {expression}");
        assert!(!expression.contains("||"), "{policies:?}: {expression}");
    }
    assert_eq!(policies, ["rdmanet-agent-events", "rdmanet-agent-nodes"]);
}

#[test]
fn an_absent_member_of_a_pool_has_its_default() {
    let spec: IpPoolSpec = serde_json::from_value(serde_json::json!({
        "ranges": [{ "subnet": "10.0.0.0/16" }],
    }))
    .unwrap();
    assert_eq!(spec.address_space, "default");
    assert_eq!((spec.block_size.v4, spec.block_size.v6), (64, 1024));
    assert_eq!(spec.allocation, Allocation::Blocks);
    assert_eq!(
        (spec.cooldown_seconds, spec.warm_blocks, spec.max_blocks_per_node),
        (30, 1, 0)
    );
    assert_eq!(spec.sticky, Sticky::Never);
}

#[test]
fn an_accepted_spec_reads_back_unchanged() {
    let spec: IpPoolSpec = serde_json::from_value(serde_json::json!({
        "addressSpace": "rails",
        "ranges": [{ "subnet": "10.0.0.0/16", "start": "10.0.1.0", "gateway": "none", "exclude": ["10.0.2.0/24"] }],
        "nodeSelector": { "matchLabels": { "rail": "0" } },
        "fallback": ["other"],
    }))
    .unwrap();
    let status = IpPoolStatus {
        accepted: Some(spec),
        ..Default::default()
    };
    let again: IpPoolStatus = serde_json::from_value(serde_json::to_value(&status).unwrap()).unwrap();
    assert_eq!(status, again);
}
