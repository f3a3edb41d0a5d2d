// SPDX-License-Identifier: Apache-2.0
//! dranet, installed from its own manifest beside rdmanet. Both give whole IPoIB ports to pods: dranet by claims, rdmanet by a
//! network in mode `device`.
//!
//! Each node has eight ports (`tests/node/up --rails 8`). The first four are rdmanet's, the others dranet's.
//!
//! Invariant: no assertion is about a port of dranet. What it leaves is printed.

use crate::cluster::{Cluster, NODES, repository, run};
use crate::kills::kill;
use crate::peers::{adapted, module, settle, share};
use crate::steps::shell;
use crate::workload;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The network of rdmanet's pods.
pub(crate) const NETWORK: &str = "whole";
/// The most pods of each Deployment. There are eight ports for each.
pub(crate) const MOST: usize = 6;
/// Ports of a node, for each product.
const EACH: usize = 4;

/// The ports of rdmanet (`half` 0) or dranet (`half` 1) on the node with this index.
fn ports(index: usize, half: usize) -> Vec<String> {
    let first = 2 * EACH * index + EACH * half;
    (first..first + EACH).map(|port| format!("ib{port}")).collect()
}

/// The ports of one product on both nodes.
fn all_ports(half: usize) -> Vec<String> {
    [ports(0, half), ports(1, half)].concat()
}

/// A network whose pods get a port of rdmanet whole.
fn network() -> Value {
    let master: Vec<Value> = all_ports(0)
        .into_iter()
        .map(|port| json!({"ifName": port}))
        .collect();
    let config = json!({
        "cniVersion": "1.1.0", "name": NETWORK, "type": "cni-ipoib", "mode": "device", "master": master, "keepLast": false,
        "ipam": {"type": "rdma-ipam", "pool": "rail0"},
    });
    json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"name": NETWORK},
        "spec": {"config": config.to_string()},
    })
}

/// A class of dranet's ports, and a template of claims for one of them. Devices without an interface lack `ifName`.
fn class() -> [Value; 2] {
    let names = json!(all_ports(1));
    let condition = format!(
        r#"device.driver == "dra.net" && "ifName" in device.attributes["dra.net"] && device.attributes["dra.net"].ifName in {names}"#
    );
    let request = json!({"name": "port", "exactly": {"deviceClassName": "port"}});
    [
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "port"},
            "spec": {"selectors": [{"cel": {"expression": condition}}]},
        }),
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "port"},
            "spec": {"spec": {"devices": {"requests": [request]}}},
        }),
    ]
}

/// A Deployment whose pods claim one port each.
pub(crate) fn deployment(name: &str, replicas: usize) -> Value {
    let mut deployment = workload::deployment(name, "", replicas, None);
    let template = &mut deployment["spec"]["template"];
    template["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("annotations");
    let spec = &mut template["spec"];
    spec["resourceClaims"] = json!([{"name": "port", "resourceClaimTemplateName": "port"}]);
    spec["containers"][0]["resources"] = json!({"claims": [{"name": "port"}]});
    deployment
}

/// Lets containerd wait a minute for an answer of an NRI plugin, in place of 2 s, because the processor is emulated. The nodes start
/// with the file of the VM; those that run have mounts of their own.
fn patience(cluster: &Cluster) {
    let original = std::fs::read_to_string(repository().join("tests/node/vm/containerd.toml")).unwrap();
    let nri = "[plugins.'io.containerd.nri.v1.nri']\n  plugin_request_timeout = '60s'\n  plugin_registration_timeout = '60s'\n";
    std::fs::write(cluster.shared().join("containerd.toml"), original + "\n" + nri).unwrap();
    for place in ["vm"].iter().chain(&NODES) {
        shell(
            cluster,
            place,
            "mount --bind /node/kube/containerd.toml /script/containerd.toml",
        );
    }
    for node in NODES {
        kill(cluster, node, "containerd");
    }
}

/// Installs dranet and a class of its ports, and a network of rdmanet's ports.
pub(crate) fn install(cluster: &Cluster) {
    patience(cluster);
    let program = run(Command::new(repository().join("tests/go/build")).arg("dranet"));
    share(
        cluster,
        "dranet",
        [PathBuf::from(program).join("dranet")].into_iter(),
    );
    let manifest = module("dranet", "sigs.k8s.io/dranet").join("install.yaml");
    let mut objects = adapted(cluster, &manifest, "dranet", &["dranet"]);
    for args in objects
        .iter_mut()
        .filter_map(|object| object.pointer_mut("/spec/template/spec/containers/0/args"))
    {
        // It would look for the metadata of each cloud.
        args.as_array_mut()
            .unwrap()
            .push("--cloud-provider-hint=NONE".into());
    }
    objects.extend(class());
    objects.push(network());
    cluster.apply(&objects);
    cluster.rolled_out("kube-system", "daemonset/dranet");
    cluster.until("dranet publishes its ports", || match published(cluster) {
        published if published == 2 * EACH => Ok(()),
        published => Err(format!("{published} ports are published")),
    });
}

/// Objects of the API, without the list around them.
fn items(cluster: &Cluster, kind: &str) -> Vec<Value> {
    cluster.get(kind)["items"].as_array().unwrap().clone()
}

/// How many of its ports dranet publishes.
fn published(cluster: &Cluster) -> usize {
    let ports = all_ports(1);
    let slices = items(cluster, "resourceslices");
    let devices = slices
        .iter()
        .filter_map(|slice| slice["spec"]["devices"].as_array())
        .flatten();
    devices
        .filter(|device| ports.iter().any(|port| device["name"] == *port))
        .count()
}

/// The interfaces of all pods' namespaces, by the UID of the pod. A sandbox has one process `pause`.
fn interfaces(cluster: &Cluster) -> BTreeMap<String, BTreeSet<String>> {
    let script = "for p in $(pidof pause); do \
        echo $(sed -n 's/.*pod\\([-0-9a-f]\\{36\\}\\).*/\\1/p' /proc/$p/cgroup) $(sed -n 's/^ *\\([^: ]*\\):.*/\\1/p' /proc/$p/net/dev); \
        done 2>/dev/null; true";
    let mut all = BTreeMap::<String, BTreeSet<String>>::new();
    for node in NODES {
        for line in shell(cluster, node, script).lines() {
            let mut words = line.split_whitespace().map(str::to_owned);
            if let Some(uid) = words.next() {
                all.entry(uid).or_default().extend(words);
            }
        }
    }
    all
}

/// The device that a claim has got.
fn device(claim: &Value) -> Option<&str> {
    claim["status"]["allocation"]["devices"]["results"][0]["device"].as_str()
}

/// The interface that a pod has to have: the port of its claim, or `net1`.
fn expected(pod: &Value, claims: &[Value]) -> Option<String> {
    if pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] == NETWORK {
        return Some("net1".into());
    }
    let name = &pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"];
    let claim = claims
        .iter()
        .find(|claim| name.is_string() && claim["metadata"]["name"] == *name)?;
    device(claim).map(str::to_owned)
}

