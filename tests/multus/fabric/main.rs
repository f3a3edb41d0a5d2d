// SPDX-License-Identifier: Apache-2.0
//! The host's side of `tests/infiniband/{multus,links}.rs`: the API server, the objects, and the status of pods and Node.
//!
//! Needs `RDMANET_INFINIBAND`, the program of the suite `infiniband`; `tests/all multus_fabric` sets it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test says what it lacks by failing"
)]

use apiserver::Server;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use multus::objects;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Command;
use std::time::Duration;
use tests::multus::PodIdentity;
use tests::programs;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

const NAMESPACE: &str = "ml";

/// The name, configuration and resource of every network.
fn networks() -> Vec<(&'static str, Value, Option<&'static str>)> {
    let ours = |name: &str, subnet: &str, keys: Value| {
        let mut conf = json!({
            "cniVersion": "1.1.0", "name": name, "type": "cni-ipoib",
            "capabilities": { "ips": true, "mac": true, "infinibandGUID": true, "CNIDeviceInfoFile": true },
            "ipam": { "type": "rdma-ipam", "ranges": [[{ "subnet": subnet }]], "cooldown": 0 },
        });
        conf.as_object_mut()
            .unwrap()
            .extend(keys.as_object().unwrap().clone());
        conf
    };
    vec![
        (
            "rail0",
            ours("rail0", "10.20.0.0/24", json!({ "master": "ib0" })),
            None,
        ),
        (
            "rail1",
            ours(
                "rail1",
                "10.21.0.0/24",
                json!({ "master": { "ifName": "ib1" }, "pkey": "0x8001" }),
            ),
            None,
        ),
        (
            "vf",
            ours("vf", "10.22.0.0/24", json!({ "mode": "macvlan" })),
            Some("nvidia.com/hostdev"),
        ),
        (
            "whole",
            ours(
                "whole",
                "10.23.0.0/24",
                json!({ "mode": "device", "keepLast": false }),
            ),
            Some("nvidia.com/hostdev"),
        ),
        (
            "roce",
            ours(
                "roce",
                "10.24.0.0/24",
                json!({ "mode": "macvlan", "master": "eth0" }),
            ),
            Some("rdma/hca_shared"),
        ),
    ]
}

/// The name and annotation of every pod.
fn wanted() -> Vec<(&'static str, String)> {
    let guid =
        |guid: &str| json!([{ "name": "rail0", "interface": "ib0", "infiniband-guid": guid }]).to_string();
    vec![
        ("trainer-0", "rail0@ib0,rail1@ib1".to_owned()),
        ("trainer-1", "rail0@ib0,rail1@ib1".to_owned()),
        ("own-guid", guid("52:54:00:ff:fe:00:00:01")),
        ("other-guid", guid("02:00:00:00:00:00:00:21")),
        ("chosen", "vf".to_owned()),
        ("whole", "whole,whole".to_owned()),
        ("roce", "roce".to_owned()),
    ]
}

/// The configuration of Multus inside the VM, where the API server has another address and its files have other paths.
fn kubeconfig(server: &Server, token: &str) -> String {
    let mut config = server.config_with(token);
    let cluster = config.clusters[0].cluster.as_mut().unwrap();
    cluster.server = Some(format!("https://10.0.2.100:{}", server.port()));
    cluster.tls_server_name = Some("localhost".to_owned());
    cluster.certificate_authority = Some("/kube/ca.crt".to_owned());
    serde_norway::to_string(&config).unwrap()
}

/// The directory that the VM mounts as /kube, with the tokens of Multus and of the node's agent.
fn shared(
    server: &Server,
    [multus, agent]: [&str; 2],
    pods: &BTreeMap<&str, PodIdentity>,
) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    fs::write(file("kubeconfig"), kubeconfig(server, multus)).unwrap();
    fs::write(file("agent"), kubeconfig(server, agent)).unwrap();
    fs::copy(server.dir().join("pki/ca.crt"), file("ca.crt")).unwrap();
    let entry = |pod: &PodIdentity| json!({ "namespace": pod.namespace, "uid": pod.uid });
    let pods: Map<String, Value> = pods
        .iter()
        .map(|(name, pod)| ((*name).to_owned(), entry(pod)))
        .collect();
    fs::write(file("pods.json"), Value::Object(pods).to_string()).unwrap();
    dir
}

