// SPDX-License-Identifier: Apache-2.0
//! An `IPoIB` link of an HCA in a pod.

use super::{
    changed_by_its_pod, devices, devices_of_node, die, in_both_modes, unchanged, whole_link,
    with_default_sysctls, with_settings,
};
use crate::fabric::{address, network, plain, reaches, run_exclusive, soon, with_functions};
use crate::rdmanet_node::node_output;
use crate::verbs::write_bandwidth;
use common::collector::{DeadAttachment, Reply};
use common::netlink::{AddrGenMode, HwAddress};
use std::fs;
use std::path::Path;
use std::process::Command;
use tests::collector::{Collector, POD_ARGS};
use tests::{Node, Pod, json};

#[test]
fn pods_with_whole_hcas_reach_each_other_and_return_them_unchanged() {
    in_both_modes(|node| {
        with_settings(node, "ib1", 4092, || {
            let confs = [whole_link(node, "ib0"), whole_link(node, "ib1")];
            let pods = [node.pod(), node.pod()];
            let target = address(&pods[0].attach(&confs[0], "net1"), false);
            pods[1].attach(&confs[1], "net1");
            assert_eq!(
                node.link_names()
                    .iter()
                    .filter(|name| name.starts_with("ib"))
                    .count(),
                1
            );
            assert_eq!(pods[1].link("net1").mtu, 2000);
            reaches(&pods[1], &target);
            for (pod, conf) in pods.iter().zip(&confs) {
                pod.check(conf, "net1").done();
                pod.detach(conf, "net1");
                pod.detach(conf, "net1");
                assert!(pod.links().is_empty(), "{:?}", pod.link_names());
            }
        });
    });
}

/// The adapter failed, or its driver was unloaded or replaced. The kernel then deletes the link in the pod, too.
#[test]
fn a_pod_ends_while_the_driver_of_its_whole_link_is_away() {
    in_both_modes(|node| {
        let before = node.leases();
        let conf = whole_link(node, "ib1");
        let pod = node.pod();
        pod.attach(&conf, "net1");
        let driver = Path::new("/sys/bus/platform/drivers/softib");
        fs::write(driver.join("unbind"), "softib.1").unwrap();
        assert!(pod.links().is_empty(), "{:?}", pod.link_names());
        pod.detach(&conf, "net1");
        assert_eq!(node.leases(), before);
        fs::write(driver.join("bind"), "softib.1").unwrap();
        soon("the driver creates ib1", || {
            node.link_names().contains(&"ib1".to_owned())
        });
    });
}

#[test]
fn a_pod_sees_only_its_own_hca_and_writes_over_it_to_another_pod() {
    run_exclusive(|node| {
        unchanged(node, || {
            let confs = [whole_link(node, "ib0"), whole_link(node, "ib1")];
            let pods = [node.pod(), node.pod()];
            let target = address(&pods[0].attach(&confs[0], "net1"), false);
            pods[1].attach(&confs[1], "net1");
            assert_eq!(devices(&pods[0]), ["softib0"]);
            assert_eq!(devices(&pods[1]), ["softib1"]);
            let listed = pods[1].exec("ibv_devices", "");
            let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
            assert!(
                listed.contains("softib1") && !listed.contains("softib0") && !listed.contains("softib2"),
                "{listed}"
            );
            write_bandwidth((&pods[1], "softib1"), (&pods[0], "softib0"), &target);
            for (pod, conf) in pods.iter().zip(&confs) {
                pod.detach(conf, "net1");
            }
        });
    });
}

/// While the pod's namespace lives, another pod may get the address. Later a person restores the name of the link.
#[test]
fn del_of_a_damaged_file_brings_the_link_down_in_a_living_pod() {
    in_both_modes(|node| {
        unchanged(node, || {
            let was_up = node.link("ib1").up;
            let (pod, conf) = (node.pod(), whole_link(node, "ib1"));
            pod.attach(&conf, "net1");
            let file = node.path(&format!("state/attachments/net-a/{}@net1", pod.id));
            assert!(file.exists() && pod.link("net1").up);
            fs::write(&file, "{}\n").unwrap();
            pod.detach(&conf, "net1");
            assert!(!file.exists() && !pod.link("net1").up);
            pod.die();
            let has_link = || {
                let names = node.link_names();
                names.iter().any(|name| name == "ib1" || name == "net1")
            };
            // In exclusive mode the RDMA device returns, and the kernel makes its link anew.
            soon("the node has the HCA and its link", || {
                devices_of_node().contains(&"softib1".to_owned()) && has_link()
            });
            if node.link_names().contains(&"net1".to_owned()) {
                let unmarked = Command::new("ip")
                    .args(["link", "set", "net1", "alias", ""])
                    .status();
                assert!(unmarked.unwrap().success());
                node.ip("link set net1 name ib1");
            }
            if was_up {
                node.ip("link set ib1 up");
            }
        });
    });
}

