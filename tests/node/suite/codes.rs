// SPDX-License-Identifier: Apache-2.0
//! Error codes of docs/operate.md as users see them: in the Events of refused pods, through Multus and kubelet.

use crate::cluster::Cluster;
use crate::pools::{gone, remove_pool};
use crate::steps::{becomes, has_code, refused, shell};
use crate::witnesses::{agree, nothing_left};
use crate::workload::{network, ready, remove, single, start};
use serde_json::{Value, json};

/// The pools of this test. Each is for a label that nothing has.
const POOLS: [&str; 2] = ["other-nodes", "other-namespaces"];

/// A pool with a selector.
fn pool(name: &str, range: &str, selector: &str) -> Value {
    let mut pool = json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPPool", "metadata": { "name": name },
        "spec": { "ranges": [{ "subnet": range, "gateway": "none" }], "blockSize": { "v4": 4 } },
    });
    pool["spec"][selector] = json!({ "matchLabels": { "rdmanet.io/test": "codes" } });
    pool
}

/// The network of conf/networks/ib-ipoib.yaml with other keys. Its name is `name`.
fn other(name: &str, keys: &Value) -> Value {
    let mut object = network(name);
    let mut config: Value = serde_json::from_str(object["spec"]["config"].as_str().unwrap()).unwrap();
    for (key, value) in keys.as_object().unwrap() {
        config[key] = value.clone();
    }
    object["spec"]["config"] = config.to_string().into();
    object
}

/// The networks of this test.
fn networks() -> Vec<Value> {
    vec![
        other("dhcp", &json!({ "ipam": { "type": "dhcp" } })),
        other("no-number", &json!({ "mtu": "x" })),
        other("nobody", &json!({ "ipam": { "type": "nobody" } })),
        network("nowhere"),
        network(POOLS[0]),
        network(POOLS[1]),
    ]
}

/// Pods on node-1: the name, the annotation with the networks, the code.
fn pods(taken: &str) -> [(&'static str, String, u32); 9] {
    let with = |address: &str| json!([{ "name": "ib-ipoib", "ips": [address] }]).to_string();
    [
        ("dhcp", "dhcp".into(), 2),
        ("no-number", "no-number".into(), 6),
        ("nobody", "nobody".into(), 103),
        ("taken", with(taken), 111),
        ("outside", with("192.0.2.1"), 112),
        ("excluded", with("10.20.255.9"), 113),
        ("nowhere", "nowhere".into(), 115),
        ("nodes", POOLS[0].into(), 116),
        ("namespaces", POOLS[1].into(), 117),
    ]
}

#[test]
fn the_event_of_each_refused_pod_has_the_code_of_the_table() {
    let cluster = Cluster::lock();
    let first = start(&cluster, "first", "ib-ipoib", "node-1");
    cluster.apply(&[
        pool(POOLS[0], "10.81.0.0/28", "nodeSelector"),
        pool(POOLS[1], "10.82.0.0/28", "namespaceSelector"),
    ]);
    for name in POOLS {
        cluster.kubectl(&format!(
            "wait ippool/{name} --for=condition=Ready --timeout=600s"
        ));
    }
    cluster.apply(&networks());
    let pods = pods(&first.address);
    let objects: Vec<Value> = pods
        .iter()
        .map(|(name, networks, _)| single(name, networks, Some("node-1")))
        .collect();
    cluster.apply(&objects);
    for (name, _, code) in &pods {
        has_code(&cluster, name, *code);
    }

    // The remedies of the table, for two of them.
    cluster.kubectl("label namespace default rdmanet.io/test=codes");
    ready(&cluster, "namespaces");
    remove(&cluster, "pod/first");
    let taken = ready(&cluster, "taken");
    assert_eq!(taken.address, first.address);
    agree(&cluster, 2);
    for (name, ..) in &pods {
        remove(&cluster, &format!("pod/{name}"));
    }
    cluster.kubectl("label namespace default rdmanet.io/test-");
    nothing_left(&cluster);
    for object in networks() {
        let name = object["metadata"]["name"].as_str().unwrap();
        cluster.kubectl(&format!("delete network-attachment-definitions {name}"));
    }
    for name in POOLS {
        cluster.kubectl(&format!("delete ippools.rdmanet.io {name} --wait=false"));
        gone(&cluster, name);
    }
}

#[test]
fn an_address_that_another_host_has_is_refused_until_that_host_gives_it_up() {
    let cluster = Cluster::lock();
    // A pool with one address, so that the second pod gets the address that the first one had.
    let one = json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPPool", "metadata": { "name": "one" },
        "spec": {
            "allocation": "PerAddress",
            "ranges": [{ "subnet": "10.86.0.0/30", "gateway": "none", "exclude": ["10.86.0.2"] }],
        },
    });
    cluster.apply(&[one, network("one")]);
    becomes(&cluster, "ippool one", "Ready", "True", "Accepted");
    let first = start(&cluster, "first", "one", "node-1");
    remove(&cluster, "pod/first");
    agree(&cluster, 0);
    let address = |verb: &str| format!("ip address {verb} {}/30 dev ib1", first.address);
    shell(&cluster, "node-2", &address("add"));
    refused(&cluster, "second", "one", "node-1", 105);
    let said = cluster.kubectl("describe pod second");
    assert!(said.contains(&first.address), "{said}");
    shell(&cluster, "node-2", &address("del"));
    assert_eq!(ready(&cluster, "second").address, first.address);
    remove(&cluster, "pod/second");
    remove_pool(&cluster, "one");
}

#[test]
fn a_file_that_the_plugin_cannot_use_is_named() {
    let cluster = Cluster::lock();
    let directory = "/run/rdmanet/attachments";
    let spoil = format!("mv {directory} {directory}.kept 2>/dev/null; touch {directory}");
    shell(&cluster, "node-1", &spoil);
    refused(&cluster, "early", "ib-ipoib", "node-1", 5);
    let said = cluster.kubectl("describe pod early");
    assert!(said.contains(directory), "{said}");
    shell(
        &cluster,
        "node-1",
        &format!("rm {directory}; ! test -e {directory}.kept || mv {directory}.kept {directory}"),
    );
    ready(&cluster, "early");
    remove(&cluster, "pod/early");
    nothing_left(&cluster);
}
