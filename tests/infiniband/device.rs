// SPDX-License-Identifier: Apache-2.0
//! A pod gets a whole link, InfiniBand or Ethernet, with the RDMA subsystem shared or exclusive. The link works in the
//! pod, and returns to the node with its former settings, however the pod ends.

mod ethernet;
mod infiniband;
mod refused;
mod virtual_function;

use crate::fabric::{run, run_exclusive, soon};
use cni_ipoib::intent::is_made_by_software;
use common::netlink::{NetnsMode, Rdma, Socket};
use nix::sys::utsname::uname;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use tests::{Conf, Node, Pod, json};

/// Settings that an administrator may have made on a link of the node.
const SETTINGS: [&str; 8] = [
    "link property add dev LINK altname LINK-rail-number-one",
    "link set LINK alias storage",
    "link set LINK group 7",
    "link set LINK mtu 2000",
    "addr add 10.44.0.1/24 dev LINK",
    "addr add fd00:44::1/64 dev LINK nodad",
    "route add 10.45.0.0/16 via 10.44.0.254 dev LINK metric 77",
    "neigh add 10.44.0.9 lladdr ADDRESS dev LINK nud permanent",
];

/// What a pod may change on its link. With an MTU below 1280 bytes the link has no IPv6.
const BY_POD: [&str; 10] = [
    "link set net1 group 7",
    "link set net1 broadcast BROADCAST",
    "link set net1 mtu 1000",
    "link set net1 arp off",
    "link set net1 multicast off",
    "link set net1 allmulticast on",
    "link set net1 promisc on",
    "link set net1 txqueuelen 77",
    "link set net1 mode dormant",
    "link set net1 gso_max_size 4000 gso_max_segs 7",
];

const RESETS: [&str; 6] = [
    "link property del dev LINK altname LINK-rail-number-one",
    "link set LINK alias ",
    "link set LINK group 0",
    "neigh flush dev LINK nud permanent",
    "addr flush dev LINK scope global",
    "route flush dev LINK",
];

/// Runs `test` with these settings and a changed sysctl on `link`. Afterwards the node's state must be the same as
/// before.
fn with_settings(node: &Node, link: &str, mtu: u32, test: impl FnOnce()) {
    let setting = format!("/proc/sys/net/ipv4/conf/{link}/rp_filter");
    let usual = fs::read_to_string(&setting).unwrap();
    fs::write(&setting, "2").unwrap();
    with_default_sysctls(node, link, mtu, test);
    fs::write(&setting, usual).unwrap();
}

/// Runs `test` with these settings on `link`. Afterwards the node's state must be the same as before.
fn with_default_sysctls(node: &Node, link: &str, mtu: u32, test: impl FnOnce()) {
    let address = node.link(link).address.to_string();
    let has_ipv6 = Path::new("/proc/net/if_inet6").exists();
    for words in SETTINGS
        .into_iter()
        .filter(|words| has_ipv6 || !words.contains("fd00:"))
    {
        node.ip(&words.replace("LINK", link).replace("ADDRESS", &address));
    }
    unchanged(node, test);
    for words in RESETS {
        let words = words.replace("LINK", link);
        let output = Command::new("ip").args(words.split(' ')).output().unwrap();
        assert!(output.status.success(), "ip {words}: {output:?}");
    }
    node.ip(&format!("link set {link} mtu {mtu}"));
}

/// Runs `test`. Afterwards the node's state must be the same as before.
fn unchanged(node: &Node, test: impl FnOnce()) {
    let before = node.settled_snapshot(&[]);
    test();
    node.assert_as_before(&before, &[], "after the test");
}

/// Attaches a pod to the whole link, which it changes. DEL restores the link, whether the pod is alive or not.
fn changed_by_its_pod(node: &Node, link: &str) {
    let conf = whole_link(node, link);
    for dies in [false, true] {
        let pod = node.pod();
        pod.attach(&conf, "net1");
        // Another address of the same length.
        let broadcast = pod.link("net1").broadcast.to_string().replace("ff:ff", "ff:fe");
        for words in BY_POD {
            pod.ip(&words.replace("BROADCAST", &broadcast));
        }
        // Linux 5.10 forgets to which namespace an altname of a returned link belongs, and cannot remove it.
        if !(dies && uname().unwrap().release().as_bytes().starts_with(b"5.10.")) {
            pod.ip("link property add dev net1 altname slow\u{fffd}");
        }
        // The link that keeps its alias has the group 7 with it. The other alias is not UTF-8.
        if dies {
            pod.ip("link set net1 alias x\u{fffd}");
            die(node, &pod);
        }
        pod.detach(&conf, "net1");
    }
}

/// Ends the namespace of a pod with one whole link. Returns when the link and its RDMA device are on the node.
///
/// DEL, GC and the collector wait five seconds for the kernel, and then fail: the caller must repeat the call.
fn die(node: &Node, pod: &Pod<'_>) {
    let returns_device = Socket::<Rdma>::open().unwrap().netns_mode().unwrap() == NetnsMode::Exclusive;
    let (links, devices) = hardware(node);
    let complete = (links + 1, devices + usize::from(returns_device));
    pod.die();
    soon("the kernel has put the link back", || hardware(node) == complete);
}

/// The number of whole links on the node, and of RDMA devices.
fn hardware(node: &Node) -> (usize, usize) {
    let links = node.links();
    let whole = links.iter().filter(|link| !is_made_by_software(link));
    (whole.count(), devices_of_node().len())
}

/// A network that moves `link` itself into the pod.
fn whole_link(node: &Node, link: &str) -> Conf {
    let keys = json!({
        "mode": "device", "master": link, "hostAddresses": "restore", "ipam": node.rdma_ipam("10.7.0.0/24"),
    });
    node.conf(keys)
}

/// The RDMA devices that are visible in the pod.
fn devices(pod: &Pod<'_>) -> Vec<String> {
    names(Socket::open_in(&pod.open()).unwrap())
}

/// The RDMA devices that are visible on the node.
fn devices_of_node() -> Vec<String> {
    names(Socket::open().unwrap())
}

/// The names of the RDMA devices of a namespace, sorted.
fn names(mut socket: Socket<Rdma>) -> Vec<String> {
    let all = socket.devices().unwrap().into_iter();
    let mut names: Vec<String> = all.map(|device| device.name).collect();
    names.sort();
    names
}

/// Runs `test` in both modes of the RDMA subsystem.
fn in_both_modes(test: impl Fn(&Node) + Send + Sync) {
    run(&test);
    run_exclusive(&test);
}
