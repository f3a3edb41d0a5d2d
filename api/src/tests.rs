// SPDX-License-Identifier: Apache-2.0
use super::*;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
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
