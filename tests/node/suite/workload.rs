// SPDX-License-Identifier: Apache-2.0
//! What a user does: four pods of a Deployment, one annotation.

use crate::cluster::{Cluster, NODES};
use crate::witnesses::{Pod, agree, pods};
use serde_json::{Value, json};

/// The Deployment of tests/node/trainers.yaml, with four pods that are Ready.
pub(crate) fn trainers(cluster: &Cluster) -> Vec<Pod> {
    cluster.kubectl("apply -f tests/node/trainers.yaml");
    cluster.rolled_out("default", "deployment/trainers");
    let pods = pods(cluster, "trainers");
    assert_eq!(pods.len(), 4, "{pods:?}");
    pods
}

/// Deletes it; every address is free again, and nothing is left.
pub(crate) fn remove_trainers(cluster: &Cluster) {
    remove(cluster, "deployment/trainers");
    agree(cluster, 0);
}

/// Deletes KIND/NAME, and waits until the objects of its pods, which have the label `app=NAME`, are gone.
pub(crate) fn remove(cluster: &Cluster, object: &str) {
    cluster.kubectl(&format!("delete {object} --wait=false"));
    let (_, app) = object.split_once('/').unwrap();
    cluster.until(&format!("the pods of {object} are gone"), || {
        let left = cluster.kubectl(&format!("get pods -l app={app} -o name"));
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
}

/// The template of a pod that sleeps, with an interface on this network.
fn template(app: &str, network: &str, node: Option<&str>) -> Value {
    let selector = node.map_or(json!({}), |node| json!({"kubernetes.io/hostname": node}));
    json!({
        "metadata": {"labels": {"app": app}, "annotations": {"k8s.v1.cni.cncf.io/networks": network}},
        "spec": {
            "nodeSelector": selector,
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main", "image": "localhost/rdma:1", "imagePullPolicy": "Never", "command": ["sleep", "infinity"],
            }],
        },
    })
}

/// A pod without an owner.
pub(crate) fn single(name: &str, network: &str, node: Option<&str>) -> Value {
    let mut pod = template(name, network, node);
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = name.into();
    pod["metadata"]["namespace"] = "default".into();
    pod
}

/// Waits until a pod that `single` has made is Ready and has an address.
pub(crate) fn ready(cluster: &Cluster, name: &str) -> Pod {
    cluster.until(&format!("pod {name} is ready"), || {
        pods(cluster, name)
            .pop()
            .ok_or_else(|| cluster.kubectl(&format!("describe pod {name}")))
    })
}

/// Starts a pod on a node, and waits until it is Ready and has an address.
pub(crate) fn start(cluster: &Cluster, name: &str, network: &str, node: &str) -> Pod {
    cluster.apply(&[single(name, network, Some(node))]);
    ready(cluster, name)
}

fn owner(kind: &str, name: &str, replicas: usize, template: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
    })
}

/// A Deployment, of pods on one node if there is a `node`.
pub(crate) fn deployment(name: &str, network: &str, replicas: usize, node: Option<&str>) -> Value {
    owner("Deployment", name, replicas, &template(name, network, node))
}

/// A `StatefulSet` whose pods start all at once.
pub(crate) fn stateful_set(name: &str, network: &str, replicas: usize) -> Value {
    let mut set = owner("StatefulSet", name, replicas, &template(name, network, None));
    set["spec"]["serviceName"] = name.into();
    set["spec"]["podManagementPolicy"] = "Parallel".into();
    set
}

/// A network as conf/networks/ib-ipoib.yaml has it, with the addresses of another pool. It has the name of the pool.
pub(crate) fn network(pool: &str) -> Value {
    let config = json!({
        "cniVersion": "1.1.0", "name": pool, "type": "cni-ipoib", "master": {"linkLayer": "InfiniBand"},
        "ipam": {"type": "rdma-ipam", "pool": pool},
    });
    json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"name": pool},
        "spec": {"config": config.to_string()},
    })
}

/// The first pod of each node.
pub(crate) fn one_on_each(pods: &[Pod]) -> [&Pod; 2] {
    NODES.map(|node| {
        pods.iter()
            .find(|pod| pod.node == node)
            .unwrap_or_else(|| panic!("no pod on {node}: {pods:?}"))
    })
}

/// Pings twice from one pod to the address of another over `net1`, and returns the output of `ping`.
pub(crate) fn try_ping(cluster: &Cluster, from: &Pod, to: &Pod) -> Result<String, String> {
    let words = format!("exec {} -- ping -c 2 -W 10 -I net1 {}", from.name, to.address);
    cluster.try_kubectl(&words.split_whitespace().collect::<Vec<_>>())
}

/// Waits until one pod reaches the address of another over `net1`.
pub(crate) fn ping(cluster: &Cluster, from: &Pod, to: &Pod) {
    cluster.until("the pods reach each other over InfiniBand", || {
        try_ping(cluster, from, to)
    });
}

#[test]
fn four_pods_of_a_deployment_spread_over_the_nodes_with_an_address_each() {
    let cluster = Cluster::lock();
    let pods = trainers(&cluster);
    for node in NODES {
        assert_eq!(pods.iter().filter(|pod| pod.node == node).count(), 2, "{pods:?}");
    }
    agree(&cluster, 4);
    let table = cluster.rdmanet("addresses");
    for pod in &pods {
        let line = table.lines().find(|line| line.contains(&pod.address));
        let line = line.unwrap_or_else(|| panic!("{} is not in:\n{table}", pod.address));
        assert!(line.contains(&pod.name) && line.contains(&pod.node), "{line}");
    }
    let [here, there] = one_on_each(&pods);
    ping(&cluster, here, there);
    ping(&cluster, there, here);
    remove_trainers(&cluster);
    let table = cluster.rdmanet("addresses");
    assert!(pods.iter().all(|pod| !table.contains(&pod.address)), "{table}");
}

#[test]
fn pods_on_two_nodes_move_data_with_verbs() {
    let cluster = Cluster::lock();
    let pods = trainers(&cluster);
    let [here, there] = one_on_each(&pods);
    ping(&cluster, here, there);
    let server = [
        "exec",
        &there.name,
        "--",
        "timeout",
        "600",
        "ib_write_bw",
        "-d",
        "softib1",
        "-n",
        "50",
        "-F",
    ];
    let mut server = cluster.start_kubectl(&server);
    cluster.until("the server listens", || {
        let listens = ["exec", &there.name, "--", "ss", "-Hltn", "sport = :18515"];
        let said = cluster.try_kubectl(&listens)?;
        if said.contains("18515") { Ok(()) } else { Err(said) }
    });
    let client = [
        "exec",
        &here.name,
        "--",
        "ib_write_bw",
        "-d",
        "softib0",
        "-n",
        "50",
        "-F",
        &there.address,
    ];
    let said = cluster.try_kubectl(&client).unwrap();
    assert!(
        server.wait().unwrap().success(),
        "the server failed; the client said: {said}"
    );
    // The line of results: bytes, iterations, then the bandwidth.
    let result = said
        .lines()
        .find(|line| line.trim_start().starts_with("65536"))
        .unwrap_or_else(|| panic!("no result in:\n{said}"));
    assert_eq!(result.split_whitespace().nth(1), Some("50"), "{said}");
    remove_trainers(&cluster);
}