/// The pods that are Ready without their interface, and the ports that two claims of living pods have.
fn look(cluster: &Cluster) -> BTreeSet<String> {
    let (pods, claims) = (items(cluster, "pods"), items(cluster, "resourceclaims"));
    let interfaces = interfaces(cluster);
    let mut owners = BTreeMap::<String, &str>::new();
    let mut found = BTreeSet::new();
    for pod in pods
        .iter()
        .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
    {
        let (Some(uid), Some(name)) = (pod["metadata"]["uid"].as_str(), pod["metadata"]["name"].as_str())
        else {
            continue;
        };
        let Some(expected) = expected(pod, &claims) else {
            continue;
        };
        let has = interfaces.get(uid);
        if crate::witnesses::is_ready(pod) && has.is_some_and(|has| !has.contains(&expected)) {
            found.insert(format!("{name} is Ready without {expected}"));
        }
        if expected != "net1"
            && let Some(other) = owners.insert(expected.clone(), name)
        {
            found.insert(format!("{name} and {other} have {expected}"));
        }
    }
    found
}

/// What both of two looks find: pods that are Ready without their interface, and ports of two pods.
pub(crate) fn faults(cluster: &Cluster) -> BTreeSet<String> {
    let first = look(cluster);
    if first.is_empty() {
        return first;
    }
    look(cluster).intersection(&first).cloned().collect()
}

/// The ports of one product that are not in the namespace of their node, each with its state there if it is down.
fn away(cluster: &Cluster, half: usize) -> Vec<String> {
    let mut away = Vec::new();
    for (index, node) in NODES.iter().enumerate() {
        let there = shell(cluster, node, "ip -o link show type ipoib");
        let has = |port: &String, word: &str| {
            let of = |line: &&str| line.contains(&format!(" {port}: "));
            there.lines().find(of).is_some_and(|line| line.contains(word))
        };
        for port in ports(index, half) {
            if !has(&port, "") {
                away.push(port);
            } else if !has(&port, "UP") {
                away.push(format!("{port} (down)"));
            }
        }
    }
    away
}

/// Prints what both products have now.
fn report(cluster: &Cluster, when: &str) {
    let pods = items(cluster, "pods");
    let living: BTreeSet<&str> = pods
        .iter()
        .filter_map(|pod| pod["metadata"]["uid"].as_str())
        .collect();
    let claims = items(cluster, "resourceclaims");
    let allocated: Vec<&Value> = claims.iter().filter(|claim| device(claim).is_some()).collect();
    let lives = |claim: &&&Value| {
        let pod = claim["status"]["reservedFor"][0]["uid"].as_str();
        pod.is_some_and(|uid| living.contains(uid))
    };
    let leaked = allocated.len() - allocated.iter().filter(lives).count();
    println!(
        "did: {when}: {} claims have a device, {leaked} of them without a pod; dranet publishes {} ports",
        allocated.len(),
        published(cluster)
    );
    for (product, half) in [("rdmanet", 0), ("dranet", 1)] {
        let away = away(cluster, half);
        println!(
            "did: {when}: {} ports of {product} away or down: {away:?}",
            away.len()
        );
    }
    println!("did: {when}: {:#?}", faults(cluster));
}

/// Reports what there is once the Deployment of dranet has its pods, or five minutes are over.
pub(crate) fn end(cluster: &Cluster, app: &str) {
    settle(cluster, app);
    report(cluster, "with all pods running");
    print!("{}", cluster.kubectl("get pods -o wide"));
}

/// Reports what is left a minute after the last pod, before and after a restart of dranet.
pub(crate) fn left(cluster: &Cluster) {
    std::thread::sleep(Duration::from_secs(60));
    report(cluster, "a minute after the last pod");
    cluster.kubectl("-n kube-system rollout restart daemonset/dranet");
    cluster.rolled_out("kube-system", "daemonset/dranet");
    std::thread::sleep(Duration::from_secs(60));
    report(cluster, "a minute after a restart of dranet");
    cluster.until("every port of rdmanet is on its node", || {
        let away = away(cluster, 0);
        if away.is_empty() {
            Ok(())
        } else {
            Err(format!("{away:?}"))
        }
    });
}