/// The kernel drops the secret of a link that moves, and refuses the mode `stable_secret` without it.
#[test]
fn a_link_gets_the_secret_of_its_ipv6_addresses_back() {
    in_both_modes(|node| {
        with_functions(node, 0, || {
            let file = "/proc/sys/net/ipv6/conf/ib1/stable_secret";
            if !Path::new("/proc/sys/net/ipv6").exists() {
                // A kernel without IPv6 has nothing to put back.
                return;
            }
            let secret = "fd00:0000:0000:0000:0000:0000:0000:0001\n";
            fs::write(file, secret).unwrap();
            for mode in [AddrGenMode::StablePrivacy, AddrGenMode::None] {
                node.ip(&format!("link set ib1 addrgenmode {mode}"));
                let (pod, conf) = (node.pod(), whole_link(node, "ib1"));
                pod.attach(&conf, "net1");
                pod.detach(&conf, "net1");
                assert_eq!(fs::read_to_string(file).unwrap(), secret, "{mode}");
                assert_eq!(node.link("ib1").addr_gen_mode, Some(mode));
            }
        });
    });
}

/// In exclusive mode the host does not see the RDMA device of the pod.
#[test]
fn rdmanet_node_names_the_pod_that_has_a_port_and_reports_no_fault() {
    in_both_modes(|node| {
        unchanged(node, || {
            let conf = whole_link(node, "ib1");
            let pod = node.pod();
            let add = pod.call("ADD", &conf, "net1").env("CNI_ARGS", POD_ARGS).run();
            pod.keep(&conf, "net1", &add.result());
            let answer = node_output(node);
            let findings = answer.json["findings"].as_array().unwrap();
            let mut of_port = findings
                .iter()
                .filter(|finding| finding["subject"] == "softib1/1");
            assert!(
                of_port.all(|finding| finding["level"] == "info"),
                "{}",
                answer.text
            );
            assert!(answer.text.contains("in pod default/train-0"), "{}", answer.text);
            pod.detach(&conf, "net1");
            let answer = node_output(node);
            assert!(!answer.text.contains("in pod default"), "{}", answer.text);
        });
    });
}

/// The kernel accepts another GUID in the address of a link that is down (`ipoib_set_mac` of `ipoib_main.c`).
#[test]
fn a_link_gets_its_guid_back_from_a_pod_that_changed_it() {
    in_both_modes(|node| {
        for dies in [false, true] {
            unchanged(node, || {
                let (pod, conf) = (node.pod(), whole_link(node, "ib1"));
                pod.attach(&conf, "net1");
                let own = pod.link("net1").address;
                let mut bytes = own.as_bytes().to_vec();
                bytes[19] ^= 0xff;
                pod.ip("link set net1 down");
                pod.ip(&format!("link set net1 address {}", HwAddress::new(bytes)));
                assert_ne!(pod.link("net1").address, own);
                if dies {
                    die(node, &pod);
                }
                pod.detach(&conf, "net1");
            });
        }
    });
}

/// Attaches a pod to `ib1` and ends its namespace. Returns when the link is on the node.
fn dead<'n>(node: &'n Node, conf: &tests::Conf) -> Pod<'n> {
    let pod = node.pod();
    pod.attach(conf, "net1");
    die(node, &pod);
    pod
}

#[test]
fn a_link_that_its_pod_changed_is_restored() {
    in_both_modes(|node| {
        with_settings(node, "ib1", 4092, || changed_by_its_pod(node, "ib1"));
    });
}

/// When a namespace ends, the kernel moves each IPoIB child in it to the host, even a child that the pod created.
#[test]
fn a_child_that_the_pod_created_on_its_link_does_not_stay_on_the_node() {
    in_both_modes(|node| {
        unchanged(node, || {
            let conf = whole_link(node, "ib1");
            // The second name has the form of the plugin's temporary names.
            let names = ["own", "rn0123456789ab"];
            for (dies, name) in names.into_iter().flat_map(|name| [(false, name), (true, name)]) {
                let pod = node.pod();
                pod.attach(&conf, "net1");
                pod.ip(&format!("link add link net1 name {name} type ipoib pkey 0x8001"));
                if dies {
                    die(node, &pod);
                }
                pod.detach(&conf, "net1");
                if !dies {
                    pod.die();
                }
            }
        });
    });
}

#[test]
fn del_restores_the_link_of_a_dead_pod() {
    in_both_modes(|node| {
        with_settings(node, "ib1", 4092, || {
            let conf = whole_link(node, "ib1");
            dead(node, &conf).detach(&conf, "net1");
        });
    });
}

