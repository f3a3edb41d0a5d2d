// SPDX-License-Identifier: Apache-2.0
//! whereabouts with macvlan, installed from its own manifests beside rdmanet.
//!
//! Invariant: no assertion is about an address of whereabouts. What it leaves is printed.

use crate::cluster::{Cluster, NODES, repository, run};
use crate::witnesses::{on_links, repeated};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The networks annotation of a pod.
pub(crate) const NETWORK: &str = "whereabouts@peer0";
/// The pods' interface.
const INTERFACE: &str = "peer0";
/// The first three bytes of every address.
const PREFIX: &str = "10.99.0";
/// The programs that its image has, and macvlan.
const PROGRAMS: [&str; 4] = ["whereabouts", "ip-control-loop", "ip-reconciler", "macvlan"];
/// The scripts that its image has.
const SCRIPTS: [&str; 3] = ["install-cni.sh", "lib.sh", "token-watcher.sh"];
/// The definitions and manifests in `doc/crds` of its module.
const DEFINITIONS: [&str; 3] = [
    "whereabouts.cni.cncf.io_ippools.yaml",
    "whereabouts.cni.cncf.io_nodeslicepools.yaml",
    "whereabouts.cni.cncf.io_overlappingrangeipreservations.yaml",
];
const MANIFESTS: [&str; 2] = ["daemonset-install.yaml", "reconciler-deployment.yaml"];
/// The directory of a module that `tests/go/GROUP` pins.
pub(crate) fn module(group: &str, module: &str) -> PathBuf {
    let directory = repository().join("tests/go").join(group);
    let directory = directory.to_str().unwrap();
    PathBuf::from(run(
        Command::new("go").args(["-C", directory, "list", "-m", "-f", "{{.Dir}}", module])
    ))
}

/// Copies files to /node/kube/PEER, where the nodes see them.
pub(crate) fn share(cluster: &Cluster, peer: &str, files: impl Iterator<Item = PathBuf>) {
    let directory = cluster.shared().join(peer);
    std::fs::create_dir_all(&directory).unwrap();
    for file in files {
        run(Command::new("install")
            .args(["-m", "0755"])
            .args([&file, &directory]));
    }
}

/// Lets a pod template use the image of the other pods in place of the peer's own. That image has a shell; the files
/// come from the node. The limit of a tenth of a processor is removed, because the processor is emulated.
fn adapt(template: &mut Value, peer: &str, files: &[&str]) {
    let mounts = files
        .iter()
        .map(|name| json!({"name": "files", "mountPath": format!("/{name}"), "subPath": name}))
        .collect::<Vec<_>>();
    let spec = &mut template["spec"];
    if spec["volumes"].is_null() {
        spec["volumes"] = json!([]);
    }
    let volumes = spec["volumes"].as_array_mut().unwrap();
    volumes.push(json!({"name": "files", "hostPath": {"path": format!("/node/kube/{peer}")}}));
    let container = &mut spec["containers"][0];
    container["image"] = "localhost/rdma:1".into();
    container["imagePullPolicy"] = "Never".into();
    if container["command"][0] == "/bin/sh" {
        // Its scripts call `source`, which the shell of Debian does not have.
        container["command"][0] = "/bin/bash".into();
    }
    container.as_object_mut().unwrap().remove("resources");
    container["volumeMounts"].as_array_mut().unwrap().extend(mounts);
}

/// The objects of a manifest. Its pods use `files` of /node/kube/PEER.
pub(crate) fn adapted(cluster: &Cluster, manifest: &Path, peer: &str, files: &[&str]) -> Vec<Value> {
    let objects = cluster.kubectl(&format!(
        "create --dry-run=client -o json -f {}",
        manifest.display()
    ));
    let objects = serde_json::Deserializer::from_str(&objects).into_iter::<Value>();
    let mut objects: Vec<Value> = objects.map(Result::unwrap).collect();
    for template in objects
        .iter_mut()
        .filter_map(|object| object.pointer_mut("/spec/template"))
    {
        adapt(template, peer, files);
    }
    objects
}

