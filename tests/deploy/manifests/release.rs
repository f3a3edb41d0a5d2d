// SPDX-License-Identifier: Apache-2.0
//! A Helm release: installation, upgrade and removal.

use api::IpPool;
use apiserver::Server;
use deploy::api::{Send, apply};
use deploy::manifests::{IMAGE, NAMESPACE, chart, objects, templated, tool, tool_with};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::Client;
use kube::api::{Api, ListParams};
use serde_json::json;

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
    fn run(&self, arguments: &[&str]) -> String {
        let words = [arguments, &["--namespace", NAMESPACE]].concat();
        tool_with("helm", &words, &self.0.kubeconfig()).unwrap_or_else(|e| panic!("helm {arguments:?}: {e}"))
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
