// SPDX-License-Identifier: Apache-2.0
//! A Helm release: installation, upgrade and removal.

use crate::upgrade;
use api::IpPool;
use apiserver::Server;
use deploy::api::{Send, apply};
use deploy::manifests::{IMAGE, NAMESPACE, chart, find, kind, objects, templated, tool, tool_with};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::rbac::v1::Role;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use std::fs;
use std::path::Path;

#[test]
fn a_packaged_chart_renders_the_same_objects_as_its_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    tool("helm", &["package", &chart(), "--destination", path]).unwrap();
    let packed = directory.path().join("rdmanet-0.1.0.tgz");
    let image = format!("image={IMAGE}");
    let text = tool(
        "helm",
        &[
            "template",
            "rdmanet",
            packed.to_str().unwrap(),
            "-n",
            NAMESPACE,
            "--set",
            &image,
        ],
    );
    assert_eq!(objects(&text.unwrap()), templated(NAMESPACE, &[&image]).unwrap());
}

#[test]
fn the_chart_refuses_kubernetes_versions_without_admission_policies() {
    let image = format!("image={IMAGE}");
    let output = tool(
        "helm",
        &[
            "template",
            "rdmanet",
            &chart(),
            "--set",
            &image,
            "--kube-version",
            "1.29.4",
        ],
    );
    assert!(output.unwrap_err().contains("requires kubeVersion: >=1.31.0-0"));
}

struct Helm<'s>(&'s Server);

impl Helm<'_> {
    fn try_run(&self, arguments: &[&str]) -> Result<String, String> {
        let words = [arguments, &["--namespace", NAMESPACE]].concat();
        tool_with("helm", &words, &self.0.kubeconfig())
    }

    fn run(&self, arguments: &[&str]) -> String {
        self.try_run(arguments)
            .unwrap_or_else(|e| panic!("helm {arguments:?}: {e}"))
    }
}

async fn log_level(admin: &Client) -> Option<String> {
    let daemonsets: Api<DaemonSet> = Api::namespaced(admin.clone(), NAMESPACE);
    let daemonset = daemonsets.get("rdmanet-agent").await.unwrap();
    let pod = daemonset.spec.unwrap().template.spec.unwrap();
    let variables = pod.containers[0].env.clone().unwrap();
    variables
        .into_iter()
        .find(|one| one.name == "RDMANET_LOG")
        .and_then(|one| one.value)
}

#[tokio::test]
async fn helm_installs_upgrades_rolls_back_and_uninstalls_but_keeps_the_pools() {
    let server = Server::start();
    let admin = server.admin().await;
    let helm = Helm(&server);
    let (chart, image) = (chart(), format!("image={IMAGE}"));
    let output = helm.run(&[
        "install",
        "rdmanet",
        &chart,
        "--create-namespace",
        "--set",
        &image,
    ]);
    assert!(
        output.contains("rollout status daemonset/rdmanet-agent"),
        "{output}"
    );
    assert_eq!(log_level(&admin).await, None);
    helm.run(&[
        "upgrade",
        "rdmanet",
        &chart,
        "--set",
        &image,
        "--set",
        "logLevel=debug",
    ]);
    assert_eq!(log_level(&admin).await.as_deref(), Some("debug"));
    helm.run(&["rollback", "rdmanet", "1"]);
    assert_eq!(log_level(&admin).await, None);

    let pool = json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPPool", "metadata": { "name": "rail0" },
        "spec": { "ranges": [{ "subnet": "10.20.0.0/24" }] },
    });
    apply(&admin, &[pool], Send::ForGood).await;
    helm.run(&["uninstall", "rdmanet"]);
    let daemonsets: Api<DaemonSet> = Api::namespaced(admin.clone(), NAMESPACE);
    assert!(daemonsets.get_opt("rdmanet-agent").await.unwrap().is_none());
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(admin.clone());
    assert!(policies.get_opt("rdmanet-agent-blocks").await.unwrap().is_none());
    let pools: Api<IpPool> = Api::all(admin);
    assert_eq!(pools.list(&ListParams::default()).await.unwrap().items.len(), 1);
}

/// Writes a chart whose release consists of the objects of 4c1f4ba's chart: those of conf/base without the namespace,
/// and with definitions that Helm keeps.
fn write_chart_of_4c1f4ba(directory: &Path) {
    let mut all = objects(include_str!("before/base.yaml"));
    all.retain(|object| kind(object) != "Namespace");
    for definition in all
        .iter_mut()
        .filter(|object| kind(object) == "CustomResourceDefinition")
    {
        definition["metadata"]["annotations"]["helm.sh/resource-policy"] = json!("keep");
    }
    let documents: Vec<String> = all
        .iter()
        .map(|object| serde_norway::to_string(object).unwrap())
        .collect();
    fs::create_dir(directory.join("templates")).unwrap();
    fs::write(directory.join("templates/all.yaml"), documents.join("---\n")).unwrap();
    fs::write(
        directory.join("Chart.yaml"),
        "apiVersion: v2\nname: rdmanet\nversion: 0.1.0\n",
    )
    .unwrap();
}

