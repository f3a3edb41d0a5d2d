// SPDX-License-Identifier: Apache-2.0
//! The three sources of a pod's address: the stores on the nodes, the API server, and the links in the pods' namespaces.

use crate::cluster::{Cluster, NODES};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Addresses of all pools, by node.
pub(crate) type Addresses = BTreeMap<String, BTreeSet<String>>;

/// A pod that has an address.
#[derive(Debug, Clone)]
pub(crate) struct Pod {
    /// Its name, in namespace `default`.
    pub(crate) name: String,
    /// Its node.
    pub(crate) node: String,
    /// The address of `net1`, by the annotation that Multus writes.
    pub(crate) address: String,
}

/// The address of `net1` in a pod's network-status.
fn address_of(pod: &Value) -> Option<String> {
    let status = pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"].as_str()?;
    let networks: Vec<Value> = serde_json::from_str(status).ok()?;
    let network = networks.iter().find(|network| network["interface"] == "net1")?;
    Some(network["ips"][0].as_str()?.to_owned())
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    pod["metadata"]["deletionTimestamp"].is_null()
        && conditions.is_some_and(|conditions| conditions.iter().any(ready))
}

/// The pods with this label that are Ready and have an address.
pub(crate) fn pods(cluster: &Cluster, label: &str) -> Vec<Pod> {
    let list = cluster.get(&format!("pods -l app={label}"));
    let pod = |pod: &Value| {
        Some(Pod {
            name: pod["metadata"]["name"].as_str()?.to_owned(),
            node: pod["spec"]["nodeName"].as_str()?.to_owned(),
            address: address_of(pod)?,
        })
    };
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|pod| is_ready(pod))
        .filter_map(pod)
        .collect()
}

/// The first witness: the addresses that this boot's stores record as allocated.
pub(crate) fn stores(cluster: &Cluster) -> Result<Addresses, String> {
    let script = "for pool in /var/lib/cni/rdma-ipam/pools/*/boot-$(cat /proc/sys/kernel/random/boot_id)/addresses; do \
        [ ! -d $pool ] || ls $pool; done";
    by_node(cluster, script)
}

/// The third: the addresses of `net1` in every namespace that the runtime has made.
pub(crate) fn links(cluster: &Cluster) -> Result<Addresses, String> {
    by_node(cluster, &script_of_links("net1"))
}

/// Prints the addresses of this interface in every namespace that the runtime has made.
fn script_of_links(interface: &str) -> String {
    format!(
        "for netns in /run/netns/*; do [ -e $netns ] || continue; \
        ip -n ${{netns##*/}} -4 -o addr show dev {interface} 2>/dev/null | sed -E 's/.* inet ([0-9.]+).*/\\1/'; done; true"
    )
}

/// The addresses of this interface in every namespace of both nodes, with repetitions.
pub(crate) fn on_links(cluster: &Cluster, interface: &str) -> Result<Vec<String>, String> {
    let script = script_of_links(interface);
    let mut all = Vec::new();
    for node in NODES {
        all.extend(lines_of(cluster, node, &script)?);
    }
    Ok(all)
}

/// What a script prints on a node, without empty lines.
fn lines_of(cluster: &Cluster, node: &str, script: &str) -> Result<Vec<String>, String> {
    let text = cluster.try_at(node, &["sh", "-c", script])?;
    let lines = text.lines().filter(|line| !line.is_empty());
    Ok(lines.map(str::to_owned).collect())
}

fn by_node(cluster: &Cluster, script: &str) -> Result<Addresses, String> {
    let mut all = Addresses::new();
    for node in NODES {
        let lines = lines_of(cluster, node, script)?;
        let addresses: BTreeSet<String> = lines.iter().cloned().collect();
        assert_eq!(
            addresses.len(),
            lines.len(),
            "{node} has an address twice: {lines:?}"
        );
        all.insert(node.to_owned(), addresses);
    }
    Ok(all)
}

