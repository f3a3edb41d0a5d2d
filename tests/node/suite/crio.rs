// SPDX-License-Identifier: Apache-2.0
//! What CRI-O does in a way of its own (docs/install.md, "CRI-O"), on nodes with CRI-O: `tests/all node_crio`.

use crate::cluster::{Cluster, rdmanet, run};
use crate::faults::KILL_AFTER_ADD;
use crate::kills::kill;
use crate::lost_del::ranges;
use crate::steps::{agent_log, shell};
use crate::witnesses::{agree, nothing_left};
use crate::workload::{ready, remove, single, start};
use serde_json::{Value, json};
use std::process::Command;
use std::sync::MutexGuard;

/// The cluster, whose nodes have CRI-O.
fn cluster() -> MutexGuard<'static, Cluster> {
    let cluster = Cluster::lock();
    assert_eq!(
        cluster.runtime, "crio",
        "the nodes have another runtime: start the cluster with RDMANET_RUNTIME=cri-o"
    );
    cluster
}

/// CRI-O calls DEL once. The plugin of the cluster network is not there at this time, so DEL fails, and the network namespace goes.
#[test]
fn what_a_failed_del_leaves_is_collected() {
    let cluster = cluster();
    start(&cluster, "failed-del", "ib-ipoib", "node-1");
    shell(
        &cluster,
        "node-1",
        "mv /opt/cni/bin/multus-shim /opt/cni/bin/away",
    );
    remove(&cluster, "pod/failed-del");
    shell(
        &cluster,
        "node-1",
        "mv /opt/cni/bin/away /opt/cni/bin/multus-shim",
    );
    let failed = "Failed to destroy network for pod sandbox .*failed-del";
    let times = shell(
        &cluster,
        "node-1",
        &format!("grep -c '{failed}' /var/log/crio.log"),
    );
    assert_eq!(times, "1", "DELs that failed");
    // CRI-O holds the namespace open until the kubelet removes the sandbox, and the kernel returns the link after that.
    cluster.until("the attachment is collected", || {
        match cluster.at("node-1", &["ls", "/run/rdmanet/attachments/ib-ipoib"]) {
            none if none.is_empty() => Ok(()),
            left => Err(left),
        }
    });
    nothing_left(&cluster);
    let log = agent_log(&cluster, "node-1");
    assert!(log.contains("collected an attachment without a pod"), "{log}");
}

/// The namespaces on node-1 that `rdmanet node` shows to be without a process, by the names that `ip netns` knows.
fn namespaces_without_a_process(cluster: &Cluster) -> Vec<String> {
    let program = cluster.shared().join("rdmanet");
    if !program.exists() {
        run(Command::new("strip").arg("-o").arg(&program).arg(rdmanet()));
    }
    // Exit status 1 says that something is wrong with the node.
    let (Ok(text) | Err(text)) = cluster.try_at("node-1", &["/node/kube/rdmanet", "node", "-o", "json"]);
    let node: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let findings = node["findings"].as_array().unwrap();
    let lost = findings.iter().filter(|finding| {
        let text = finding["text"].as_str().unwrap();
        text.contains("no process is in this network namespace") && text.contains("of pod default/struck")
    });
    lost.map(|finding| {
        finding["subject"]
            .as_str()
            .unwrap()
            .rsplit('/')
            .next()
            .unwrap()
            .to_owned()
    })
    .collect()
}

/// CRI-O is killed after ADD and before it has written the sandbox. Its next start calls no DEL and leaves the namespace.
#[test]
fn a_sandbox_lost_by_cri_o_is_shown_and_collected_once_its_namespace_is_deleted() {
    let cluster = cluster();
    let mut lost = Vec::new();
    // The kill may come too late.
    for _ in 0..20 {
        cluster.apply(&[single("struck", "ib-ipoib", Some("node-1"))]);
        cluster.at("node-1", &["sh", "-c", KILL_AFTER_ADD, "sh", "crio"]);
        ready(&cluster, "struck");
        lost = namespaces_without_a_process(&cluster);
        if !lost.is_empty() {
            break;
        }
        remove(&cluster, "pod/struck");
    }
    println!("did: CRI-O lost the sandboxes in {lost:?}");
    assert!(!lost.is_empty(), "CRI-O has lost no sandbox");
    for namespace in lost {
        shell(&cluster, "node-1", &format!("ip netns delete {namespace}"));
    }
    agree(&cluster, 1);
    remove(&cluster, "pod/struck");
    nothing_left(&cluster);
}

/// Attaches the namespace `living` to a network whose file lies in CRI-O's directory, as `cnitool` does. Arguments: the file, the plugin's
/// configuration.
const ATTACH: &str = r#"
    printf '{"cniVersion": "1.1.0", "name": "lost", "plugins": [%s]}' "$2" >"$1"
    export CNI_COMMAND=ADD CNI_CONTAINERID=living CNI_NETNS=/run/netns/living CNI_IFNAME=net9 CNI_PATH=/opt/cni/bin
    ip netns add living && printf %s "$2" | /opt/cni/bin/cni-ipoib
"#;

/// When CRI-O starts, it calls GC for each network of its directory, and names its own attachments only.
#[test]
fn a_starting_cri_o_removes_foreign_attachments_from_networks_of_its_directory() {
    let cluster = cluster();
    let file = "/etc/cni/net.d/50-lost.conflist";
    start(&cluster, "own", "ib-ipoib", "node-1");
    let config = json!({
        "cniVersion": "1.1.0", "name": "lost", "type": "cni-ipoib", "master": "ib0", "ipam": ranges(),
    });
    cluster.at("node-1", &["sh", "-c", ATTACH, "sh", file, &config.to_string()]);
    shell(&cluster, "node-1", "ip -n living link show net9");
    kill(&cluster, "node-1", "crio");
    cluster.until("the attachment is gone", || {
        match cluster.try_at("node-1", &["ip", "-n", "living", "link", "show", "net9"]) {
            Err(said) if said.contains("does not exist") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    // The network of the pod is not in the directory, so the pod keeps its interface.
    agree(&cluster, 1);
    shell(&cluster, "node-1", &format!("rm {file}; ip netns del living"));
    remove(&cluster, "pod/own");
    nothing_left(&cluster);
}
