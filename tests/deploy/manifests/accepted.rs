// SPDX-License-Identifier: Apache-2.0
//! A real API server accepts the manifests of `conf/`, and their rights are sufficient for an agent.

use apiserver::objects;
use apiserver::{Identity, Server, install};
use deploy::api::{Send, apply};
use deploy::manifests::{DIRECTORIES, NAMESPACE, find, kustomized, objects, renamed, templated};
use deploy::program;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};

/// The administrator's client of the server, which has the definition of `OpenShift` too.
async fn admin() -> Client {
    let admin = Server::shared().admin().await;
    apply(&admin, &objects(include_str!("scc.yaml")), Send::ForGood).await;
    install::until("the stand-in is served", async || {
        let answer = admin.list_api_group_resources("security.openshift.io/v1").await;
        answer.is_ok_and(|list| !list.resources.is_empty())
    })
    .await;
    admin
}

#[tokio::test]
async fn the_api_server_accepts_the_manifests_of_each_distribution() {
    let admin = admin().await;
    for (distribution, directory) in DIRECTORIES {
        println!("{distribution}: conf/{directory}");
        apply(&admin, &kustomized(directory), Send::Dry).await;
    }
    // On GKE the installer is configured by its directory alone, without a distribution of its own.
    for directory in ["overlays/gke", "uninstall"] {
        apply(&admin, &kustomized(directory), Send::Dry).await;
    }
}

#[tokio::test]
async fn the_api_server_accepts_the_objects_that_the_chart_renders() {
    let admin = admin().await;
    let elsewhere = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "fabric" } });
    apply(&admin, &[elsewhere], Send::ForGood).await;
    let image = "image=registry.example:5000/rdmanet-agent@sha256:0000000000000000000000000000000000000000000000000000000000000000";
    let sets: [&[&str]; 4] = [
        &[],
        &[
            "distribution=openshift",
            "imagePullSecrets={one,two}",
            "imagePullPolicy=Always",
        ],
        &[
            "cniBinDir=/srv/cni",
            "replaceForeign=true",
            "listen=0.0.0.0:9555",
            "maxUnavailable=3",
        ],
        &[
            "logLevel=debug",
            "quarantine=1h",
            "resources.limits.memory=1Gi",
            "nodeSelector.rail=yes",
            "podAnnotations.team=fabric",
            "crds=false",
        ],
    ];
    for values in sets {
        println!("{values:?}");
        let objects = templated("fabric", &[&[image], values].concat()).unwrap();
        apply(&admin, &objects, Send::Dry).await;
    }
}

/// A pod as the controller of the `DaemonSet` creates it.
fn pod_of(objects: &[Value], daemonset: &str) -> Pod {
    let template = &find(objects, "DaemonSet", daemonset)["spec"]["template"];
    let mut pod = template.clone();
    pod["metadata"]["name"] = json!(format!("{daemonset}-x"));
    pod["spec"]["nodeName"] = json!("n1");
    serde_json::from_value(pod).unwrap()
}

#[tokio::test]
async fn the_namespace_admits_the_pods_that_the_baseline_policy_refuses() {
    let admin = admin().await;
    let strict = json!({
        "metadata": { "name": "strict", "labels": { "pod-security.kubernetes.io/enforce": "baseline" } },
    });
    objects::create(&Api::<Namespace>::all(admin.clone()), strict).await;
    for (namespace, name) in [
        ("strict", "rdmanet-agent"),
        ("strict", "rdmanet-uninstall"),
        (NAMESPACE, "rdmanet-uninstall"),
    ] {
        objects::account(&admin, namespace, name).await;
    }
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    for (directory, daemonset) in [
        ("base", "rdmanet-agent"),
        ("overlays/auto", "rdmanet-agent"),
        ("uninstall", "rdmanet-uninstall"),
    ] {
        let pod = pod_of(&kustomized(directory), daemonset);
        let ours: Api<Pod> = Api::namespaced(admin.clone(), NAMESPACE);
        ours.create(&dry, &pod)
            .await
            .unwrap_or_else(|e| panic!("{directory}: {e}"));
        let theirs: Api<Pod> = Api::namespaced(admin.clone(), "strict");
        let refusal = theirs.create(&dry, &pod).await.unwrap_err().to_string();
        assert!(
            refusal.contains("violates PodSecurity \"baseline:latest\": "),
            "{refusal}"
        );
    }
}

#[tokio::test]
async fn in_a_renamed_namespace_a_stolen_token_affects_only_its_own_node() {
    let server = Server::start();
    let admin = server.admin().await;
    apply(&admin, &renamed("base", "fabric"), Send::ForGood).await;
    install::enforced(&server, &admin, "fabric").await;
    let count = apiserver::stolen::try_everything(&server, "fabric").await;
    assert!(count > 500, "only {count} requests were tried");
}

/// Otherwise agents wait in the common queue of the API server.
#[test]
fn in_a_renamed_namespace_agents_and_controller_have_their_own_queues() {
    for directory in ["base", "overlays/openshift"] {
        let all = renamed(directory, "fabric");
        for name in ["rdmanet-agent", "rdmanet-controller"] {
            let account = find(&all, "ServiceAccount", name);
            assert_eq!(account["metadata"]["namespace"], "fabric");
            let rules = &find(&all, "FlowSchema", name)["spec"]["rules"];
            let subjects = json!([{
                "kind": "ServiceAccount", "serviceAccount": { "name": name, "namespace": "fabric" },
            }]);
            assert_eq!(rules[0]["subjects"], subjects, "{directory}");
        }
    }
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn an_agent_without_any_capability_does_its_work() {
    let server = Server::shared();
    let admin = server.admin().await;
    let identity = Identity::new(&admin, "bare").await;
    let controller = agents::Controller::new(server, "bare").await;
    controller.start(server, &[]);
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    std::fs::write(
        &kubeconfig,
        serde_norway::to_string(&identity.config(server)).unwrap(),
    )
    .unwrap();
    let pool = json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPPool", "metadata": { "name": "bare" },
        "spec": { "ranges": [{ "subnet": "10.77.0.0/24" }] },
    });
    apply(&admin, &[pool], Send::ForGood).await;
    let log = std::fs::File::create(dir.path().join("log")).unwrap();
    let agent = Command::new("setpriv")
        .args(["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"])
        .arg(program("rdmanet-agent"))
        .env("KUBECONFIG", &kubeconfig)
        .args([
            "--node",
            "bare",
            "--listen",
            "127.0.0.1:0",
            "--reconcile-interval",
            "200ms",
        ])
        .arg("--data-dir")
        .arg(dir.path().join("data"))
        .arg("--socket")
        .arg(dir.path().join("run/agent.sock"))
        .stdin(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let agent = Running(agent);
    let file = dir.path().join("data/pools/bare/pool.json");
    install::until("the node has a block", async || {
        std::fs::read_to_string(&file).is_ok_and(|text| text.contains("10.77.0."))
    })
    .await;
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.0.id())).unwrap();
    assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    assert!(!log.contains("netlink listener failed"), "{log}");
}
