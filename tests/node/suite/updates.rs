// SPDX-License-Identifier: Apache-2.0
//! Updates of rdmanet while pods start and stop.

use crate::cluster::{Cluster, NODES, repository, run};
use crate::witnesses::{Pod, agree, no_duplicate, pods};
use crate::workload::{deployment, one_on_each, ping, remove, remove_trainers, trainers};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The image of the earlier version, which the test makes.
const EARLIER: &str = "rdmanet-agent:0.0.9";
/// What each plugin prints about itself after its name.
const VERSION: &[u8] = b" 0.1.0 (rdmanet): ";
const EARLIER_VERSION: &[u8] = b" 0.0.9 (rdmanet): ";

/// The names of the agents' pods.
fn agents(cluster: &Cluster) -> BTreeSet<String> {
    let names = cluster.kubectl("-n rdmanet-system get pods -l app.kubernetes.io/name=rdmanet-agent -o name");
    names.lines().map(str::to_owned).collect()
}

#[test]
fn pods_start_and_stop_while_the_agents_are_updated_one_after_the_other() {
    let cluster = Cluster::lock();
    trainers(&cluster);
    let before = agents(&cluster);
    cluster
        .kubectl("-n rdmanet-system rollout restart daemonset/rdmanet-agent deployment/rdmanet-controller");
    let updated = [
        "-n",
        "rdmanet-system",
        "rollout",
        "status",
        "daemonset/rdmanet-agent",
        "--timeout=1s",
    ];
    let mut rounds = 0;
    while rounds < 2 || cluster.try_kubectl(&updated).is_err() {
        for replicas in ["8", "2"] {
            cluster.kubectl(&format!("scale deployment/trainers --replicas={replicas}"));
            cluster.rolled_out("default", "deployment/trainers");
            no_duplicate(&cluster);
        }
        rounds += 1;
    }
    assert!(agents(&cluster).is_disjoint(&before), "{before:?} still run");
    cluster.rolled_out("rdmanet-system", "deployment/rdmanet-controller");
    agree(&cluster, 2);
    remove_trainers(&cluster);
}

/// Writes another version into a plugin, in place of its own.
fn relabel(plugin: &Path) {
    let mut content = std::fs::read(plugin).unwrap();
    let found: Vec<usize> = content
        .windows(VERSION.len())
        .enumerate()
        .filter(|(_, bytes)| *bytes == VERSION)
        .map(|(at, _)| at)
        .collect();
    assert!(
        !found.is_empty(),
        "{} does not state its version",
        plugin.display()
    );
    for at in found {
        content[at..at + EARLIER_VERSION.len()].copy_from_slice(EARLIER_VERSION);
    }
    std::fs::write(plugin, content).unwrap();
}

/// Imports an image with the same programs on each node. Its plugins say that they are of an earlier version.
fn import_earlier(cluster: &Cluster) {
    let tree = cluster.shared().join("earlier");
    run(Command::new(repository().join("conf/image/build"))
        .args(["--tree", tree.to_str().unwrap(), "amd64"])
        .env("PROFILE", "dev"));
    let tree = tree.join("amd64");
    run(Command::new("strip").args(["rdmanet-agent", "rdmanet-controller"].map(|name| tree.join(name))));
    for plugin in ["cni-ipoib", "rdma-ipam"] {
        relabel(&tree.join("plugins").join(plugin));
    }
    run(Command::new(repository().join("tests/node/archive"))
        .arg(format!("docker.io/library/{EARLIER}"))
        .args([&tree, &cluster.shared().join("earlier.tar")])
        .arg("/rdmanet-agent"));
    for node in NODES {
        cluster.at(
            node,
            &[
                "ctr",
                "--namespace",
                "k8s.io",
                "images",
                "import",
                "--local",
                "/node/kube/earlier.tar",
            ],
        );
    }
}

/// Waits until every agent and controller runs, and checks the plugins' version, the pods of before, and that pods start and stop.
fn works(cluster: &Cluster, version: &str, before: &[Pod]) {
    cluster.rolled_out("rdmanet-system", "daemonset/rdmanet-agent");
    cluster.rolled_out("rdmanet-system", "deployment/rdmanet-controller");
    for node in NODES {
        let text = cluster.at(
            node,
            &["sh", "-c", "/opt/cni/bin/cni-ipoib 2>&1 </dev/null; true"],
        );
        assert!(text.contains(version), "{node}: {text} is not {version}");
    }
    cluster.apply(&[deployment("passing", "ib-ipoib", 2, None)]);
    cluster.rolled_out("default", "deployment/passing");
    agree(cluster, before.len() + 2);
    remove(cluster, "deployment/passing");
    agree(cluster, before.len());
    let now = pods(cluster, "trainers");
    for pod in before {
        let same = now
            .iter()
            .any(|other| other.name == pod.name && other.address == pod.address);
        assert!(same, "{pod:?} is not in {now:?}");
    }
    let [here, there] = one_on_each(before);
    ping(cluster, here, there);
}

#[test]
fn an_upgrade_and_its_rollback_leave_running_pods_as_they_are() {
    let cluster = Cluster::lock();
    import_earlier(&cluster);
    let set = "-n rdmanet-system set image";
    cluster.kubectl(&format!(
        "{set} daemonset/rdmanet-agent install={EARLIER} agent={EARLIER} collector={EARLIER}"
    ));
    cluster.kubectl(&format!(
        "{set} deployment/rdmanet-controller controller={EARLIER}"
    ));
    cluster.rolled_out("rdmanet-system", "daemonset/rdmanet-agent");
    let before = trainers(&cluster);
    works(&cluster, "0.0.9", &before);
    // The upgrade and the rollback of docs/install.md.
    cluster.kubectl("apply -k conf/base");
    works(&cluster, "0.1.0", &before);
    cluster.kubectl("-n rdmanet-system rollout undo daemonset/rdmanet-agent");
    works(&cluster, "0.0.9", &before);
    cluster.kubectl("apply -k conf/base");
    works(&cluster, "0.1.0", &before);
    remove_trainers(&cluster);
}