/// A directory with a program of the workspace, without symbols, which would be most of its size. The VM is a Debian 12
/// with the C library that the program needs.
fn stripped(name: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut strip = Command::new("strip");
    let strip = strip.arg("-o").arg(dir.path().join(name));
    let done = strip.arg(programs::program(name)).status().unwrap();
    assert!(done.success(), "strip {name}: {done}");
    dir
}

/// Runs the tests in the VM, and fails with their output.
fn run_in_the_vm(server: &Server, directory: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let suite = std::env::var_os("RDMANET_INFINIBAND").map(PathBuf::from);
    let suite = suite.expect("RDMANET_INFINIBAND, the program of `cargo test -p tests --test infiniband`");
    // The VM mounts the directory of its program, so the program gets its own directory.
    let alone = tempfile::tempdir().unwrap();
    fs::copy(&suite, alone.path().join("infiniband")).unwrap();
    let agent = stripped("rdmanet-agent");
    let port = server.port().to_string();
    let conf = root.join("conf").canonicalize().unwrap();
    let output = Command::new(root.join("tests/fabric/run"))
        .args([
            "--hcas",
            "3",
            "--nics",
            "3",
            "--pkeys",
            "0xffff,0x8001",
            // Pods have an interface on `ib0`, whose HCA behaves like mlx5's, and one on `ib1`.
            "--accelerated",
            "0",
            "--timeout",
            "2400",
            "--forward",
            &port,
        ])
        .arg("--bin")
        .arg(programs::peers())
        .arg("--bin")
        .arg(programs::multus())
        .arg("--bin")
        .arg(agent.path())
        .arg("--share")
        .arg(format!("{}:/kube", directory.display()))
        .arg("--share")
        .arg(format!("{}:/etc/cni/net.d", conf.display()))
        .args(["--env", "RUST_BACKTRACE=1"])
        .arg(alone.path().join("infiniband"))
        // The checks of the API server's objects require the order of the tests' names.
        .args(["--ignored", "--test-threads=1", "multus::", "links::"])
        .output()
        .unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(
        output.status.success(),
        "in the VM: {}\n{out}\n{err}",
        output.status
    );
    let ran = out.lines().filter(|line| line.ends_with("... ok")).count();
    assert!(ran >= 6, "only {ran} tests ran in the VM:\n{out}");
    tests::log_line(&format!("{ran} tests in the VM"));
}

/// Sends each version of `node`.
async fn watch(admin: Client, node: &str, versions: UnboundedSender<Node>) {
    let config = watcher::Config::default().fields(&format!("metadata.name={node}"));
    let mut watch = pin!(
        watcher(Api::all(admin), config)
            .default_backoff()
            .applied_objects()
    );
    while let Some(version) = watch.next().await {
        match version {
            Ok(version) => {
                if versions.send(version).is_err() {
                    return;
                }
            }
            Err(error) => tests::log_line(&format!("the watch of {node} continues after: {error}")),
        }
    }
}

/// The number of a version of an object. Each write increases it.
fn number_of(node: &Node) -> u64 {
    let version = node.metadata.resource_version.as_deref();
    version.unwrap().parse().unwrap()
}

/// The conditions of `node` in its versions, in order, from the first version until the present one.
async fn history(
    admin: &Client,
    node: &str,
    mut versions: UnboundedReceiver<Node>,
) -> Vec<(String, String, String)> {
    let present = Api::<Node>::all(admin.clone()).get(node).await.unwrap();
    let mut all = Vec::new();
    loop {
        let version = tokio::time::timeout(Duration::from_secs(300), versions.recv()).await;
        let version = version.expect("the watch sends the present version").unwrap();
        // A watch that was interrupted may begin again with a later version.
        let is_present = number_of(&version) >= number_of(&present);
        let conditions = version.status.and_then(|status| status.conditions);
        let ready = conditions
            .into_iter()
            .flatten()
            .find(|condition| condition.type_ == "rdmanet.io/LinksReady");
        if let Some(ready) = ready {
            let now = (
                ready.status,
                ready.reason.unwrap_or_default(),
                ready.message.unwrap_or_default(),
            );
            if all.last() != Some(&now) {
                all.push(now);
            }
        }
        if is_present {
            return all;
        }
    }
}

