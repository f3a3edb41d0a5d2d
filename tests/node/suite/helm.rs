// SPDX-License-Identifier: Apache-2.0
//! The packed chart on a cluster with pods: the commands of docs/install.md, "With Helm" and "Upgrade and rollback".

use crate::cluster::{Cluster, NODES, repository, run};
use crate::install::{add_network, delete_agents_and_controller, install, remove};
use crate::witnesses::{Pod, agree, pods};
use crate::workload::{one_on_each, ping, remove_trainers, trainers};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The image of agent and controller, under the name that each node has.
const IMAGE: &str = "rdmanet-agent:0.1.0";
/// The same image under a second name, which stands for the next release.
const NEXT_IMAGE: &str = "rdmanet-agent:0.1.1";

/// Helm, and the chart that it has packed.
struct Helm<'c> {
    cluster: &'c Cluster,
    program: PathBuf,
    /// Helm's caches and the packed chart.
    home: TempDir,
}

impl<'c> Helm<'c> {
    fn new(cluster: &'c Cluster) -> Self {
        let tools = run(Command::new(repository().join("tests/go/build")).arg("helm"));
        let helm = Self {
            cluster,
            program: Path::new(&tools).join("helm"),
            home: tempfile::tempdir().unwrap(),
        };
        helm.run(&["package", "conf/chart", "--destination", helm.home()]);
        helm
    }

    fn home(&self) -> &str {
        self.home.path().to_str().unwrap()
    }

    fn run(&self, words: &[&str]) -> String {
        let words = [words, &["--namespace", "rdmanet-system"]].concat();
        run(self
            .cluster
            .command(&self.program, &words)
            .env("HOME", self.home()))
    }

    /// `install` or `upgrade` with an image; waits for agents and controller.
    fn apply(&self, verb: &str, image: &str, more: &[&str]) {
        let chart = format!("{}/rdmanet-0.1.0.tgz", self.home());
        let image = format!("image={image}");
        let words = [
            verb,
            "rdmanet",
            &chart,
            "--set",
            &image,
            "--set",
            "distribution=kubeadm",
        ];
        self.run(&[&words, more].concat());
        self.rolled_out();
    }

    fn rolled_out(&self) {
        self.cluster
            .rolled_out("rdmanet-system", "daemonset/rdmanet-agent");
        self.cluster
            .rolled_out("rdmanet-system", "deployment/rdmanet-controller");
    }
}

/// Asserts that the agent of each node and the controllers run with this image.
fn all_run(cluster: &Cluster, image: &str) {
    cluster.until("every pod of rdmanet has the image", || {
        let images =
            cluster.kubectl("-n rdmanet-system get pods -o jsonpath={.items[*].spec.containers[*].image}");
        let images: Vec<&str> = images.split_whitespace().collect();
        // An agent and a collector on each node, and two controllers.
        if images.len() == 2 * NODES.len() + 2 && images.iter().all(|one| *one == image) {
            Ok(())
        } else {
            Err(format!("{images:?}"))
        }
    });
}

/// Asserts that the same pods run with the same addresses, and reach each other.
fn unaffected(cluster: &Cluster, before: &[Pod]) {
    let names = |pods: &[Pod]| {
        let mut names: Vec<String> = pods
            .iter()
            .map(|pod| format!("{} {}", pod.name, pod.address))
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(&pods(cluster, "trainers")), names(before));
    let [here, there] = one_on_each(before);
    ping(cluster, here, there);
}

fn plugins(cluster: &Cluster, node: &str) -> Vec<String> {
    let names = cluster.at(node, &["ls", "/opt/cni/bin"]);
    names.lines().map(str::to_owned).collect()
}

/// Deletes a pod of the Deployment and returns all pods once another one has started in its place.
fn replace(cluster: &Cluster, pod: &Pod) -> Vec<Pod> {
    cluster.kubectl(&format!("delete pod {} --wait=false", pod.name));
    cluster.until("the pod is replaced", || {
        let now = pods(cluster, "trainers");
        let replaced = now.iter().all(|other| other.name != pod.name);
        if now.len() == 4 && replaced {
            Ok(now)
        } else {
            Err(format!("{now:?}"))
        }
    })
}

#[test]
fn helm_installs_upgrades_rolls_back_and_uninstalls_under_living_pods() {
    let cluster = Cluster::lock();
    remove(&cluster, delete_agents_and_controller);
    let helm = Helm::new(&cluster);
    cluster.kubectl("create namespace rdmanet-system");
    cluster.kubectl("label namespace rdmanet-system pod-security.kubernetes.io/enforce=privileged");
    helm.apply("install", IMAGE, &[]);
    add_network(&cluster);
    let before = trainers(&cluster);

    let [name, next] = [IMAGE, NEXT_IMAGE].map(|name| format!("docker.io/library/{name}"));
    for node in NODES {
        cluster.at(
            node,
            &["ctr", "--namespace", "k8s.io", "images", "tag", &name, &next],
        );
    }
    helm.apply("upgrade", NEXT_IMAGE, &["--set", "peerNames={ipoib,host-device}"]);
    all_run(&cluster, NEXT_IMAGE);
    unaffected(&cluster, &before);
    helm.run(&["rollback", "rdmanet", "1"]);
    helm.rolled_out();
    all_run(&cluster, IMAGE);
    unaffected(&cluster, &before);
    // A name that is no longer requested stays until the removal.
    for node in NODES {
        let plugins = plugins(&cluster, node);
        for name in ["cni-ipoib", "rdma-ipam", "ipoib", "host-device"] {
            assert!(plugins.iter().any(|one| one == name), "{node}: {plugins:?}");
        }
    }
    agree(&cluster, 4);

    helm.run(&["uninstall", "rdmanet"]);
    cluster.until("no agent and no controller is left", || {
        let left = cluster.kubectl("-n rdmanet-system get pods -o name");
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
    unaffected(&cluster, &before);
    // The plugins and the node's block serve a pod without any agent.
    let after = replace(&cluster, &before[0]);
    assert_eq!(cluster.kubectl("get ippools -o name"), "ippool.rdmanet.io/rail0");
    helm.apply("install", IMAGE, &[]);
    unaffected(&cluster, &after);
    agree(&cluster, 4);
    remove_trainers(&cluster);
    remove(&cluster, |_| {
        helm.run(&["uninstall", "rdmanet"]);
    });
    for node in NODES {
        let plugins = plugins(&cluster, node);
        let left = plugins.iter().any(|one| one == "ipoib" || one == "host-device");
        assert!(!left, "{node}: {plugins:?}");
    }
    install(&cluster);
}
