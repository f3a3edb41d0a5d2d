// SPDX-License-Identifier: Apache-2.0
//! Nodes on which the installation needs a decision of a person: the rows of the table in docs/install.md, "See that it works", and
//! the removal from such nodes.
//!
//! Invariant: each test ends with the plugins of the image on both nodes.

use crate::cluster::{Cluster, NODES};
use crate::install::{add_network, delete_agents_and_controller};
use crate::steps::{agent_of, shell};
use crate::witnesses::nothing_left;
use crate::workload::{remove, start};

const DIRECTORY: &str = "/opt/cni/bin";

/// Waits until kubectl says each of these words about the pods of rdmanet with this name.
pub(crate) fn says(cluster: &Cluster, name: &str, words: &[&str]) {
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

/// Deletes the pod of node-1's agent, so that its init container runs again.
fn install_again(cluster: &Cluster) {
    let agent = cluster.until("node-1 has an agent", || agent_of(cluster, "node-1"));
    let name = agent["metadata"]["name"].as_str().unwrap();
    cluster.kubectl(&format!("-n rdmanet-system delete pod {name} --wait=false"));
    cluster.until("the pod of the agent is another one", || {
        let now = agent_of(cluster, "node-1")?;
        if now["metadata"]["uid"] == agent["metadata"]["uid"] {
            Err(now["status"].to_string())
        } else {
            Ok(())
        }
    });
}

/// Sets or removes a variable of the init container.
fn set_installer(cluster: &Cluster, variable: &str) {
    cluster.kubectl(&format!(
        "-n rdmanet-system set env daemonset/rdmanet-agent --containers=install {variable}"
    ));
}

/// Waits until the plugins of the image are on both nodes and both agents are ready.
fn installed(cluster: &Cluster) {
    cluster.rolled_out("rdmanet-system", "daemonset/rdmanet-agent");
    for node in NODES {
        for plugin in ["cni-ipoib", "rdma-ipam"] {
            let version = shell(
                cluster,
                node,
                &format!("CNI_COMMAND=VERSION {DIRECTORY}/{plugin}"),
            );
            assert!(version.contains("1.1.0"), "{plugin} on {node}: {version}");
        }
    }
}

/// Removes the plugins of both nodes with the manifests of the page, and then the agents and the controller.
fn uninstall(cluster: &Cluster) {
    delete_agents_and_controller(cluster);
    cluster.kubectl("apply -k conf/uninstall");
}

/// Ends a removal, and installs again.
fn end_of_removal(cluster: &Cluster) {
    cluster.rolled_out("rdmanet-system", "daemonset/rdmanet-uninstall");
    cluster.kubectl("-n rdmanet-system delete daemonset rdmanet-uninstall");
    cluster.kubectl("apply -k conf/base");
    installed(cluster);
    add_network(cluster);
    nothing_left(cluster);
}

#[test]
fn the_plugins_stay_until_the_last_pod_that_needs_them_has_ended() {
    let cluster = Cluster::lock();
    start(&cluster, "last", "ib-ipoib", "node-1");
    uninstall(&cluster);
    says(&cluster, "rdmanet-uninstall", &["last", "node-1"]);
    let plugins = cluster.at("node-1", &["ls", DIRECTORY]);
    assert!(plugins.contains("cni-ipoib"), "{plugins}");
    remove(&cluster, "pod/last");
    end_of_removal(&cluster);
}

#[test]
fn an_installation_that_does_not_fit_the_node_says_why() {
    let cluster = Cluster::lock();
    cluster.kubectl("apply -k conf/overlays/k3s");
    let words = [
        "hostPath type check failed",
        "/var/lib/rancher/k3s/data/cni is not a directory",
    ];
    says(&cluster, "rdmanet-agent", &words);
    cluster.kubectl("apply -k conf/base");
    installed(&cluster);
}

#[test]
fn a_directory_that_cannot_take_the_plugins_is_named_with_the_cause() {
    let cluster = Cluster::lock();
    let on = |script: &str| shell(&cluster, "node-1", script);
    for (options, also, cause) in [
        ("size=1m", "", "No space left on device"),
        (
            "size=64m",
            "mount -o remount,ro /opt/cni/bin",
            "Read-only file system",
        ),
    ] {
        on(&format!("mount -t tmpfs -o {options} none {DIRECTORY}; {also}"));
        install_again(&cluster);
        says(&cluster, "rdmanet-agent", &[cause]);
        on(&format!("umount {DIRECTORY}"));
    }

    // A directory that the runtime does not read gets the plugins, and a warning.
    on(&format!("mount -t tmpfs none {DIRECTORY}"));
    install_again(&cluster);
    cluster.rolled_out("rdmanet-system", "daemonset/rdmanet-agent");
    let agent = agent_of(&cluster, "node-1").unwrap();
    let name = agent["metadata"]["name"].as_str().unwrap();
    let log = cluster.kubectl(&format!("-n rdmanet-system logs {name} -c install"));
    let warning = format!("warning: {DIRECTORY} contains no other plugin");
    assert!(log.contains(&warning), "{log}");
    on(&format!("umount {DIRECTORY}"));
    install_again(&cluster);
    installed(&cluster);
}

#[test]
fn a_namespace_without_the_label_for_privileged_pods_is_named_by_the_daemonset() {
    let cluster = Cluster::lock();
    let label = |level: &str| {
        let label = format!("pod-security.kubernetes.io/enforce={level}");
        cluster.kubectl(&format!("label namespace rdmanet-system {label} --overwrite"));
    };
    label("baseline");
    let agent = agent_of(&cluster, "node-1").unwrap();
    let name = agent["metadata"]["name"].as_str().unwrap();
    cluster.kubectl(&format!("-n rdmanet-system delete pod {name} --wait=false"));
    cluster.until("the description of the DaemonSet has the cause", || {
        let said = cluster.kubectl("-n rdmanet-system describe daemonset rdmanet-agent");
        if said.contains("violates PodSecurity") {
            Ok(())
        } else {
            Err(said)
        }
    });
    label("privileged");
    installed(&cluster);
}

#[test]
fn a_plugin_of_another_product_stays_and_returns_at_the_removal() {
    let cluster = Cluster::lock();
    let on = |script: &str| shell(&cluster, "node-1", script);
    let ours = format!("{DIRECTORY}/cni-ipoib");
    on(&format!(
        "cp {DIRECTORY}/ptp {DIRECTORY}/.other && mv {DIRECTORY}/.other {ours}"
    ));
    install_again(&cluster);
    let words = [format!("{ours} is there already and is not rdmanet's")];
    says(&cluster, "rdmanet-agent", &words.each_ref().map(String::as_str));
    set_installer(&cluster, "RDMANET_REPLACE_FOREIGN=true");
    installed(&cluster);
    on(&format!("cmp {DIRECTORY}/ptp {ours}.foreign"));

    // A name of another product's plugin is refused all the same.
    for node in NODES {
        shell(&cluster, node, &format!("cp {DIRECTORY}/ptp {DIRECTORY}/macvlan"));
    }
    set_installer(&cluster, "RDMANET_PEER_NAMES=macvlan");
    let words = [format!(
        "{DIRECTORY}/macvlan is there already and is not rdmanet's"
    )];
    says(&cluster, "rdmanet-agent", &words.each_ref().map(String::as_str));
    set_installer(&cluster, "RDMANET_PEER_NAMES-");
    installed(&cluster);
    for node in NODES {
        shell(
            &cluster,
            node,
            &format!("cmp {DIRECTORY}/ptp {DIRECTORY}/macvlan && rm {DIRECTORY}/macvlan"),
        );
    }

    nothing_left(&cluster);
    uninstall(&cluster);
    cluster.rolled_out("rdmanet-system", "daemonset/rdmanet-uninstall");
    on(&format!(
        "cmp {DIRECTORY}/ptp {ours} && ! test -e {ours}.foreign && rm {ours}"
    ));
    end_of_removal(&cluster);
}

#[test]
fn a_node_that_looks_like_two_distributions_or_like_none_needs_a_name() {
    let cluster = Cluster::lock();
    let on = |script: &str| shell(&cluster, "node-1", script);
    let sign = "/var/lib/kubelet/kubeadm-flags.env";
    cluster.kubectl("apply -k conf/overlays/auto");
    cluster.rolled_out("rdmanet-system", "daemonset/rdmanet-agent");
    let log = cluster.kubectl("-n rdmanet-system logs daemonset/rdmanet-agent -c install");
    let found = format!("plugins go to {DIRECTORY}: this node is kubeadm ({sign})");
    assert!(log.contains(&found), "{log}");
    on("mkdir /var/lib/k0s");
    install_again(&cluster);
    says(
        &cluster,
        "rdmanet-agent",
        &["this node looks like kubeadm", "k0s (/var/lib/k0s)"],
    );
    on(&format!("rmdir /var/lib/k0s; rm {sign}"));
    install_again(&cluster);
    says(
        &cluster,
        "rdmanet-agent",
        &["cannot find out what kind of node this is"],
    );

    // The removal needs the name too.
    nothing_left(&cluster);
    uninstall(&cluster);
    says(
        &cluster,
        "rdmanet-uninstall",
        &["cannot find out what kind of node this is"],
    );
    cluster.kubectl("-n rdmanet-system set env daemonset/rdmanet-uninstall RDMANET_DISTRIBUTION=kubeadm");
    cluster.rolled_out("rdmanet-system", "daemonset/rdmanet-uninstall");
    on(&format!("! test -e {DIRECTORY}/cni-ipoib && touch {sign}"));
    end_of_removal(&cluster);
}

#[test]
fn a_removal_by_hand_refuses_a_node_whose_pods_use_the_plugins_unless_it_is_forced() {
    let cluster = Cluster::lock();
    let image = "docker.io/library/rdmanet-agent:0.1.0";
    let mount = format!("mkdir -p /run/img && ctr -n k8s.io images mount {image} /run/img");
    shell(&cluster, "node-1", &mount);
    start(&cluster, "user", "ib-ipoib", "node-1");
    let uninstall = |more: &str| {
        let script = format!("/run/img/rdmanet-agent uninstall --host / {more} 2>&1");
        cluster.try_at("node-1", &["sh", "-c", &script])
    };
    let said = uninstall("").expect_err("the plugins of a pod that runs were removed");
    assert!(
        said.contains("pods of this node use rdmanet, and nothing was removed:"),
        "{said}"
    );
    assert!(said.contains("default/user"), "{said}");
    let said = uninstall("--force").unwrap();
    assert!(said.contains("warning: in use by "), "{said}");
    assert!(said.contains("cni-ipoib 0.1.0 removed"), "{said}");
    install_again(&cluster);
    installed(&cluster);
    remove(&cluster, "pod/user");
    shell(&cluster, "node-1", "ctr -n k8s.io images unmount /run/img");
    nothing_left(&cluster);
}

#[test]
fn a_restart_of_the_controller_keeps_one_replica_available() {
    let cluster = Cluster::lock();
    cluster.rolled_out("rdmanet-system", "deployment/rdmanet-controller");
    let image = cluster.get("-n rdmanet-system deployment rdmanet-controller")["spec"]["template"]["spec"]
        ["containers"][0]["image"]
        .clone();
    let watched = |what: &str| {
        cluster.until(what, || {
            let now = cluster.get("-n rdmanet-system deployment rdmanet-controller");
            let status = &now["status"];
            assert!(status["availableReplicas"].as_u64() > Some(0), "{status}");
            let done = status["observedGeneration"] == now["metadata"]["generation"]
                && status["updatedReplicas"] == 2
                && status["replicas"] == 2
                && status["availableReplicas"] == 2;
            if done { Ok(()) } else { Err(status.to_string()) }
        });
    };
    cluster.kubectl("-n rdmanet-system rollout restart deployment/rdmanet-controller");
    watched("both replicas are new");
    // An image that no node has.
    cluster
        .kubectl("-n rdmanet-system set image deployment/rdmanet-controller controller=rdmanet-agent:9.9.9");
    says(&cluster, "rdmanet-controller", &["rdmanet-agent:9.9.9"]);
    cluster.kubectl("-n rdmanet-system rollout undo deployment/rdmanet-controller");
    watched("the older image runs again");
    let now = cluster.get("-n rdmanet-system deployment rdmanet-controller");
    assert_eq!(now["spec"]["template"]["spec"]["containers"][0]["image"], image);
}