/// The second: the annotations of the pods that live.
fn annotations(cluster: &Cluster) -> Addresses {
    let mut all: Addresses = NODES
        .iter()
        .map(|node| ((*node).to_owned(), BTreeSet::new()))
        .collect();
    let list = cluster.get("pods --all-namespaces");
    for pod in list["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|pod| is_ready(pod))
    {
        if let (Some(node), Some(address)) = (pod["spec"]["nodeName"].as_str(), address_of(pod)) {
            let new = all.entry(node.to_owned()).or_default().insert(address.clone());
            assert!(new, "two pods of {node} have {address}");
        }
    }
    all
}

/// Child links of InfiniBand ports that lie in the namespace of a node or of the VM, where no pod is.
fn strays(cluster: &Cluster) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for place in NODES.iter().chain(&["vm"]) {
        let links = cluster.try_at(place, &["sh", "-c", "ip -json -details link show type ipoib"])?;
        let links: Vec<Value> = serde_json::from_str(if links.is_empty() { "[]" } else { &links })
            .map_err(|e| format!("{e}: {links}"))?;
        let children = links
            .iter()
            .filter(|link| !link["link"].is_null() || !link["link_index"].is_null());
        found.extend(children.map(|link| format!("{place}: {}", link["ifname"])));
    }
    Ok(found)
}

/// Waits until all three name the same `count` addresses; then no address is in two places, and nothing is left of any other.
pub(crate) fn agree(cluster: &Cluster, count: usize) {
    let all = cluster.until(
        &format!("three witnesses name the same {count} addresses"),
        || {
            let (stores, annotations, links) = (stores(cluster)?, annotations(cluster), links(cluster)?);
            let strays = strays(cluster)?;
            let named: usize = links.values().map(BTreeSet::len).sum();
            if stores == annotations && annotations == links && named == count && strays.is_empty() {
                return Ok(links);
            }
            Err(format!(
                "stores {stores:?}; API server {annotations:?}; links {links:?}; strays {strays:?}"
            ))
        },
    );
    let different: BTreeSet<&String> = all.values().flatten().collect();
    assert_eq!(different.len(), count, "an address is on two nodes: {all:?}");
    let check = cluster.rdmanet("check");
    // A check that fails before its report prints neither FAIL nor the summary.
    assert!(check.contains(" found: ") && !check.contains("FAIL"), "{check}");
}

/// The addresses that occur more than once in both of two looks. The nodes are read one after the other, so one look proves
/// nothing.
pub(crate) fn repeated(
    cluster: &Cluster,
    look: impl Fn() -> Result<Vec<String>, String>,
) -> BTreeSet<String> {
    let twice = || {
        let all = cluster.until("the links of all pods are read", &look);
        let mut seen = BTreeSet::new();
        let again = all.into_iter().filter(|address| !seen.insert(address.clone()));
        again.collect::<BTreeSet<String>>()
    };
    let first = twice();
    if first.is_empty() {
        return first;
    }
    twice().intersection(&first).cloned().collect()
}

/// Fails if links on two nodes have one address.
pub(crate) fn no_duplicate(cluster: &Cluster) {
    let all = || Ok(links(cluster)?.into_values().flatten().collect());
    let again = repeated(cluster, all);
    assert!(again.is_empty(), "DUPLICATE: {again:?} are on links of two nodes");
}

/// Waits until no pod has an address, no address has an object, and the counters of every pool say the same.
pub(crate) fn nothing_left(cluster: &Cluster) {
    agree(cluster, 0);
    cluster.until("no address of any pool is in use", || {
        let objects = cluster.kubectl("get ipaddresses.rdmanet.io -o name");
        let pools = cluster.get("ippools.rdmanet.io");
        let used = |pool: &&Value| pool["status"]["counters"]["used"] != 0;
        let used: Vec<&Value> = pools["items"].as_array().unwrap().iter().filter(used).collect();
        if objects.is_empty() && used.is_empty() {
            Ok(())
        } else {
            Err(format!("objects: {objects}; pools in use: {used:?}"))
        }
    });
}
