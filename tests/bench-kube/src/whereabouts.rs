// SPDX-License-Identifier: Apache-2.0
//! Installs whereabouts: its definitions, and its own account.

use crate::account;
use apiserver::{Server, install};
use serde_json::json;
use std::path::{Path, PathBuf};

/// The account of whereabouts.
pub const ACCOUNT: &str = "whereabouts";

/// The definitions in whereabouts' own module.
const DEFINITIONS: [&str; 3] = [
    "whereabouts.cni.cncf.io_ippools.yaml",
    "whereabouts.cni.cncf.io_nodeslicepools.yaml",
    "whereabouts.cni.cncf.io_overlappingrangeipreservations.yaml",
];

/// Installs whereabouts. Returns the path for `configuration_path`.
pub async fn install(server: &Server, definitions: &Path) -> PathBuf {
    let admin = server.admin().await;
    for file in DEFINITIONS {
        for object in install::documents(&definitions.join(file)) {
            install::apply(&admin, &object).await;
        }
    }
    let kubeconfig = account::kubeconfig(server, ACCOUNT).await;
    let path = server.dir().join("whereabouts.conf");
    let defaults = json!({"datastore": "kubernetes", "kubernetes": {"kubeconfig": kubeconfig}});
    std::fs::write(&path, defaults.to_string()).unwrap();
    path
}