/// Whether the Deployment of the controller exists, and whether the Role of the agent that did its work before.
async fn controller_and_keeper(admin: &Client) -> (bool, bool) {
    let deployments: Api<Deployment> = Api::namespaced(admin.clone(), NAMESPACE);
    let roles: Api<Role> = Api::namespaced(admin.clone(), NAMESPACE);
    (
        deployments.get_opt("rdmanet-controller").await.unwrap().is_some(),
        roles.get_opt("rdmanet-keeper").await.unwrap().is_some(),
    )
}

async fn short_names(admin: &Client) -> Option<Vec<String>> {
    let definitions: Api<CustomResourceDefinition> = Api::all(admin.clone());
    let definition = definitions.get("ippools.rdmanet.io").await.unwrap();
    definition.spec.names.short_names
}

#[tokio::test]
async fn a_release_without_controller_is_upgraded_and_rolled_back_with_its_pool() {
    let server = Server::start();
    let admin = server.admin().await;
    let helm = Helm(&server);
    let (chart, image) = (chart(), format!("image={IMAGE}"));
    let before = tempfile::tempdir().unwrap();
    write_chart_of_4c1f4ba(before.path());
    helm.run(&[
        "install",
        "rdmanet",
        before.path().to_str().unwrap(),
        "--create-namespace",
    ]);
    assert_eq!(controller_and_keeper(&admin).await, (false, true));
    assert_eq!(short_names(&admin).await, None);
    upgrade::pool_as_it_was(&admin).await;
    let pools: Api<IpPool> = Api::all(admin.clone());
    let accepted = async || {
        pools
            .get("rail0")
            .await
            .unwrap()
            .status
            .unwrap()
            .accepted
            .unwrap()
    };
    let as_it_was = accepted().await;

    helm.run(&["upgrade", "rdmanet", &chart, "--set", &image]);
    assert_eq!(controller_and_keeper(&admin).await, (true, false));
    let rendered = templated(NAMESPACE, &[&image]).unwrap();
    let names = &find(&rendered, "CustomResourceDefinition", "ippools.rdmanet.io")["spec"]["names"];
    assert_eq!(json!(short_names(&admin).await), names["shortNames"]);
    assert_eq!(accepted().await, as_it_was);

    helm.run(&["rollback", "rdmanet", "1"]);
    assert_eq!(controller_and_keeper(&admin).await, (false, true));
    assert_eq!(accepted().await, as_it_was);
}

/// The command of docs/design/versions.md for definitions that were applied with kubectl, without the word helm.
fn documented_takeover() -> Vec<String> {
    let page = fs::read_to_string(deploy::workspace().join("docs/design/versions.md")).unwrap();
    let of_kubectl = page
        .split("If they were applied with `kubectl` before")
        .nth(1)
        .unwrap();
    let command = of_kubectl
        .split("use `helm ")
        .nth(1)
        .unwrap()
        .split('`')
        .next()
        .unwrap();
    command.split_whitespace().map(str::to_owned).collect()
}

/// The definitions of `rdmanet.io`: the UID of each, and the release that owns it.
async fn definitions(admin: &Client) -> Vec<(String, Option<String>)> {
    let all: Api<CustomResourceDefinition> = Api::all(admin.clone());
    let list = all.list(&ListParams::default()).await.unwrap();
    let ours = list
        .items
        .into_iter()
        .filter(|one| one.spec.group == "rdmanet.io");
    ours.map(|one| {
        let release = one.annotations().get("meta.helm.sh/release-name").cloned();
        (one.uid().unwrap(), release)
    })
    .collect()
}

#[tokio::test]
async fn definitions_that_kubectl_applied_are_taken_over_by_the_documented_command() {
    let server = Server::start();
    let admin = server.admin().await;
    let helm = Helm(&server);
    let directory = deploy::workspace().join("conf/crds");
    let words = ["apply", "-k", directory.to_str().unwrap()];
    tool_with("kubectl", &words, &server.kubeconfig()).unwrap();
    upgrade::pool_as_it_was(&admin).await;
    let applied = definitions(&admin).await;
    assert!(applied.len() >= 4, "{applied:?}");
    assert!(applied.iter().all(|(_, release)| release.is_none()));

    let (chart, image) = (chart(), format!("image={IMAGE}"));
    let of_chart = ["rdmanet", &chart, "--create-namespace", "--set", &image];
    let refusal = helm.try_run(&[&["install"], &of_chart[..]].concat()).unwrap_err();
    assert!(refusal.contains("invalid ownership metadata"), "{refusal}");
    assert_eq!(definitions(&admin).await, applied);

    let command = documented_takeover();
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    helm.run(&[&command, &of_chart[..]].concat());
    let ours = Some("rdmanet".to_owned());
    let taken: Vec<_> = applied.into_iter().map(|(uid, _)| (uid, ours.clone())).collect();
    assert_eq!(definitions(&admin).await, taken);
    let pools: Api<IpPool> = Api::all(admin.clone());
    let pool = pools.get("rail0").await.unwrap();
    assert!(pool.status.unwrap().accepted.is_some());

    // Helm keeps the definitions that it took over, as it keeps those that it made.
    helm.run(&["uninstall", "rdmanet"]);
    assert_eq!(definitions(&admin).await, taken);
    assert!(pools.get_opt("rail0").await.unwrap().is_some());
}
