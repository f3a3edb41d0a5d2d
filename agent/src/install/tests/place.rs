// SPDX-License-Identifier: Apache-2.0
//! Installs, updates and keeps plugins.

use super::*;
use std::os::unix::fs::{MetadataExt, symlink};

const BIN: &str = "/opt/cni/bin";

#[test]
fn both_plugins_are_installed_as_executables_for_all_users() {
    let node = Node::usual();
    let output = node.install("0.1.0").unwrap();
    assert_eq!(node.names(BIN), ["cni-ipoib", "loopback", "rdma-ipam"]);
    for name in PLUGINS {
        let path = format!("{BIN}/{name}");
        assert_eq!(node.read(&path), program(name, "0.1.0"));
        assert_eq!(
            fs::metadata(node.at(&path)).unwrap().permissions().mode() & 0o7777,
            0o755
        );
        assert_says(&output, &format!("{name} 0.1.0 installed (there was none)"));
    }
    assert!(!output.contains("warning"), "{output}");
}

#[test]
fn an_installed_plugin_of_the_same_version_is_not_rewritten() {
    let node = Node::usual();
    node.install("0.1.0").unwrap();
    let inode = || fs::metadata(node.at("/opt/cni/bin/cni-ipoib")).unwrap().ino();
    let before = inode();
    assert_says(
        &node.install("0.1.0").unwrap(),
        "cni-ipoib 0.1.0 is there already",
    );
    assert_eq!(inode(), before);
}

#[test]
fn the_installation_restores_the_permissions_of_a_plugin() {
    let node = Node::usual();
    node.install("0.1.0").unwrap();
    let path = node.at("/opt/cni/bin/cni-ipoib");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    node.install("0.1.0").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o755);
}

#[test]
fn an_upgrade_and_a_rollback_replace_both_plugins() {
    let node = Node::usual();
    for (version, before) in [
        ("0.1.0", "there was none"),
        ("0.2.0", "was 0.1.0"),
        ("0.1.0", "was 0.2.0"),
    ] {
        let output = node.install(version).unwrap();
        assert_says(&output, &format!("cni-ipoib {version} installed ({before})"));
        assert_eq!(node.read("/opt/cni/bin/rdma-ipam"), program("rdma-ipam", version));
    }
    assert_eq!(node.names(BIN), ["cni-ipoib", "loopback", "rdma-ipam"]);
}

#[test]
fn a_foreign_program_prevents_the_installation_of_both_plugins() {
    let node = Node::usual();
    node.write("/opt/cni/bin/cni-ipoib", "#!/bin/sh\necho mine\n");
    let output = refusal(node.install("0.1.0"));
    assert_says(
        &output,
        "/opt/cni/bin/cni-ipoib is there already and is not rdmanet's (a file of 20 bytes",
    );
    assert_says(&output, "--replace-foreign");
    assert_eq!(node.read("/opt/cni/bin/cni-ipoib"), "#!/bin/sh\necho mine\n");
    assert_eq!(node.names(BIN), ["cni-ipoib", "loopback"]);
}

#[test]
fn rdma_ipam_under_the_name_of_cni_ipoib_counts_as_foreign() {
    let node = Node::usual();
    node.write("/opt/cni/bin/cni-ipoib", &program("rdma-ipam", "0.1.0"));
    assert_says(&refusal(node.install("0.1.0")), "is not rdmanet's");
}

#[test]
fn a_symlink_or_a_directory_under_the_name_of_a_plugin_counts_as_foreign() {
    let node = Node::usual();
    symlink("loopback", node.at("/opt/cni/bin/cni-ipoib")).unwrap();
    assert_says(&refusal(node.install("0.1.0")), "(a symbolic link to loopback)");
    fs::remove_file(node.at("/opt/cni/bin/cni-ipoib")).unwrap();
    fs::create_dir(node.at("/opt/cni/bin/cni-ipoib")).unwrap();
    assert_says(&refusal(node.install("0.1.0")), "(no file)");
}

#[test]
fn a_replaced_foreign_program_is_kept_and_restored_by_the_uninstallation() {
    let node = Node::usual();
    node.write("/opt/cni/bin/cni-ipoib", "mine");
    let mut wanted = node.wanted("0.1.0");
    wanted.replace_foreign = true;
    let said = output_of(|out| install(&wanted, out)).unwrap();
    assert_says(&said, "cni-ipoib.foreign");
    assert_eq!(node.read("/opt/cni/bin/cni-ipoib"), program("cni-ipoib", "0.1.0"));
    assert_eq!(node.read("/opt/cni/bin/cni-ipoib.foreign"), "mine");
    node.install("0.2.0").unwrap();
    assert_eq!(node.read("/opt/cni/bin/cni-ipoib.foreign"), "mine");
    assert_says(
        &output_of(|out| uninstall(&node.removal_of_a_whole_node(), out)).unwrap(),
        "restored the earlier cni-ipoib",
    );
    assert_eq!(node.read("/opt/cni/bin/cni-ipoib"), "mine");
    assert_eq!(node.names(BIN), ["cni-ipoib", "loopback"]);
}