/// Attaches a pod to `ib1` as kubelet's runtime does, and ends its namespace. The DEL is lost.
fn lost<'n>(node: &'n Node, conf: &tests::Conf) -> (Pod<'n>, Collector, DeadAttachment) {
    let pod = node.pod();
    let add = pod.call("ADD", conf, "net1").env("CNI_ARGS", POD_ARGS).run();
    pod.keep(conf, "net1", &add.result());
    die(node, &pod);
    let collector = Collector::start(node);
    let mut dead = collector.dead();
    assert_eq!(dead.len(), 1, "{dead:?}");
    (pod, collector, dead.remove(0))
}

/// In exclusive mode the RDMA device returns as well.
#[test]
fn the_collector_restores_the_link_of_a_pod_that_lost_its_del() {
    in_both_modes(|node| {
        with_default_sysctls(node, "ib1", 4092, || {
            let conf = whole_link(node, "ib1");
            let (before, devices) = (node.link("ib1"), devices_of_node());
            let (pod, collector, dead) = lost(node, &conf);
            assert_eq!(collector.collect(&dead), Reply::Collected);
            assert_eq!(collector.dead(), []);
            // Link and RDMA device are back before DEL, which releases the address.
            let restored = node.link("ib1");
            assert_eq!(
                (restored.alias, restored.group, restored.mtu, restored.up),
                (before.alias, before.group, before.mtu, before.up)
            );
            assert_eq!(devices_of_node(), devices);
            drop(collector);
            pod.detach(&conf, "net1");
        });
    });
}

/// The collector cannot write sysctls in its container.
#[test]
fn a_lost_link_with_a_changed_sysctl_waits_for_del() {
    in_both_modes(|node| {
        with_settings(node, "ib1", 4092, || {
            let conf = whole_link(node, "ib1");
            let (pod, collector, dead) = lost(node, &conf);
            let reply = collector.collect(&dead);
            assert!(
                matches!(&reply, Reply::Kept(why) if why.contains("sysctls")),
                "{reply:?}"
            );
            assert_eq!(collector.dead(), [dead]);
            drop(collector);
            pod.detach(&conf, "net1");
        });
    });
}

#[test]
fn gc_restores_the_link_of_a_dead_pod() {
    in_both_modes(|node| {
        with_settings(node, "ib1", 4092, || {
            let conf = whole_link(node, "ib1");
            dead(node, &conf);
            node.gc(&conf, &[]).done();
        });
    });
}

#[test]
fn a_late_del_does_not_take_a_link_from_the_next_pod() {
    in_both_modes(|node| {
        with_settings(node, "ib1", 4092, || {
            let conf = whole_link(node, "ib1");
            let late = dead(node, &conf);
            let pod = node.pod();
            pod.attach(&conf, "net1");
            late.detach(&conf, "net1");
            pod.check(&conf, "net1").done();
            pod.detach(&conf, "net1");
        });
    });
}

#[test]
fn an_add_for_another_link_changes_no_link_of_a_dead_pod() {
    in_both_modes(|node| {
        with_settings(node, "ib1", 4092, || {
            let conf = whole_link(node, "ib1");
            let late = dead(node, &conf);
            let returned = || {
                let links = node.links().into_iter();
                links
                    .filter(|link| link.address.port_guid().is_some())
                    .collect::<Vec<_>>()
            };
            let before = returned();
            // In exclusive mode the kernel creates the link again, and ib1 is the first free name.
            assert!(
                before.iter().any(|link| !link.up),
                "the returned link is down: {before:?}"
            );
            let other = network(node, &json!({"master": "ib0"}));
            let pod = node.pod();
            pod.attach(&other, "net1");
            assert_eq!(returned(), before);
            pod.detach(&other, "net1");
            late.detach(&conf, "net1");
        });
    });
}

#[test]
fn two_links_that_the_kernel_swapped_get_their_names_back() {
    in_both_modes(|node| {
        unchanged(node, || {
            let confs = [whole_link(node, "ib0"), whole_link(node, "ib1")];
            let pods = [node.pod(), node.pod()];
            for (pod, conf) in pods.iter().zip(&confs) {
                pod.attach(conf, "net1");
            }
            die(node, &pods[1]);
            die(node, &pods[0]);
            for (pod, conf) in pods.iter().zip(&confs) {
                pod.detach(conf, "net1");
            }
        });
    });
}

#[test]
fn a_link_keeps_connected_mode_in_the_pod_and_after_its_return() {
    in_both_modes(|node| plain(node, || connected_mode_survives(node)));
}

fn connected_mode_survives(node: &Node) {
    std::fs::write("/sys/class/net/ib1/mode", "connected\n").unwrap();
    node.ip("link set ib1 mtu 8192");
    unchanged(node, || {
        let conf = whole_link(node, "ib1");
        let pod = node.pod();
        pod.attach(&conf, "net1");
        assert_eq!(pod.link("net1").mtu, 8192);
        pod.detach(&conf, "net1");
    });
    std::fs::write("/sys/class/net/ib1/mode", "datagram\n").unwrap();
    node.ip("link set ib1 mtu 4092");
}
