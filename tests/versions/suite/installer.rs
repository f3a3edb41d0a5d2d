// SPDX-License-Identifier: Apache-2.0
//! The installer of one version on a node with plugins and pods of the other.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tests::{Node, Version, json};

const BOTH: [Version; 2] = [Version::Earlier, Version::Today];

fn installer(version: Version, verb: &str, plugins: &Path) -> Command {
    let mut command = Command::new(version.program("rdmanet-agent"));
    command
        .env_clear()
        .args([verb, "--host", "/", "--bin-dir"])
        .arg(plugins);
    command
}

fn install(version: Version, plugins: &Path) {
    let mut command = installer(version, "install", plugins);
    let output = command.arg("--plugins").arg(version.plugins()).output().unwrap();
    assert!(output.status.success(), "{version:?}: {output:?}");
    for plugin in ["cni-ipoib", "rdma-ipam"] {
        let (there, origin) = (plugins.join(plugin), version.plugins().join(plugin));
        assert!(
            std::fs::read(there).unwrap() == std::fs::read(origin).unwrap(),
            "{version:?}: {plugin}"
        );
    }
}

fn uninstall(version: Version, node: &Node, plugins: &Path) -> Output {
    let mut command = installer(version, "uninstall", plugins);
    for (flag, directory) in [
        ("--data-dir", "rdma-ipam"),
        ("--state", "state"),
        ("--netns", "netns"),
    ] {
        command.arg(flag).arg(node.path(directory));
    }
    command.output().unwrap()
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[test]
fn each_version_replaces_and_removes_the_plugins_of_the_other() {
    for first in BOTH {
        Node::run(|node| {
            let plugins = node.path("plugins");
            std::fs::create_dir(&plugins).unwrap();
            for version in [first, first.other(), first] {
                install(version, &plugins);
                assert_eq!(files(&plugins).len(), 2, "{version:?}: {:?}", files(&plugins));
            }
            let removed = uninstall(first.other(), node, &plugins);
            assert!(removed.status.success(), "{first:?} first: {removed:?}");
            assert_eq!(files(&plugins), Vec::<PathBuf>::new(), "{first:?} first");
        });
    }
}

#[test]
fn no_version_removes_plugins_that_a_pod_of_the_other_needs() {
    for first in BOTH {
        Node::run(|node| {
            let plugins = node.path("plugins");
            std::fs::create_dir(&plugins).unwrap();
            install(first, &plugins);
            let conf = node.conf(json!({ "ipam": node.rdma_ipam("10.7.0.0/24") }));
            let pod = node.pod();
            node.use_plugins(first);
            pod.attach(&conf, "net1");
            let refused = uninstall(first.other(), node, &plugins);
            assert!(!refused.status.success(), "{first:?} first: {refused:?}");
            assert_eq!(files(&plugins).len(), 2);
            pod.detach(&conf, "net1");
            let removed = uninstall(first.other(), node, &plugins);
            assert!(removed.status.success(), "{first:?} first: {removed:?}");
            assert_eq!(files(&plugins), Vec::<PathBuf>::new());
        });
    }
}