/// Installs whereabouts and a network of it on both nodes.
pub(crate) fn install(cluster: &Cluster) {
    let programs = run(Command::new(repository().join("tests/go/build")).args(PROGRAMS));
    let module = module("whereabouts", "github.com/k8snetworkplumbingwg/whereabouts");
    let programs = PROGRAMS.map(|name| PathBuf::from(&programs).join(name));
    let scripts = SCRIPTS.map(|name| module.join("script").join(name));
    share(cluster, "whereabouts", programs.into_iter().chain(scripts));
    let manifests = module.join("doc/crds");
    for file in DEFINITIONS {
        cluster.kubectl(&format!("apply -f {}", manifests.join(file).display()));
    }
    let files = [&PROGRAMS[..], &SCRIPTS].concat();
    for file in MANIFESTS {
        cluster.apply(&adapted(cluster, &manifests.join(file), "whereabouts", &files));
    }
    let config = json!({
        "cniVersion": "1.0.0", "name": "whereabouts", "type": "macvlan", "master": "host0", "mode": "bridge",
        "ipam": {"type": "whereabouts", "range": format!("{PREFIX}.0/24")},
    });
    cluster.apply(&[json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "whereabouts", "namespace": "default"}, "spec": {"config": config.to_string()},
    })]);
    for node in NODES {
        cluster.at(node, &["cp", "/node/kube/whereabouts/macvlan", "/opt/cni/bin/"]);
    }
    cluster.rolled_out("kube-system", "daemonset/whereabouts");
    cluster.rolled_out("kube-system", "deployment/whereabouts-reconciler");
}

/// The addresses of whereabouts that two pods have at once.
pub(crate) fn duplicates(cluster: &Cluster) -> BTreeSet<String> {
    repeated(cluster, || on_links(cluster, INTERFACE))
}

/// The addresses that whereabouts' pools record, each with its pod.
fn recorded(cluster: &Cluster) -> Vec<(String, String)> {
    let pools = cluster.get("ippools.whereabouts.cni.cncf.io -n kube-system");
    let pools = pools["items"].as_array().unwrap().iter();
    pools
        .filter_map(|pool| pool["spec"]["allocations"].as_object())
        .flatten()
        .map(|(offset, owner)| {
            let pod = owner["podref"].as_str().unwrap_or_default().to_owned();
            (format!("{PREFIX}.{offset}"), pod)
        })
        .collect()
}

/// What is wrong now: records without a pod, and links whose address no record protects.
fn report(cluster: &Cluster, when: &str) {
    let pods = cluster.kubectl("get pods -o name");
    let living: BTreeSet<String> = pods
        .lines()
        .map(|name| name.replace("pod/", "default/"))
        .collect();
    let recorded = recorded(cluster);
    let leaked = recorded.iter().filter(|(_, pod)| !living.contains(pod)).count();
    let links = cluster.until("the links of all pods are read", || on_links(cluster, INTERFACE));
    let is_exposed = |address: &&String| recorded.iter().all(|(there, _)| there != *address);
    let exposed = links.iter().filter(is_exposed).count();
    println!(
        "did: whereabouts {when}: {} records, {leaked} of them without a pod; {} links, {exposed} of them without a record",
        recorded.len(),
        links.len()
    );
}

/// Waits until the Deployment has its pods, or five minutes are over.
pub(crate) fn settle(cluster: &Cluster, app: &str) {
    let deployment = format!("deployment/{app}");
    let status = ["rollout", "status", &deployment, "--timeout=5s"];
    let deadline = Instant::now() + Duration::from_secs(300);
    let mut said = cluster.try_kubectl(&status);
    while said.is_err() && Instant::now() < deadline {
        said = cluster.try_kubectl(&status);
    }
    println!("did: {app}: {said:?}");
}

/// Reports what whereabouts has recorded once the Deployment has its pods.
pub(crate) fn end(cluster: &Cluster, app: &str) {
    settle(cluster, app);
    report(cluster, "with its pods running");
}

/// Reports what is left after the last pod, before and after a run of `ip-reconciler`, which usually runs once a day.
pub(crate) fn left(cluster: &Cluster) {
    std::thread::sleep(Duration::from_secs(60));
    report(cluster, "a minute after the last pod");
    let every_minute = r#"{"data":{"cron-expression":"* * * * *"}}"#;
    let patch = [
        "-n",
        "kube-system",
        "patch",
        "configmap",
        "whereabouts-config",
        "-p",
        every_minute,
    ];
    cluster.try_kubectl(&patch).unwrap();
    cluster.kubectl("-n kube-system rollout restart deployment/whereabouts-reconciler");
    cluster.rolled_out("kube-system", "deployment/whereabouts-reconciler");
    std::thread::sleep(Duration::from_secs(130));
    report(cluster, "after two runs of ip-reconciler");
}
