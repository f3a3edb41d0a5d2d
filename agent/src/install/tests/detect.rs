// SPDX-License-Identifier: Apache-2.0
//! Detects a node's distribution and its directory of plugins.

use super::*;
use std::os::unix::fs::symlink;

/// The characteristic file of each distribution, and its directory of plugins.
const NODES: [(&str, &str, &str, &str); 8] = [
    (
        "kubeadm",
        "/var/lib/kubelet/kubeadm-flags.env",
        "",
        "/opt/cni/bin",
    ),
    (
        "k3s",
        "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
        "",
        "/var/lib/rancher/k3s/data/cni",
    ),
    (
        "rke2",
        "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
        "",
        "/opt/cni/bin",
    ),
    (
        "microk8s",
        "/var/snap/microk8s/current/args/kubelet",
        "",
        "/var/snap/microk8s/current/opt/cni/bin",
    ),
    ("k0s", "/var/lib/k0s/bin/containerd", "", "/opt/cni/bin"),
    (
        "openshift",
        "/etc/os-release",
        "ID=\"rhcos\"\nOPENSHIFT_VERSION=\"4.18\"\n",
        "/var/lib/cni/bin",
    ),
    (
        "openshift",
        "/etc/machine-config-daemon/currentconfig",
        "",
        "/var/lib/cni/bin",
    ),
    (
        "talos",
        "/etc/os-release",
        "NAME=\"Talos\"\nID=talos\n",
        "/opt/cni/bin",
    ),
];

#[test]
fn every_distribution_is_detected_by_its_files_on_the_node() {
    for (name, sign, content, dir) in NODES {
        let node = Node::new();
        node.write("/etc/os-release", "ID=debian\n");
        node.write(sign, content);
        let (found, why) = node.target().find().unwrap();
        assert_eq!(found, Path::new(dir), "{name} by {sign}");
        assert_says(&why, &format!("this node is {name}"));
    }
}

#[test]
fn a_configured_distribution_overrides_the_detected_one() {
    for (name, _, _, dir) in NODES {
        let node = Node::new();
        node.write("/var/lib/k0s/bin/containerd", "");
        let mut target = node.target();
        target.distribution = name.parse().unwrap();
        assert_eq!(target.find().unwrap().0, Path::new(dir));
    }
}

#[test]
fn a_configured_plugin_directory_overrides_the_detected_one() {
    let node = Node::usual();
    let mut target = node.target();
    target.bin_dir = Some("/home/kubernetes/bin".into());
    assert_eq!(target.find().unwrap().0, Path::new("/home/kubernetes/bin"));
}

#[test]
fn an_unknown_distribution_is_rejected_with_the_variable_to_set() {
    let node = Node::new();
    node.write("/etc/os-release", "ID=debian\n");
    let message = refusal(node.target().find());
    assert_says(&message, "no sign of kubeadm");
    assert_says(&message, "RDMANET_CNI_BIN_DIR");
}

#[test]
fn a_node_with_files_of_two_distributions_is_rejected() {
    let node = Node::usual();
    node.write("/var/lib/rancher/k3s/agent/old", "");
    let message = refusal(node.target().find());
    assert_says(
        &message,
        "kubeadm (/var/lib/kubelet/kubeadm-flags.env) and k3s (/var/lib/rancher/k3s/agent)",
    );
}

#[test]
fn a_misspelt_distribution_is_rejected_with_the_valid_names() {
    let message = "openshift4".parse::<Choice>().unwrap_err();
    assert_says(
        &message,
        "one of auto, kubeadm, k3s, rke2, microk8s, k0s, openshift, talos",
    );
}

#[test]
fn the_plugin_directory_of_the_runtime_overrides_the_default_one() {
    let version_2 = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"/srv/cni\"\n";
    let version_3 = "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dir = ''\nbin_dirs = ['/none', '/srv/cni']\n";
    let crio = "[crio.network]\nplugin_dirs = [\"/srv/cni\", \"/opt/cni/bin/\"]\n";
    for (file, content) in [
        ("/etc/containerd/config.toml", version_2),
        ("/etc/containerd/config.toml", version_3),
        ("/etc/crio/crio.conf", crio),
    ] {
        let node = Node::usual();
        node.write("/srv/cni/loopback", "");
        node.write(file, content);
        let (found, why) = node.target().find().unwrap();
        assert_eq!(found, Path::new("/srv/cni"), "{content}");
        assert_says(&why, &format!("{file} names this directory"));
    }
}

