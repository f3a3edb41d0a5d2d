// SPDX-License-Identifier: Apache-2.0
//! The commands of README.md, on nodes that have no plugin of ours.

use crate::cluster::{Cluster, NODES};
use crate::steps::shell;
use serde_json::Value;
use std::collections::BTreeSet;

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
        log.contains("plugins go to /opt/cni/bin: --distribution is kubeadm"),
        "{log}"
    );
    add_network(cluster);
}

/// Waits for the controller, then adds a pool and a network, and waits until each node has addresses.
pub(crate) fn add_network(cluster: &Cluster) {
    cluster.rolled_out("rdmanet-system", "deployment/rdmanet-controller");
    cluster.kubectl("apply -f conf/pools/rail0.yaml -f conf/networks/ib-ipoib.yaml");
    cluster.until("each node has a block", || {
        let blocks = cluster.get("ipblocks.rdmanet.io");
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
    let pool = cluster.get("ippools.rdmanet.io rail0");
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
    remove_plugins(cluster, step_3, |cluster| {
        cluster.kubectl("apply -k conf/uninstall");
    });
}

/// The same, with `apply` as the first command of step 4.
fn remove_plugins(cluster: &Cluster, step_3: impl FnOnce(&Cluster), apply: impl FnOnce(&Cluster)) {
    cluster.kubectl("delete -f conf/networks/ib-ipoib.yaml");
    cluster.kubectl("delete ippools.rdmanet.io --all --wait=false");
    cluster.until("the pools and their blocks are gone", || {
        let left = cluster.kubectl("get ippools.rdmanet.io,ipblocks.rdmanet.io -o name");
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
    step_3(cluster);
    apply(cluster);
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
    // After an installation with Helm or from a registry, the nodes have the image under another name.
    remove_plugins(&cluster, delete_agents_and_controller, |cluster| {
        apply_other_name(cluster, "conf/uninstall");
    });
    install(&cluster);
}

/// A name that the manifests do not have.
const OTHER_NAME: &str = "registry.example/net/rdmanet-agent:0.1.0";

/// Gives the image another name on each node, and applies the manifests of `directory` with that name, as docs/install.md does.
fn apply_other_name(cluster: &Cluster, directory: &str) {
    for node in NODES {
        let tag = [
            "ctr",
            "-n",
            "k8s.io",
            "images",
            "tag",
            "--force",
            "docker.io/library/rdmanet-agent:0.1.0",
            OTHER_NAME,
        ];
        cluster.at(node, &tag);
    }
    let rendered = cluster.kubectl(&format!("kustomize {directory}"));
    let text = rendered.replace("image: rdmanet-agent:0.1.0", &format!("image: {OTHER_NAME}"));
    assert_ne!(text, rendered, "{directory} names no image");
    let file = cluster.directory().join("other-name.yaml");
    std::fs::write(&file, text).unwrap();
    cluster
        .try_kubectl(&["apply", "-f", file.to_str().unwrap()])
        .unwrap();
}

#[test]
fn the_image_has_four_programs_their_licences_and_the_bill_of_materials() {
    let cluster = Cluster::lock();
    let script = "mkdir -p /run/img && ctr -n k8s.io images mount docker.io/library/rdmanet-agent:0.1.0 /run/img >&2; \
        cd /run/img && find . -type f; cd /; ctr -n k8s.io images unmount /run/img >&2";
    let files = shell(&cluster, "node-1", script);
    let (licences, others): (Vec<&str>, Vec<&str>) = files
        .lines()
        .filter(|file| file.starts_with("./"))
        .partition(|file| file.starts_with("./licenses/"));
    assert!(!licences.is_empty(), "{files}");
    let expected = [
        "./bom.json",
        "./plugins/cni-ipoib",
        "./plugins/rdma-ipam",
        "./rdmanet-agent",
        "./rdmanet-controller",
    ];
    assert_eq!(
        others.into_iter().collect::<BTreeSet<_>>(),
        BTreeSet::from(expected)
    );
}

/// The second block of docs/install.md, "Apply".
#[test]
fn an_image_may_have_another_name() {
    let cluster = Cluster::lock();
    apply_other_name(&cluster, "conf/base");
    let both = ["daemonset/rdmanet-agent", "deployment/rdmanet-controller"];
    for owner in both {
        cluster.rolled_out("rdmanet-system", owner);
    }
    cluster.until("every container has the other image", || {
        let pods = cluster.get("-n rdmanet-system pods");
        let containers = pods["items"].as_array().unwrap().iter().flat_map(|pod| {
            let of = |kind: &str| pod["spec"][kind].as_array().cloned().unwrap_or_default();
            [of("initContainers"), of("containers")].concat()
        });
        let earlier: Vec<Value> = containers.filter(|one| one["image"] != OTHER_NAME).collect();
        if earlier.is_empty() {
            Ok(())
        } else {
            Err(format!("{earlier:?}"))
        }
    });
    cluster.kubectl("apply -k conf/base");
    for owner in both {
        cluster.rolled_out("rdmanet-system", owner);
    }
}

/// Prints one line for each process of a program: its user, its effective capabilities, and whether it is in the network of the node,
/// sees the node's files and has a token. Argument: the name of the program.
const RIGHTS: &str = r#"
    for p in $(pidof "$1"); do
        echo "$(tr '\0' ' ' </proc/$p/cmdline)user $(awk '/^Uid/ { print $2 }' /proc/$p/status)" \
            "capabilities $(awk '/^CapEff/ { print $2 }' /proc/$p/status)" \
            "network $([ "$(readlink /proc/$p/ns/net)" = "$(readlink /proc/1/ns/net)" ] && echo node || echo pod)" \
            "host $([ -e /proc/$p/root/host ] && echo yes || echo no)" \
            "token $([ -L /proc/$p/root/var/run/secrets/kubernetes.io/serviceaccount/token ] && echo yes || echo no)"
    done
"#;

/// docs/install.md, "What the pods may do".
#[test]
fn each_process_has_the_rights_that_the_page_states() {
    let cluster = Cluster::lock();
    cluster.rolled_out("rdmanet-system", "daemonset/rdmanet-agent");
    let of = |node: &str, program: &str| cluster.at(node, &["sh", "-c", RIGHTS, "sh", program]);
    let (none, net_admin) = ("0000000000000000", "0000000000001000");
    let mut controllers = 0;
    for node in NODES {
        let said = of(node, "rdmanet-agent");
        let agent = format!("user 0 capabilities {none} network node host no token yes");
        assert!(
            said.lines().count() == 1 && said.ends_with(&agent),
            "{node}: {said}"
        );
        let said = of(node, "cni-ipoib");
        let collector = format!("user 0 capabilities {net_admin} network node host no token no");
        assert!(
            said.contains("cni-ipoib collect") && said.ends_with(&collector),
            "{node}: {said}"
        );
        let controller = format!("user 65532 capabilities {none} network pod host no token yes");
        for line in of(node, "rdmanet-controller").lines() {
            assert!(line.ends_with(&controller), "{node}: {line}");
            controllers += 1;
        }
    }
    assert_eq!(controllers, 2);
}