/// The conditions in the API server while `tests/infiniband/links.rs` pulled cables.
async fn assert_link_conditions(admin: &Client, history: &[(String, String, String)]) {
    let turns: Vec<(&str, &str)> = history
        .iter()
        .map(|(status, reason, _)| (status.as_str(), reason.as_str()))
        .collect();
    let up = ("True", "LinksUp");
    let (degraded, down) = (("True", "BondDegraded"), ("False", "LinkDown"));
    let mut left = turns.as_slice();
    for wanted in [up, down, up, degraded, down, degraded, up] {
        let found = left.iter().position(|turn| *turn == wanted);
        let found = found.unwrap_or_else(|| panic!("{wanted:?} is not among {left:?} of {history:#?}"));
        left = &left[found + 1..];
    }
    let sentence = "ib2 has no carrier: softib2 port 1 is down: check cable and switch port";
    assert!(
        history.iter().any(|(_, _, said)| said == sentence),
        "{history:#?}"
    );

    let events: Api<Event> = Api::all(admin.clone());
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let notes: Vec<String> = events
        .into_iter()
        .filter(|event| {
            let about = event.regarding.as_ref();
            about.is_some_and(|about| about.kind.as_deref() == Some("Node"))
        })
        .map(|event| {
            format!(
                "{} {}",
                event.reason.unwrap_or_default(),
                event.note.unwrap_or_default()
            )
        })
        .collect();
    for note in [
        "LinkDown link ib2 has lost carrier",
        "LinkUp link ib2 has carrier again",
        "BondFailover bond bond0 switched from ib0 to ib1",
    ] {
        assert!(
            notes.iter().any(|one| one == note),
            "{note} is not among {notes:#?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_infiniband_the_pod_and_node_status_report_attachments_and_links() {
    let server = Server::shared();
    let admin = server.admin().await;
    let token = objects::install(server).await;
    objects::namespace(&admin, NAMESPACE).await;
    for (name, conf, resource) in networks() {
        objects::network(&admin, NAMESPACE, name, &conf.to_string(), resource).await;
    }
    let mut pods = BTreeMap::new();
    for (name, wanted) in wanted() {
        pods.insert(
            name,
            objects::pod(&admin, NAMESPACE, name, "node-1", &wanted).await,
        );
    }
    let agent = apiserver::Identity::new(&admin, "node-1").await;
    let directory = shared(server, [&token, &agent.token], &pods);
    let (sender, versions) = unbounded_channel();
    let watch = tokio::spawn(watch(admin.clone(), "node-1", sender));
    tokio::task::block_in_place(|| run_in_the_vm(server, directory.path()));
    assert_link_conditions(&admin, &history(&admin, "node-1", versions).await).await;
    watch.abort();
    let status = async |name: &str| objects::status(&admin, &pods[name]).await;

    let trainer = status("trainer-0").await;
    let field = |index: usize, key: &str| trainer[index][key].clone();
    assert_eq!(
        (field(1, "interface"), field(2, "interface")),
        (json!("ib0"), json!("ib1"))
    );
    // The tests in the VM run one by one, in the order of their names. 10.20.0.2 rests: the pod of an earlier test had it.
    assert_eq!(
        (field(1, "ips"), field(2, "ips")),
        (json!(["10.20.0.3"]), json!(["10.21.0.2"]))
    );
    assert_eq!(
        (field(1, "name"), field(1, "mtu")),
        (json!("ml/rail0"), json!(4092))
    );
    let mac = field(1, "mac");
    assert_eq!(mac.as_str().unwrap().split(':').count(), 20, "{mac}");

    let chosen = &status("chosen").await[1]["device-info"];
    assert_eq!(
        chosen["pci"]["rdma-device"], "mlx5_7",
        "the device plugin's file has priority: {chosen}"
    );
    let roce = &status("roce").await[1]["device-info"];
    assert_eq!(roce["pci"]["rdma-device"], "rxe0", "{roce}");
    let function = roce["pci"]["pf-pci-address"].as_str().unwrap();
    assert!(function.starts_with("0000:"), "{roce}");
    assert!(
        roce["pci"].get("pci-address").is_none(),
        "the function is not the pod's: {roce}"
    );
    assert_eq!(status("whole").await.len(), 3);
    assert!(status("other-guid").await.is_empty());
}
