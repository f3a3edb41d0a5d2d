// SPDX-License-Identifier: Apache-2.0
//! Pools as real controllers use them: a `StatefulSet` whose pods keep their addresses, a pool that is used to its last address, and the
//! way of an address from a deleted pod to the next one.

use crate::cluster::{Cluster, timed};
use crate::steps::{becomes, has_code};
use crate::witnesses::{Pod, agree, no_duplicate, nothing_left, pods, stores};
use crate::workload::{deployment, network, remove, stateful_set, trainers};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Instant;

/// The addresses of the pool `small`: all of a /28 but its edges.
const SMALL: usize = 14;

/// A pool of this subnet in blocks of four addresses, with these keys in its spec.
pub(crate) fn pool(name: &str, subnet: &str, spec: &Value) -> Value {
    let mut pool = json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPPool", "metadata": {"name": name},
        "spec": {"ranges": [{"subnet": subnet, "gateway": "none"}], "blockSize": {"v4": 4}},
    });
    for (key, value) in spec.as_object().unwrap() {
        pool["spec"][key] = value.clone();
    }
    pool
}

/// The pool `small` with these keys in its spec.
pub(crate) fn small_pool(spec: &Value) -> Value {
    pool("small", "10.79.0.0/28", spec)
}

/// Deletes the network and the pool of this name. The pool goes once no address of it is in use.
pub(crate) fn remove_pool(cluster: &Cluster, pool: &str) {
    nothing_left(cluster);
    cluster.kubectl(&format!("delete network-attachment-definitions {pool}"));
    cluster.kubectl(&format!("delete ippools.rdmanet.io {pool} --wait=false"));
    gone(cluster, pool);
}

/// Waits until the pool of this name is gone.
pub(crate) fn gone(cluster: &Cluster, pool: &str) {
    cluster.until(&format!("pool {pool} is gone"), || {
        let left = cluster.kubectl("get ippools.rdmanet.io -o name");
        if left.contains(pool) { Err(left) } else { Ok(()) }
    });
}

/// A `StatefulSet` of two pods that keep their addresses (conf/pools/stateful.yaml).
pub(crate) fn databases(cluster: &Cluster) -> Vec<Pod> {
    cluster.kubectl("apply -f conf/pools/stateful.yaml");
    cluster.apply(&[network("databases"), stateful_set("db", "databases", 2)]);
    cluster.rolled_out("default", "statefulset/db");
    cluster.until("both pods are ready", || {
        let ready = pods(cluster, "db");
        if ready.len() == 2 {
            Ok(ready)
        } else {
            Err(format!("{ready:?}"))
        }
    })
}

pub(crate) fn remove_databases(cluster: &Cluster) {
    remove(cluster, "statefulset/db");
    // The controller frees what the StatefulSet kept.
    remove_pool(cluster, "databases");
}

/// Waits until a pod of the `StatefulSet` is ready.
fn ready_in_set(cluster: &Cluster, name: &str) -> Pod {
    cluster.until(&format!("pod {name} is ready"), || {
        let ready = pods(cluster, "db");
        ready
            .iter()
            .find(|pod| pod.name == name)
            .cloned()
            .ok_or_else(|| format!("{ready:?}"))
    })
}

/// Waits until the pod runs on another node than `before`, and checks that it has the same address.
fn same_address_elsewhere(cluster: &Cluster, before: &Pod) {
    let after = cluster.until(&format!("{} is ready on another node", before.name), || {
        let ready = pods(cluster, "db");
        let moved = |pod: &&Pod| pod.name == before.name && pod.node != before.node;
        ready
            .iter()
            .find(moved)
            .cloned()
            .ok_or_else(|| format!("{ready:?}"))
    });
    assert_eq!(after.address, before.address, "{before:?} has become {after:?}");
}

#[test]
fn pods_of_a_stateful_set_keep_their_addresses_on_another_node() {
    let cluster = Cluster::lock();
    for pod in databases(&cluster) {
        cluster.kubectl(&format!("cordon {}", pod.node));
        cluster.kubectl(&format!("delete pod {}", pod.name));
        same_address_elsewhere(&cluster, &pod);
        cluster.kubectl(&format!("uncordon {}", pod.node));
        agree(&cluster, 2);
    }
    remove_databases(&cluster);
}

#[test]
fn a_sticky_address_follows_its_pod_from_a_node_without_power() {
    let cluster = Cluster::lock();
    let pod = databases(&cluster).remove(0);
    cluster.power_off(&pod.node);
    cluster.kubectl(&format!(
        "wait node/{} --for=condition=Ready=Unknown --timeout=15m",
        pod.node
    ));
    cluster.kubectl(&format!("delete pod {} --force --grace-period=0", pod.name));
    same_address_elsewhere(&cluster, &pod);
    cluster.power_on(&pod.node);
    cluster.rolled_out("default", "statefulset/db");
    agree(&cluster, 2);
    remove_databases(&cluster);
}

