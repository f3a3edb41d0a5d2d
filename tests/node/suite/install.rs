// SPDX-License-Identifier: Apache-2.0
//! The commands of README.md, on nodes that have no plugin of ours.

use crate::cluster::{Cluster, NODES};
use crate::witnesses::nothing_left;
use crate::workload::{self, start};

/// What README.md and docs/pools.md tell an administrator to apply, as it stands there.
pub(crate) fn install(cluster: &Cluster) {
    for node in NODES {
        let plugins = cluster.at(node, &["ls", "/opt/cni/bin"]);
        assert!(
            !plugins.contains("cni-ipoib"),
            "{node} has plugins before the installation: {plugins}"
        );
    }
    cluster.kubectl("apply -k conf/base");
    cluster.rolled_out("rdmanet-system", "daemonset/rdmanet-agent");
    // A later pod of the agent finds the plugins of this one.
    let log = cluster.kubectl("-n rdmanet-system logs daemonset/rdmanet-agent -c install");
    assert!(log.contains("cni-ipoib 0.1.0 installed"), "{log}");
    assert!(log.contains("rdma-ipam 0.1.0 installed"), "{log}");
    assert!(
        log.contains("plugins go to /opt/cni/bin: this node is said to be kubeadm"),
        "{log}"
    );
    add_network(cluster);
}

