// SPDX-License-Identifier: Apache-2.0
//! Uninstalls plugins, and keeps them while pods need them. `tests/deploy` tests links in namespaces.

use super::*;
use ipam::clock::{Clock, KernelClock};
use std::os::unix::fs::symlink;

const BIN: &str = "/opt/cni/bin";
/// The directory that CRI-O's packages name first on some systems.
const LIBEXEC: &str = "/usr/libexec/cni";

impl Node {
    /// The removal with the whole file system of the node mounted.
    pub(super) fn removal_of_a_whole_node(&self) -> Uninstall {
        self.write("/etc/os-release", "ID=debian\n");
        self.removal()
    }

    /// A node with both plugins, whose whole file system is mounted.
    fn installed() -> Self {
        let node = Self::usual();
        node.write("/etc/os-release", "ID=debian\n");
        node.install("0.1.0").unwrap();
        node
    }

    /// Writes a configuration of CRI-O that names both directories.
    fn configure_crio(&self) {
        let text = format!("[crio.network]\nplugin_dirs = [\"{LIBEXEC}/\", \"{BIN}/\"]\n");
        self.write("/etc/crio/crio.conf", &text);
    }

    /// Writes a lease, as `rdma-ipam` does.
    fn lease(&self, store: &str, pod: &str) {
        let boot = KernelClock.boot_id().unwrap();
        let line = serde_json::json!({
            "container": "c1", "ifname": "net1", "network": "rail0", "pod": pod, "since": "2026-01-01T00:00:00Z",
            "boottime_ms": 1, "result": { "cniVersion": "1.1.0", "ips": [{ "address": "10.0.0.7/24" }] },
        });
        let path = format!("/var/lib/cni/rdma-ipam/{store}/boot-{boot}/leases/c1@net1");
        self.write(&path, &format!("{line}\n"));
    }
}

#[track_caller]
fn assert_kept(node: &Node) {
    assert_eq!(node.names(BIN), ["cni-ipoib", "loopback", "rdma-ipam"]);
}

#[test]
fn the_uninstallation_removes_both_unused_plugins_and_nothing_else() {
    let node = Node::installed();
    let output = node.uninstall().unwrap();
    assert_says(&output, "cni-ipoib 0.1.0 removed");
    assert_eq!(node.names(BIN), ["loopback"]);
    assert_says(&node.uninstall().unwrap(), "rdma-ipam is not there");
}

/// The init container of conf/base sees the default directory alone. The removal sees all of the node.
#[test]
fn the_uninstallation_searches_every_directory_that_the_runtime_names() {
    let node = Node::installed();
    node.write(&format!("{LIBEXEC}/loopback"), "");
    node.configure_crio();
    let output = node.uninstall().unwrap();
    assert_says(&output, "cni-ipoib 0.1.0 removed from /opt/cni/bin");
    assert_eq!(node.names(BIN), ["loopback"]);
    assert_eq!(node.names(LIBEXEC), ["loopback"]);
    let output = node.uninstall().unwrap();
    for part in [
        "looks for plugins in /opt/cni/bin:",
        "looks for plugins in /usr/libexec/cni/: /etc/crio/crio.conf names it",
        "rdma-ipam is not there",
    ] {
        assert_says(&output, part);
    }
}

#[test]
fn the_uninstallation_removes_the_plugins_from_two_directories() {
    let node = Node::installed();
    node.write(&format!("{LIBEXEC}/cni-ipoib"), "mine");
    node.configure_crio();
    let mut wanted = node.wanted("0.2.0");
    wanted.replace_foreign = true;
    output_of(|out| install(&wanted, out)).unwrap();
    assert_eq!(
        node.names(LIBEXEC),
        ["cni-ipoib", "cni-ipoib.foreign", "rdma-ipam"]
    );
    let output = node.uninstall().unwrap();
    assert_says(&output, "restored the earlier cni-ipoib");
    assert!(!output.contains("is not there"), "{output}");
    assert_eq!(node.names(BIN), ["loopback"]);
    assert_eq!(node.names(LIBEXEC), ["cni-ipoib"]);
    assert_eq!(node.read(&format!("{LIBEXEC}/cni-ipoib")), "mine");
}

#[test]
fn a_directory_with_two_paths_is_locked_once() {
    let node = Node::installed();
    fs::create_dir_all(node.at("/usr/libexec")).unwrap();
    symlink(BIN, node.at(LIBEXEC)).unwrap();
    node.configure_crio();
    node.uninstall().unwrap();
    assert_eq!(node.names(BIN), ["loopback"]);
}

#[test]
fn the_uninstallation_fails_if_the_node_has_no_plugin_directory() {
    let node = Node::installed();
    node.configure_crio();
    fs::remove_dir_all(node.at(BIN)).unwrap();
    let said = refusal(node.uninstall());
    assert_says(&said, "there is no directory /opt/cni/bin on this node");
}

#[test]
fn a_recorded_attachment_prevents_the_uninstallation() {
    let node = Node::installed();
    node.write("/run/rdmanet/attachments/rail0/c1@net1", "");
    let output = refusal(node.uninstall());
    assert_says(&output, "a pod: net1 of network rail0, container c1");
    assert_says(&output, "nothing was removed");
    assert_kept(&node);
}

