// SPDX-License-Identifier: Apache-2.0
//! One node of each distribution, with its configuration files.

use crate::host::Host;
use agent::install::PLUGINS;
use std::process::{Command, Stdio};

/// The name, the files with their content, and the directory of the plugins.
type Node = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static str,
);

const DEBIAN: (&str, &str) = ("etc/os-release", "ID=debian\n");

const NODES: [Node; 7] = [
    (
        "kubeadm",
        &[
            DEBIAN,
            ("var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"\"\n"),
            ("etc/cni/net.d/00-multus.conf", "{}"),
            (
                "etc/containerd/config.toml",
                "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"/opt/cni/bin\"\n",
            ),
            ("opt/cni/bin/loopback", ""),
        ],
        "opt/cni/bin",
    ),
    (
        "k3s",
        &[
            DEBIAN,
            (
                "var/lib/rancher/k3s/agent/etc/containerd/config.toml",
                "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\n  bin_dirs = ['/var/lib/rancher/k3s/data/cni']\n",
            ),
            (
                "var/lib/rancher/k3s/agent/etc/cni/net.d/10-flannel.conflist",
                "{}",
            ),
            ("var/lib/rancher/k3s/data/cni/loopback", ""),
        ],
        "var/lib/rancher/k3s/data/cni",
    ),
    (
        "rke2",
        &[
            DEBIAN,
            (
                "var/lib/rancher/rke2/agent/etc/containerd/config.toml",
                "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"/opt/cni/bin\"\n",
            ),
            ("etc/cni/net.d/00-multus.conf", "{}"),
            ("opt/cni/bin/calico", ""),
        ],
        "opt/cni/bin",
    ),
    (
        "microk8s",
        &[
            ("etc/os-release", "ID=ubuntu\n"),
            (
                "var/snap/microk8s/current/args/containerd-template.toml",
                "[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"${SNAP_DATA}/opt/cni/bin\"\n",
            ),
            ("var/snap/microk8s/current/args/cni-network/cni.yaml", ""),
            ("var/snap/microk8s/current/opt/cni/bin/calico", ""),
        ],
        "var/snap/microk8s/current/opt/cni/bin",
    ),
    (
        "k0s",
        &[
            DEBIAN,
            ("etc/k0s/containerd.toml", "# k0s_managed=true\nversion = 2\n"),
            ("var/lib/k0s/bin/kubelet", ""),
            ("etc/cni/net.d/10-kuberouter.conflist", "{}"),
            ("opt/cni/bin/bridge", ""),
        ],
        "opt/cni/bin",
    ),
    (
        "openshift",
        &[
            (
                "etc/os-release",
                "ID=\"rhcos\"\nVARIANT_ID=coreos\nOPENSHIFT_VERSION=\"4.18\"\n",
            ),
            ("etc/machine-config-daemon/currentconfig", "{}"),
            ("etc/kubernetes/cni/net.d/00-multus.conf", "{}"),
            ("var/lib/cni/bin/multus-shim", ""),
            // CRI-O does not search this directory.
            ("opt/cni/bin/other", ""),
        ],
        "var/lib/cni/bin",
    ),
    (
        "talos",
        &[
            ("etc/os-release", "NAME=\"Talos\"\nID=talos\n"),
            ("etc/cni/net.d/10-flannel.conflist", "{}"),
            ("opt/cni/bin/flannel", ""),
        ],
        "opt/cni/bin",
    ),
];

fn node(files: &[(&str, &str)]) -> Host {
    let host = Host::bare();
    for (path, content) in files {
        host.write(path, content);
    }
    host
}

#[test]
fn the_plugins_are_installed_and_removed_on_each_distribution() {
    for (name, files, dir) in NODES {
        let host = node(files);
        let before = host.names(dir);
        let output = host.install().worked();
        assert!(output.contains(&format!("this node is {name}")), "{output}");
        assert!(!output.contains("warning"), "{output}");
        for plugin in PLUGINS {
            let output = Command::new(host.at(dir).join(plugin))
                .env("CNI_COMMAND", "VERSION")
                .stdin(Stdio::null())
                .output()
                .unwrap();
            assert!(
                String::from_utf8_lossy(&output.stdout).contains("supportedVersions"),
                "{name}: {plugin}"
            );
        }
        host.call("uninstall", &[]).worked();
        assert_eq!(host.names(dir), before, "{name}");
    }
}

#[test]
fn an_explicit_distribution_needs_only_its_plugin_directory_mounted() {
    for (name, _, dir) in NODES {
        let host = Host::bare();
        host.write(&format!("{dir}/loopback"), "");
        let output = host.call("install", &["--distribution", name]).worked();
        assert!(output.contains(&format!("--distribution is {name}")), "{output}");
        assert_eq!(host.names(dir), ["cni-ipoib", "loopback", "rdma-ipam"]);
    }
}

#[test]
fn concurrent_installers_run_one_after_another() {
    let host = Host::new();
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..4).map(|_| scope.spawn(|| host.install())).collect();
        let output: Vec<String> = all.into_iter().map(|one| one.join().unwrap().worked()).collect();
        let first = output
            .iter()
            .filter(|output| output.contains("cni-ipoib 0.1.0 installed"));
        assert_eq!(first.count(), 1, "{output:?}");
    });
    assert_eq!(
        host.names(crate::host::BIN),
        ["cni-ipoib", "loopback", "rdma-ipam"]
    );
}