/// Drop-ins of containerd, such as those of GPU nodes.
#[test]
fn an_imported_file_of_containerd_overrides_the_file_that_imports_it() {
    let node = Node::usual();
    let cni = |dir: &str| format!("[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = ['{dir}']\n");
    let imports = "imports = ['/etc/containerd/conf.d/*.toml', 'more.toml', '../containerd/config.toml', '/gone.toml']\n";
    for (file, content) in [
        ("config.toml", format!("{imports}{}", cni("/srv/main"))),
        ("conf.d/50-site.toml", cni("/srv/site")),
        ("conf.d/99-nvidia.toml", "version = 3\n".to_owned()),
        ("more.toml", "imports = ['last.toml']\n".to_owned()),
    ] {
        node.write(&format!("/etc/containerd/{file}"), &content);
    }
    for dir in ["/srv/main", "/srv/site", "/srv/last"] {
        node.write(&format!("{dir}/loopback"), "");
    }
    let (found, why) = node.target().find().unwrap();
    assert_eq!(found, Path::new("/srv/site"));
    assert_says(&why, "/etc/containerd/conf.d/50-site.toml names this directory");
    node.write("/etc/containerd/config.toml", "imports = ['more.toml']\n");
    node.write("/etc/containerd/last.toml", &cni("/srv/last"));
    assert_eq!(node.target().find().unwrap().0, Path::new("/srv/last"));
}

#[test]
fn the_last_file_of_crio_that_names_plugin_directories_counts() {
    let node = Node::usual();
    for (file, key, dir) in [
        ("crio.conf", "plugin_dirs", "/srv/main"),
        ("crio.conf.d/10-crio.conf", "plugin_dirs", "/srv/ten"),
        ("crio.conf.d/50-site.conf", "plugin_dirs", "/srv/site"),
        ("crio.conf.d/99-other.conf", "other_dirs", "/srv/other"),
    ] {
        node.write(&format!("{dir}/loopback"), "");
        let text = format!("[crio.network]\n{key} = [\"{dir}\"]\n");
        node.write(&format!("/etc/crio/{file}"), &text);
    }
    let (found, why) = node.target().find().unwrap();
    assert_eq!(found, Path::new("/srv/site"));
    assert_says(&why, "/etc/crio/crio.conf.d/50-site.conf names this directory");
}

#[test]
fn an_invalid_plugin_directory_in_the_runtime_configuration_is_ignored() {
    let cni = "[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = ";
    for content in [
        format!("{cni}\"/gone\""),
        format!("{cni}\"${{SNAP_DATA}}/opt/cni/bin\""),
        format!("{cni}\"opt\""),
        format!("{cni}3"),
        "not toml".to_owned(),
        String::new(),
    ] {
        let node = Node::usual();
        node.write("/etc/containerd/config.toml", &content);
        assert_eq!(
            node.target().find().unwrap().0,
            Path::new("/opt/cni/bin"),
            "{content}"
        );
    }
}

#[test]
fn an_older_k3s_gets_the_plugins_in_the_directory_of_its_release() {
    let node = Node::new();
    node.write("/var/lib/rancher/k3s/data/6e54/bin/loopback", "");
    symlink(
        "/var/lib/rancher/k3s/data/6e54",
        node.at("/var/lib/rancher/k3s/data/current"),
    )
    .unwrap();
    node.write(
        "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
        "[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"/var/lib/rancher/k3s/data/6e54/bin\"\n",
    );
    node.install("0.1.0").unwrap();
    assert_eq!(
        node.names("/var/lib/rancher/k3s/data/6e54/bin"),
        ["cni-ipoib", "loopback", "rdma-ipam"]
    );
}

#[test]
fn absolute_symlinks_of_the_node_lead_to_its_configuration_and_directory() {
    let node = Node::usual();
    node.write("/data/cni/loopback", "");
    symlink("/data/cni", node.at("/srv-cni")).unwrap();
    node.write("/data/containerd/config.toml", "imports = [\"conf.d/*.toml\"]\n");
    node.write(
        "/data/containerd/conf.d/cni.toml",
        "[plugins.'io.containerd.grpc.v1.cri'.cni]\nbin_dir = '/srv-cni'\n",
    );
    fs::create_dir_all(node.at("/etc")).unwrap();
    symlink("/data/containerd", node.at("/etc/containerd")).unwrap();
    node.install("0.1.0").unwrap();
    assert_eq!(node.names("/data/cni"), ["cni-ipoib", "loopback", "rdma-ipam"]);
    assert_eq!(node.names("/opt/cni/bin"), ["loopback"]);
}

#[test]
fn a_distribution_whose_state_was_moved_to_another_disk_is_detected() {
    let node = Node::new();
    node.write("/data/rancher/k3s/agent/kubelet.kubeconfig", "");
    fs::create_dir_all(node.at("/var/lib")).unwrap();
    symlink("/data/rancher", node.at("/var/lib/rancher")).unwrap();
    let (found, why) = node.target().find().unwrap();
    assert_eq!(found, Path::new("/var/lib/rancher/k3s/data/cni"), "{why}");
}

#[test]
fn a_symlink_of_the_node_is_followed_inside_the_node() {
    let node = Node::usual();
    node.write("/var/lib/plugins/loopback", "");
    fs::remove_dir_all(node.at("/opt/cni/bin")).unwrap();
    symlink("/var/lib/plugins", node.at("/opt/cni/bin")).unwrap();
    node.install("0.1.0").unwrap();
    assert_eq!(
        node.names("/var/lib/plugins"),
        ["cni-ipoib", "loopback", "rdma-ipam"]
    );
}