#[test]
fn a_lease_prevents_the_uninstallation_and_the_error_names_its_pod() {
    for store in ["rail0", "pools/rail0"] {
        let node = Node::installed();
        node.lease(store, "training/worker-3");
        node.write("/run/rdmanet/attachments/rail0/c1@net1", "");
        let said = refusal(node.uninstall());
        assert_says(&said, "training/worker-3: net1 of network rail0, container c1");
        assert!(!said.contains("a pod:"), "named twice: {said}");
        assert_kept(&node);
    }
}

#[test]
fn a_lease_of_an_earlier_boot_does_not_prevent_the_uninstallation() {
    let node = Node::installed();
    node.write("/var/lib/cni/rdma-ipam/rail0/boot-earlier/leases/c1@net1", "{}");
    node.uninstall().unwrap();
    assert_eq!(node.names(BIN), ["loopback"]);
}

#[test]
fn an_unreadable_lease_prevents_the_uninstallation() {
    let node = Node::installed();
    node.lease("rail0", "a/b");
    let boot = KernelClock.boot_id().unwrap();
    node.write(
        &format!("/var/lib/cni/rdma-ipam/rail0/boot-{boot}/leases/c2@net1"),
        "garbage",
    );
    assert_says(&refusal(node.uninstall()), "container c2");
    assert_kept(&node);
}

#[test]
fn a_forced_uninstallation_warns_about_pods_that_use_the_plugins() {
    let node = Node::installed();
    node.write("/run/rdmanet/attachments/rail0/c1@net1", "");
    let mut removal = node.removal();
    removal.force = true;
    let said = output_of(|out| uninstall(&removal, out)).unwrap();
    assert_says(&said, "warning: in use by a pod: net1 of network rail0");
    assert_eq!(node.names(BIN), ["loopback"]);
}

#[test]
fn the_uninstallation_is_rejected_if_the_node_directories_are_not_mounted() {
    let node = Node::usual();
    node.install("0.1.0").unwrap();
    let said = refusal(node.uninstall());
    assert_says(&said, "cannot find out which pods use rdmanet");
    assert_says(&said, "is it mounted?");
    assert_kept(&node);
    for dir in [ipam::config::DATA_DIR, "/run/rdmanet", "/run/netns"] {
        fs::create_dir_all(node.at(dir)).unwrap();
    }
    node.uninstall().unwrap();
    assert_eq!(node.names(BIN), ["loopback"]);
}

#[test]
fn the_uninstallation_keeps_a_foreign_program() {
    let node = Node::installed();
    node.write("/opt/cni/bin/cni-ipoib", "mine");
    assert_says(&node.uninstall().unwrap(), "cni-ipoib is not rdmanet's and stays");
    assert_eq!(node.names(BIN), ["cni-ipoib", "loopback"]);
}

#[test]
fn a_killed_uninstallation_is_repeated_from_the_start() {
    let node = Node::installed();
    fs::rename(
        node.at("/opt/cni/bin/cni-ipoib"),
        node.at("/opt/cni/bin/.cni-ipoib.gone"),
    )
    .unwrap();
    node.write("/run/rdmanet/attachments/rail0/c1@net1", "");
    refusal(node.uninstall());
    assert_kept(&node);
    fs::remove_file(node.at("/run/rdmanet/attachments/rail0/c1@net1")).unwrap();
    fs::rename(
        node.at("/opt/cni/bin/cni-ipoib"),
        node.at("/opt/cni/bin/.cni-ipoib.gone"),
    )
    .unwrap();
    node.uninstall().unwrap();
    assert_eq!(node.names(BIN), ["loopback"]);
}

/// The killed removal had taken the name away. The runtime needs the plugin although the new one does not fit.
#[test]
fn a_failed_installation_restores_what_a_killed_removal_took_away() {
    let node = Node::installed();
    let entry = node.at("/opt/cni/bin/cni-ipoib");
    fs::rename(&entry, node.at("/opt/cni/bin/.cni-ipoib.gone")).unwrap();
    let wanted = node.wanted("0.2.0");
    let broken = "#!/bin/sh\n# cni-ipoib 0.2.0 (rdmanet): \nexit 1\n";
    fs::write(wanted.plugins.join("cni-ipoib"), broken).unwrap();
    refusal(output_of(|out| install(&wanted, out)));
    assert!(entry.exists());
}

#[test]
fn both_plugins_are_restored_for_a_pod_attached_during_the_uninstallation() {
    let node = Node::installed();
    let late = node.at("/run/rdmanet/attachments/rail0/c1@net1");
    fs::create_dir_all(late.parent().unwrap()).unwrap();
    // An ADD that started just before writes its record now.
    let attach = || {
        assert!(node.at("/opt/cni/bin/.cni-ipoib.gone").exists());
        fs::write(&late, "").unwrap();
    };
    let output = refusal(output_of(|out| {
        super::super::remove::uninstall_after(attach, &node.removal(), out)
    }));
    assert_says(&output, "container c1");
    assert_kept(&node);
}
