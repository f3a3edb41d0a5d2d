// SPDX-License-Identifier: Apache-2.0
//! Installs, updates and keeps plugins.

use super::*;
use std::os::unix::fs::{MetadataExt, symlink};

const BIN: &str = "/opt/cni/bin";

#[test]
fn both_plugins_are_installed_for_everybody_to_run() {
    let node = Node::usual();
    let said = node.install("0.1.0").unwrap();
    assert_eq!(node.names(BIN), ["cni-ipoib", "loopback", "rdma-ipam"]);
    for name in PLUGINS {
        let path = format!("{BIN}/{name}");
        assert_eq!(node.read(&path), program(name, "0.1.0"));
        assert_eq!(
            fs::metadata(node.at(&path)).unwrap().permissions().mode() & 0o7777,
            0o755
        );
        assert_says(&said, &format!("{name} 0.1.0 installed (there was none)"));
    }
    assert!(!said.contains("warning"), "{said}");
}

#[test]
fn what_is_there_already_is_not_touched() {
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
fn a_plugin_that_was_made_unreadable_is_made_readable() {
    let node = Node::usual();
    node.install("0.1.0").unwrap();
    let path = node.at("/opt/cni/bin/cni-ipoib");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    node.install("0.1.0").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o755);
}

#[test]
fn an_upgrade_and_a_rollback_are_installations() {
    let node = Node::usual();
    for (version, before) in [
        ("0.1.0", "there was none"),
        ("0.2.0", "was 0.1.0"),
        ("0.1.0", "was 0.2.0"),
    ] {
        let said = node.install(version).unwrap();
        assert_says(&said, &format!("cni-ipoib {version} installed ({before})"));
        assert_eq!(node.read("/opt/cni/bin/rdma-ipam"), program("rdma-ipam", version));
    }
    assert_eq!(node.names(BIN), ["cni-ipoib", "loopback", "rdma-ipam"]);
}

#[test]
fn a_program_of_another_origin_keeps_both_plugins_from_being_installed() {
    let node = Node::usual();
    node.write("/opt/cni/bin/cni-ipoib", "#!/bin/sh\necho mine\n");
    let said = refusal(node.install("0.1.0"));
    assert_says(
        &said,
        "/opt/cni/bin/cni-ipoib is there already and is not rdmanet's (a file of 20 bytes",
    );
    assert_says(&said, "--replace-foreign");
    assert_eq!(node.read("/opt/cni/bin/cni-ipoib"), "#!/bin/sh\necho mine\n");
    assert_eq!(node.names(BIN), ["cni-ipoib", "loopback"]);
}

#[test]
fn the_other_plugin_under_this_ones_name_is_of_another_origin() {
    let node = Node::usual();
    node.write("/opt/cni/bin/cni-ipoib", &program("rdma-ipam", "0.1.0"));
    assert_says(&refusal(node.install("0.1.0")), "is not rdmanet's");
}

#[test]
fn a_link_or_a_folder_under_a_plugins_name_is_of_another_origin() {
    let node = Node::usual();
    symlink("loopback", node.at("/opt/cni/bin/cni-ipoib")).unwrap();
    assert_says(&refusal(node.install("0.1.0")), "(a symbolic link to loopback)");
    fs::remove_file(node.at("/opt/cni/bin/cni-ipoib")).unwrap();
    fs::create_dir(node.at("/opt/cni/bin/cni-ipoib")).unwrap();
    assert_says(&refusal(node.install("0.1.0")), "(no file)");
}

#[test]
fn a_program_of_another_origin_is_kept_if_it_is_to_be_replaced_and_comes_back() {
    let node = Node::usual();
    node.write("/opt/cni/bin/cni-ipoib", "mine");
    let mut wanted = node.wanted("0.1.0");
    wanted.replace_foreign = true;
    let said = told(|out| install(&wanted, out)).unwrap();
    assert_says(&said, "cni-ipoib.foreign");
    assert_eq!(node.read("/opt/cni/bin/cni-ipoib"), program("cni-ipoib", "0.1.0"));
    assert_eq!(node.read("/opt/cni/bin/cni-ipoib.foreign"), "mine");
    node.install("0.2.0").unwrap();
    assert_eq!(node.read("/opt/cni/bin/cni-ipoib.foreign"), "mine");
    assert_says(
        &told(|out| uninstall(&node.removal_of_a_whole_node(), out)).unwrap(),
        "cni-ipoib is what it was before rdmanet",
    );
    assert_eq!(node.read("/opt/cni/bin/cni-ipoib"), "mine");
    assert_eq!(node.names(BIN), ["cni-ipoib", "loopback"]);
}

