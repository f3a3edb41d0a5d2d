// SPDX-License-Identifier: Apache-2.0
//! The command `rdmanet` as a process, against a real API server with agents and plugins.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test says what it lacks by failing"
)]
#![allow(
    clippy::too_many_lines,
    reason = "a migration is one story, and what it says at each step belongs to it"
)]

mod credentials;
mod delegate;
mod import;
mod import_refused;
mod output;
mod release;
mod whereabouts;

use agents::Site;
use apiserver::objects;
use kube::api::{Patch, PatchParams};
use kube::config::Kubeconfig;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// The result of a run of the command.
#[derive(Debug)]
struct Run {
    status: i32,
    out: String,
    err: String,
}

impl Run {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The text of an import about its first pool.
    fn message(&self) -> String {
        self.json()["pools"][0]["message"].as_str().unwrap().to_owned()
    }
}

/// Runs `rdmanet` with the credentials in `kubeconfig`, or without any.
fn rdmanet(kubeconfig: Option<&Path>, args: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdmanet"));
    command
        .env_clear()
        .env("RDMANET_DATA_DIR", "/nonexistent")
        .args(args);
    if let Some(file) = kubeconfig {
        command.env("KUBECONFIG", file);
    }
    let output = command.output().unwrap();
    Run {
        status: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A directory with the kubeconfig of a user who has exactly the rights of `role`.
async fn person(site: &Site, name: &str, role: Option<&str>) -> TempDir {
    objects::account(&site.admin, "default", name).await;
    if let Some(role) = role {
        let api: kube::Api<k8s_openapi::api::rbac::v1::ClusterRoleBinding> =
            kube::Api::all(site.admin.clone());
        let binding = json!({
            "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": "default" }],
        });
        objects::create(&api, binding).await;
    }
    let token = objects::token(&site.admin, "default", name, None).await.unwrap();
    kubeconfig(&site.server.config_with(&token))
}

/// A directory with `config` in it.
fn kubeconfig(config: &Kubeconfig) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(
        directory.path().join("config"),
        serde_norway::to_string(config).unwrap(),
    )
    .unwrap();
    directory
}

/// Creates pod `default/NAME` on `node`, and writes the status that Multus would write: `net1` of `network` has `ips`.
async fn pod_with(site: &Site, name: &str, node: &str, network: &str, ips: &[String]) -> String {
    let uid = site.pod(name, node).await;
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::default_namespaced(site.admin.clone());
    let status = json!([
        { "name": "cbr0", "interface": "eth0", "ips": ["10.244.0.9"], "default": true },
        { "name": network, "interface": "net1", "ips": ips },
    ]);
    let annotations = json!({ "metadata": { "annotations": {
        "k8s.v1.cni.cncf.io/networks": network,
        "k8s.v1.cni.cncf.io/network-status": status.to_string(),
    } } });
    pods.patch(name, &PatchParams::default(), &Patch::Merge(annotations))
        .await
        .unwrap();
    uid
}