/// The last guard: the person who deletes a pod by force is wrong, because only the kubelet of its node hangs.
#[test]
fn a_sticky_address_does_not_pass_while_its_old_pod_answers() {
    let cluster = Cluster::lock();
    let old = databases(&cluster).remove(0);
    let kubelet = cluster.at(&old.node, &["pidof", "kubelet"]);
    cluster.at(&old.node, &["kill", "-STOP", &kubelet]);
    cluster.kubectl(&format!(
        "wait node/{} --for=condition=Ready=Unknown --timeout=15m",
        old.node
    ));
    cluster.kubectl(&format!("delete pod {} --force --grace-period=0", old.name));
    has_code(&cluster, &old.name, 105);
    no_duplicate(&cluster);

    cluster.at(&old.node, &["kill", "-9", &kubelet]);
    let new = ready_in_set(&cluster, &old.name);
    assert_eq!(new.address, old.address, "{old:?} has become {new:?}");
    agree(&cluster, 2);
    remove_databases(&cluster);
}

/// The addresses that the pods of both Deployments have.
fn in_use(cluster: &Cluster) -> Vec<String> {
    let ready = pods(cluster, "left").into_iter().chain(pods(cluster, "right"));
    ready.map(|pod| pod.address).collect()
}

/// The one pod of a Deployment that is not ready.
fn waiting(cluster: &Cluster, app: &str) -> Result<String, String> {
    let names = cluster.kubectl(&format!("get pods -l app={app} -o name"));
    let ready = pods(cluster, app);
    let names = names.lines().filter_map(|name| name.strip_prefix("pod/"));
    let left: Vec<&str> = names
        .filter(|name| !ready.iter().any(|pod| pod.name == *name))
        .collect();
    match left[..] {
        [one] => Ok(one.to_owned()),
        _ => Err(format!("{left:?} of {ready:?}")),
    }
}

#[test]
fn two_deployments_use_a_pool_to_its_last_address() {
    let cluster = Cluster::lock();
    cluster.apply(&[
        small_pool(&json!({})),
        network("small"),
        deployment("left", "small", SMALL - 4, Some("node-1")),
        deployment("right", "small", 4, Some("node-2")),
    ]);
    cluster.rolled_out("default", "deployment/left");
    cluster.rolled_out("default", "deployment/right");
    agree(&cluster, SMALL);
    assert_eq!(in_use(&cluster).into_iter().collect::<BTreeSet<_>>().len(), SMALL);
    cluster.kubectl("scale deployment/right --replicas=5");
    let waits = cluster.until("a fifth pod waits", || waiting(&cluster, "right"));
    cluster.until("the pod without an address has an Event", || {
        let events =
            format!("get events --field-selector reason=NoAddress,involvedObject.name={waits} -o name");
        let events = cluster.kubectl(&events);
        if events.is_empty() {
            Err(cluster.kubectl(&format!("describe pod {waits}")))
        } else {
            Ok(())
        }
    });
    has_code(&cluster, &waits, 110);
    becomes(&cluster, "ippool small", "Exhausted", "True", "NoAddressLeft");
    agree(&cluster, SMALL);
    // The address of a pod that ends on one node goes to the pod that waits on the other.
    cluster.kubectl(&format!("scale deployment/left --replicas={}", SMALL - 5));
    timed("the last address of a pool to another node", || {
        cluster.rolled_out("default", "deployment/right");
    });
    agree(&cluster, SMALL);
    remove(&cluster, "deployment/left");
    remove(&cluster, "deployment/right");
    becomes(
        &cluster,
        "ippool small",
        "Exhausted",
        "False",
        "AddressesAvailable",
    );
    remove_pool(&cluster, "small");
}

/// docs/pools.md and docs/store.md: DEL ends the lease, and the counters of the pool follow.
#[test]
fn an_address_is_free_before_the_object_of_its_pod_is_gone() {
    let cluster = Cluster::lock();
    trainers(&cluster);
    agree(&cluster, 4);
    let start = Instant::now();
    remove(&cluster, "deployment/trainers");
    let gone = start.elapsed().as_secs();
    let held = stores(&cluster).unwrap();
    assert!(
        held.values().all(BTreeSet::is_empty),
        "the pods are gone, and these addresses are held: {held:?}"
    );
    nothing_left(&cluster);
    println!(
        "did: four pods gone {gone} s after their deletion, the pool's counters after {} s",
        start.elapsed().as_secs()
    );
}
