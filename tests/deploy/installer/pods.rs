// SPDX-License-Identifier: Apache-2.0
//! The installer keeps the plugins while pods use them. It finds these pods by the alias of a link in their namespace.

use crate::host::{BIN, Host};

/// Creates a pod's namespace in the node's directory of namespaces, with a link that has an alias of rdmanet.
const POD: &str = r#"
mkdir -p "$HOST/run/netns"
touch "$HOST/run/netns/pod"
unshare --net="$HOST/run/netns/pod" true
nsenter --net="$HOST/run/netns/pod" ip link set lo alias rdmanet:rail0/c1@net1
"#;

#[test]
fn a_link_in_a_pod_prevents_removal_even_without_state_files() {
    let host = Host::new();
    host.install().worked();
    host.mounted("uninstall", &format!("{POD}exec \"$@\""))
        .refused_with(&[
            "a pod: net1 of network rail0, container c1 (lo in ",
            "run/netns/pod)",
            "Delete these pods",
        ]);
    assert_eq!(host.names(BIN), ["cni-ipoib", "loopback", "rdma-ipam"]);
    // The namespace has ended with the mount; its file remains.
    host.call("uninstall", &[]).worked();
    assert_eq!(host.names(BIN), ["loopback"]);
}

#[test]
fn a_link_of_another_plugin_does_not_prevent_removal() {
    let host = Host::new();
    host.install().worked();
    let other = POD.replace("rdmanet:rail0/", "macvlan-");
    host.mounted("uninstall", &format!("{other}exec \"$@\"")).worked();
    assert_eq!(host.names(BIN), ["loopback"]);
}

#[test]
fn a_netns_that_cannot_be_entered_prevents_removal() {
    let host = Host::new();
    host.install().worked();
    let bare = format!("{POD}exec setpriv --bounding-set=-all,+dac_override --inh-caps=-all \"$@\"");
    host.mounted("uninstall", &bare).refused_with(&[
        "cannot find out which pods use rdmanet",
        "run/netns/pod",
        "CAP_SYS_ADMIN",
    ]);
    assert_eq!(host.names(BIN), ["cni-ipoib", "loopback", "rdma-ipam"]);
}