#[test]
fn a_plugin_that_does_not_run_does_not_replace_an_installed_plugin() {
    let node = Node::usual();
    node.install("0.1.0").unwrap();
    for broken in [
        "#!/nowhere\n# cni-ipoib 0.2.0 (rdmanet): \n",
        "#!/bin/sh\n# cni-ipoib 0.2.0 (rdmanet): \nexit 1\n",
        "#!/bin/sh\n# cni-ipoib 0.2.0 (rdmanet): \necho '{}'\n",
    ] {
        let wanted = node.wanted("0.2.0");
        fs::write(wanted.plugins.join("cni-ipoib"), broken).unwrap();
        let said = refusal(output_of(|out| install(&wanted, out)));
        assert_says(&said, "cni-ipoib was written to");
        for name in PLUGINS {
            assert_eq!(node.read(&format!("{BIN}/{name}")), program(name, "0.1.0"));
        }
        assert_eq!(node.names(BIN), ["cni-ipoib", "loopback", "rdma-ipam"]);
    }
}

#[test]
fn an_image_without_a_valid_rdma_ipam_is_rejected() {
    let node = Node::usual();
    let wanted = node.wanted("0.1.0");
    fs::write(wanted.plugins.join("rdma-ipam"), "something else").unwrap();
    let said = refusal(output_of(|out| install(&wanted, out)));
    assert_says(&said, "this is not rdma-ipam of rdmanet");
    fs::remove_file(wanted.plugins.join("rdma-ipam")).unwrap();
    assert_says(
        &refusal(output_of(|out| install(&wanted, out))),
        "image/rdma-ipam: No such file",
    );
    assert_eq!(node.names(BIN), ["loopback"]);
}

#[test]
fn the_next_installation_removes_the_files_of_a_killed_one() {
    let node = Node::usual();
    node.write("/opt/cni/bin/.cni-ipoib.new", "half");
    node.write("/opt/cni/bin/.rdma-ipam.gone", &program("rdma-ipam", "0.0.9"));
    node.install("0.1.0").unwrap();
    assert_eq!(node.names(BIN), ["cni-ipoib", "loopback", "rdma-ipam"]);
}

#[test]
fn a_missing_plugin_directory_is_reported_with_its_path() {
    let node = Node::usual();
    fs::remove_dir_all(node.at(BIN)).unwrap();
    assert_says(
        &refusal(node.install("0.1.0")),
        "there is no directory /opt/cni/bin on this node",
    );
    fs::write(node.at(BIN), "").unwrap();
    assert_says(
        &refusal(node.install("0.1.0")),
        "there is no directory /opt/cni/bin on this node",
    );
}

#[test]
fn a_plugin_directory_without_other_plugins_causes_a_warning() {
    let node = Node::usual();
    fs::remove_file(node.at("/opt/cni/bin/loopback")).unwrap();
    assert_says(
        &node.install("0.1.0").unwrap(),
        "warning: /opt/cni/bin contains no other plugin",
    );
}

/// An installation that also installs cni-ipoib under the name `ipoib`.
fn with_ipoib(node: &Node, version: &str) -> Result<String, Error> {
    let wanted = Install {
        peer_names: vec!["ipoib"],
        ..node.wanted(version)
    };
    output_of(|out| install(&wanted, out))
}

#[test]
fn cni_ipoib_gets_a_peer_name_only_on_request() {
    let node = Node::usual();
    node.install("0.1.0").unwrap();
    assert_eq!(node.names(BIN), ["cni-ipoib", "loopback", "rdma-ipam"]);
    assert_says(
        &with_ipoib(&node, "0.1.0").unwrap(),
        "ipoib 0.1.0 installed (there was none)",
    );
    assert_eq!(node.names(BIN), ["cni-ipoib", "ipoib", "loopback", "rdma-ipam"]);
    assert_eq!(node.read("/opt/cni/bin/ipoib"), program("cni-ipoib", "0.1.0"));
    for name in PEERS {
        assert_eq!(plugin::peer(name), Ok(name));
    }
    assert_eq!(
        plugin::peer("bridge"),
        Err("want any of ipoib, macvlan, host-device".to_owned())
    );
}

#[test]
fn a_peer_name_is_upgraded_and_removed_with_the_plugins() {
    let node = Node::usual();
    with_ipoib(&node, "0.1.0").unwrap();
    assert_says(
        &node.install("0.2.0").unwrap(),
        "ipoib 0.2.0 installed (was 0.1.0)",
    );
    assert_eq!(node.read("/opt/cni/bin/ipoib"), program("cni-ipoib", "0.2.0"));
    let said = output_of(|out| uninstall(&node.removal_of_a_whole_node(), out)).unwrap();
    assert_says(&said, "ipoib 0.2.0 removed");
    assert_eq!(node.names(BIN), ["loopback"]);
}

#[test]
fn a_foreign_plugin_under_a_peer_name_is_never_replaced() {
    let node = Node::usual();
    node.write("/opt/cni/bin/ipoib", "#!/bin/sh\necho theirs\n");
    for replace_foreign in [false, true] {
        let wanted = Install {
            peer_names: vec!["ipoib"],
            replace_foreign,
            ..node.wanted("0.1.0")
        };
        let said = refusal(output_of(|out| install(&wanted, out)));
        assert_says(&said, "/opt/cni/bin/ipoib is there already and is not rdmanet's");
        assert_says(&said, "remove ipoib from --peer-names");
        assert_eq!(node.names(BIN), ["ipoib", "loopback"], "nothing was installed");
    }
    node.install("0.1.0").unwrap();
    output_of(|out| uninstall(&node.removal_of_a_whole_node(), out)).unwrap();
    assert_eq!(node.read("/opt/cni/bin/ipoib"), "#!/bin/sh\necho theirs\n");
}

#[test]
fn rdma_ipam_under_a_peer_name_counts_as_foreign() {
    let node = Node::usual();
    node.write("/opt/cni/bin/ipoib", &program("rdma-ipam", "0.1.0"));
    assert_says(&refusal(with_ipoib(&node, "0.1.0")), "is not rdmanet's");
}