/// Waits for the controller, then adds a pool and a network, and waits until each node has addresses.
pub(crate) fn add_network(cluster: &Cluster) {
    cluster.rolled_out("rdmanet-system", "deployment/rdmanet-controller");
    cluster.kubectl("apply -f conf/pools/rail0.yaml -f conf/networks/ib-ipoib.yaml");
    cluster.until("each node has a block", || {
        let blocks = cluster.get("ipblocks");
        let owners: Vec<&str> = blocks["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|block| block["spec"]["owner"]["node"].as_str())
            .collect();
        if NODES.iter().all(|node| owners.contains(node)) {
            Ok(())
        } else {
            Err(blocks.to_string())
        }
    });
}

#[test]
fn the_commands_of_the_readme_install_both_plugins_on_every_node() {
    let cluster = Cluster::lock();
    let mut sums = Vec::new();
    for node in NODES {
        sums.push(cluster.at(
            node,
            &["sha256sum", "/opt/cni/bin/cni-ipoib", "/opt/cni/bin/rdma-ipam"],
        ));
    }
    assert_eq!(sums[0], sums[1], "the nodes have different plugins");
}

#[test]
fn every_node_reports_working_links_and_the_pool_is_accepted() {
    let cluster = Cluster::lock();
    for node in NODES {
        let condition = || {
            let node = cluster.get(&format!("node {node}"));
            let conditions = node["status"]["conditions"].as_array().unwrap().clone();
            conditions
                .into_iter()
                .find(|condition| condition["type"] == "rdmanet.io/LinksReady")
        };
        cluster.until("LinksReady is True", || match condition() {
            Some(condition) if condition["status"] == "True" => Ok(()),
            other => Err(format!("{node}: {other:?}")),
        });
    }
    let pool = cluster.get("ippool rail0");
    let accepted = pool["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .any(|condition| condition["reason"] == "Accepted");
    assert!(accepted, "{pool}");
}

/// Step 3 of docs/install.md, "Removal".
pub(crate) fn delete_agents_and_controller(cluster: &Cluster) {
    cluster.kubectl("-n rdmanet-system delete daemonset rdmanet-agent");
    cluster.kubectl("-n rdmanet-system delete deployment rdmanet-controller");
}

/// The steps of docs/install.md, "Removal", with `step_3` as the third one.
pub(crate) fn remove(cluster: &Cluster, step_3: impl FnOnce(&Cluster)) {
    cluster.kubectl("delete -f conf/networks/ib-ipoib.yaml");
    cluster.kubectl("delete ippools --all --wait=false");
    cluster.until("the pools and their blocks are gone", || {
        let left = cluster.kubectl("get ippools,ipblocks -o name");
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
    step_3(cluster);
    cluster.kubectl("apply -k conf/uninstall");
    cluster.rolled_out("rdmanet-system", "daemonset/rdmanet-uninstall");
    for node in NODES {
        let plugins = cluster.at(node, &["ls", "/opt/cni/bin"]);
        assert!(
            !plugins.contains("cni-ipoib") && !plugins.contains("rdma-ipam"),
            "{node} still has {plugins}"
        );
        assert!(
            plugins.contains("ptp"),
            "{node} has lost the plugins of others: {plugins}"
        );
    }
    // Step 5.
    let no_condition = r#"{"status":{"conditions":[{"type":"rdmanet.io/LinksReady","$patch":"delete"}]}}"#;
    for node in NODES {
        let node = format!("node/{node}");
        let words = [
            "patch",
            &node,
            "--subresource=status",
            "--type=strategic",
            "--patch",
            no_condition,
        ];
        cluster.try_kubectl(&words).unwrap();
    }
    cluster.kubectl("delete -k conf/uninstall");
    cluster.kubectl("delete -k conf/base --ignore-not-found --wait=false");
    cluster.until("nothing of rdmanet is left in the cluster", || {
        let left = cluster.kubectl("get namespaces,customresourcedefinitions,clusterroles -o name");
        let left: Vec<&str> = left.lines().filter(|name| name.contains("rdmanet")).collect();
        if left.is_empty() {
            Ok(())
        } else {
            Err(left.join(" "))
        }
    });
    let nodes = cluster.kubectl("get nodes -o jsonpath={.items[*].status.conditions[*].type}");
    assert!(!nodes.contains("rdmanet"), "{nodes}");
    for node in NODES {
        let script = "find /var/lib/cni/rdma-ipam -path '*/addresses/*' -o -path '*/leases/*'; ls -d /var/lib/cni/rdma-ipam";
        let kept = cluster.at(node, &["sh", "-c", script]);
        assert_eq!(kept, "/var/lib/cni/rdma-ipam", "{node}");
    }
}

#[test]
fn the_documented_removal_leaves_nothing_and_a_second_installation_works() {
    let cluster = Cluster::lock();
    remove(&cluster, delete_agents_and_controller);
    install(&cluster);
}

/// Waits until kubectl says each of these words about the pods of rdmanet with this name.
fn says(cluster: &Cluster, name: &str, words: &[&str]) {
    cluster.until(&format!("the pods of {name} say {words:?}"), || {
        let said = cluster.kubectl(&format!(
            "-n rdmanet-system describe pod --show-events -l app.kubernetes.io/name={name}"
        ));
        if words.iter().all(|word| said.contains(word)) {
            Ok(())
        } else {
            Err(said)
        }
    });
}

#[test]
fn the_plugins_stay_until_the_last_pod_that_needs_them_has_ended() {
    let cluster = Cluster::lock();
    start(&cluster, "last", "ib-ipoib", "node-1");
    delete_agents_and_controller(&cluster);
    cluster.kubectl("apply -k conf/uninstall");
    says(&cluster, "rdmanet-uninstall", &["last", "node-1"]);
    let plugins = cluster.at("node-1", &["ls", "/opt/cni/bin"]);
    assert!(plugins.contains("cni-ipoib"), "{plugins}");
    workload::remove(&cluster, "pod/last");
    cluster.rolled_out("rdmanet-system", "daemonset/rdmanet-uninstall");
    cluster.kubectl("-n rdmanet-system delete daemonset rdmanet-uninstall");
    cluster.kubectl("apply -k conf/base");
    cluster.rolled_out("rdmanet-system", "daemonset/rdmanet-agent");
    add_network(&cluster);
    nothing_left(&cluster);
}

/// The rows of the table in docs/install.md, "See that it works", that need no other machine.
#[test]
fn an_installation_that_does_not_fit_the_node_says_why() {
    let cluster = Cluster::lock();
    cluster.kubectl("apply -k conf/overlays/k3s");
    says(
        &cluster,
        "rdmanet-agent",
        &[
            "hostPath type check failed",
            "/var/lib/rancher/k3s/data/cni is not a directory",
        ],
    );
    cluster.kubectl("apply -k conf/base");
    cluster.rolled_out("rdmanet-system", "daemonset/rdmanet-agent");

    let foreign = "/opt/cni/bin/macvlan";
    for node in NODES {
        cluster.at(node, &["cp", "/opt/cni/bin/ptp", foreign]);
    }
    let names = "-n rdmanet-system set env daemonset/rdmanet-agent --containers=install RDMANET_PEER_NAMES";
    cluster.kubectl(&format!("{names}=macvlan"));
    says(
        &cluster,
        "rdmanet-agent",
        &["macvlan is there already and is not rdmanet's"],
    );
    cluster.kubectl(&format!("{names}-"));
    cluster.rolled_out("rdmanet-system", "daemonset/rdmanet-agent");
    for node in NODES {
        cluster.at(node, &["cmp", "/opt/cni/bin/ptp", foreign]);
        cluster.at(node, &["rm", foreign]);
    }
}