#[test]
fn a_plugin_that_does_not_run_replaces_nothing() {
    let node = Node::usual();
    node.install("0.1.0").unwrap();
    for broken in [
        "#!/nowhere\n# cni-ipoib 0.2.0 (rdmanet): \n",
        "#!/bin/sh\n# cni-ipoib 0.2.0 (rdmanet): \nexit 1\n",
        "#!/bin/sh\n# cni-ipoib 0.2.0 (rdmanet): \necho '{}'\n",
    ] {
        let wanted = node.wanted("0.2.0");
        fs::write(wanted.plugins.join("cni-ipoib"), broken).unwrap();
        let said = refusal(told(|out| install(&wanted, out)));
        assert_says(&said, "cni-ipoib was written to");
        for name in PLUGINS {
            assert_eq!(node.read(&format!("{BIN}/{name}")), program(name, "0.1.0"));
        }
        assert_eq!(node.names(BIN), ["cni-ipoib", "loopback", "rdma-ipam"]);
    }
}

#[test]
fn an_image_without_a_plugin_is_named() {
    let node = Node::usual();
    let wanted = node.wanted("0.1.0");
    fs::write(wanted.plugins.join("rdma-ipam"), "something else").unwrap();
    let said = refusal(told(|out| install(&wanted, out)));
    assert_says(&said, "this is not rdma-ipam of rdmanet");
    fs::remove_file(wanted.plugins.join("rdma-ipam")).unwrap();
    assert_says(
        &refusal(told(|out| install(&wanted, out))),
        "image/rdma-ipam: No such file",
    );
    assert_eq!(node.names(BIN), ["loopback"]);
}

#[test]
fn what_a_killed_installation_left_goes_with_the_next() {
    let node = Node::usual();
    node.write("/opt/cni/bin/.cni-ipoib.new", "half");
    node.write("/opt/cni/bin/.rdma-ipam.gone", "old");
    node.install("0.1.0").unwrap();
    assert_eq!(node.names(BIN), ["cni-ipoib", "loopback", "rdma-ipam"]);
}

#[test]
fn a_node_without_the_directory_is_told_which_one_was_looked_for() {
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
fn a_directory_without_any_other_plugin_is_told() {
    let node = Node::usual();
    fs::remove_file(node.at("/opt/cni/bin/loopback")).unwrap();
    assert_says(
        &node.install("0.1.0").unwrap(),
        "warning: /opt/cni/bin has no other plugin in it",
    );
}

/// An installation that also gives cni-ipoib the name `ipoib`.
fn with_ipoib(node: &Node, version: &str) -> Result<String, Error> {
    let wanted = Install {
        peer_names: vec!["ipoib"],
        ..node.wanted(version)
    };
    told(|out| install(&wanted, out))
}

#[test]
fn cni_ipoib_gets_a_peers_name_only_where_that_is_asked_for() {
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
fn a_peers_name_is_kept_up_to_date_and_goes_with_the_plugins() {
    let node = Node::usual();
    with_ipoib(&node, "0.1.0").unwrap();
    assert_says(
        &node.install("0.2.0").unwrap(),
        "ipoib 0.2.0 installed (was 0.1.0)",
    );
    assert_eq!(node.read("/opt/cni/bin/ipoib"), program("cni-ipoib", "0.2.0"));
    let said = told(|out| uninstall(&node.removal_of_a_whole_node(), out)).unwrap();
    assert_says(&said, "ipoib 0.2.0 removed");
    assert_eq!(node.names(BIN), ["loopback"]);
}

#[test]
fn another_projects_plugin_is_never_replaced_under_its_own_name() {
    let node = Node::usual();
    node.write("/opt/cni/bin/ipoib", "#!/bin/sh\necho theirs\n");
    for replace_foreign in [false, true] {
        let wanted = Install {
            peer_names: vec!["ipoib"],
            replace_foreign,
            ..node.wanted("0.1.0")
        };
        let said = refusal(told(|out| install(&wanted, out)));
        assert_says(&said, "/opt/cni/bin/ipoib is there already and is not rdmanet's");
        assert_says(&said, "take ipoib out of --peer-names");
        assert_eq!(node.names(BIN), ["ipoib", "loopback"], "nothing was installed");
    }
    node.install("0.1.0").unwrap();
    told(|out| uninstall(&node.removal_of_a_whole_node(), out)).unwrap();
    assert_eq!(node.read("/opt/cni/bin/ipoib"), "#!/bin/sh\necho theirs\n");
}

#[test]
fn rdma_ipam_under_a_peers_name_is_of_another_origin() {
    let node = Node::usual();
    node.write("/opt/cni/bin/ipoib", &program("rdma-ipam", "0.1.0"));
    assert_says(&refusal(with_ipoib(&node, "0.1.0")), "is not rdmanet's");
}
