// SPDX-License-Identifier: Apache-2.0
//! Ports whose link or RDMA device a pod has.

use super::fixture::{FixturePort, record};
use super::{findings, row};
use crate::node::attachments::Attachments;
use crate::node::collect::recorded;
use crate::node::output;
use crate::output::{Outcome, Output};
use cni_ipoib::journal::Written;
use common::cni::Attachment;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap()
        .trim()
        .to_owned()
}

/// The RDMA device of `port`.
fn grant(port: &FixturePort, netns: &Value) -> Value {
    let n = port.number;
    json!({
        "device": {
            "name": format!("mlx5_{n}"), "index": n, "node_guid": format!("0000:0000:0000:00{n:02x}"),
            "pci": format!("0000:{n:02x}:00.0"), "path": null,
        },
        "port": 1, "link_layer": "InfiniBand", "netns": netns,
    })
}

/// The state on the host of the link of `port`.
fn link(port: &FixturePort, boot: &str) -> Value {
    let n = port.number;
    let guid = (!port.ethernet).then(|| format!("0000:0000:0000:00{n:02x}"));
    json!({
        "boot": boot, "name": format!("link{n}"), "altnames": [], "alias": null, "group": 0, "address": "", "mtu": 2044,
        "hardware": {
            "device": null, "path": format!("/sys/devices/pci0000:{n:02x}/0000:{n:02x}:00.0"), "portGuid": guid,
            "address": "",
        },
        "up": true, "addrGenMode": null, "ipoib": null, "carried": [], "sysctls": {},
    })
}

/// The journal entry of `net1` in container `c-N` of pod `ml/trainer-N`.
fn entry(n: u8, device: &Value, rdma: &Value) -> Written {
    let intent = json!({
        "netns": "/run/netns/x", "netns_id": [4, n], "master": format!("link{n}"), "ipam": null,
        "pod": { "namespace": "ml", "name": format!("trainer-{n}"), "uid": "u" }, "device": device, "rdma": rdma,
    });
    Written {
        network: "rail0".to_owned(),
        attachment: Attachment {
            container_id: format!("c-{n}").parse().unwrap(),
            ifname: "net1".parse().unwrap(),
        },
        intent: serde_json::from_value(intent).unwrap(),
    }
}

/// What `rdmanet node` shows if pods have the links of `gone`, with these journal entries.
fn node(ports: &[FixturePort], gone: &[FixturePort], entries: &[Written], lives: bool) -> Output {
    let directory = record(ports, &[], "");
    let address = directory.path().join("address.json");
    let mut links: Vec<Value> = serde_json::from_slice(&fs::read(&address).unwrap()).unwrap();
    links.retain(|link| gone.iter().all(|port| link["ifindex"] != json!(10 + port.number)));
    fs::write(address, json!(links).to_string()).unwrap();
    let attachments = Attachments::of(entries, &BTreeMap::new(), |_| lives);
    output(&recorded(directory.path(), &attachments).unwrap(), false)
}

const SHARED: &str = "shared";

fn exclusive() -> Value {
    json!({ "exclusive": { "rename": null } })
}

/// The pod of `port` has its link.
fn whole_link(port: &FixturePort, boot: &str) -> Written {
    entry(port.number, &link(port, boot), &grant(port, &json!(SHARED)))
}

#[test]
fn a_port_whose_link_is_in_a_pod_names_the_pod_and_is_no_fault() {
    for make in [FixturePort::infiniband, FixturePort::ethernet] {
        let ports = [make(1, 100), make(2, 100)];
        let answer = node(&ports, &ports[1..], &[whole_link(&ports[1], &boot())], true);
        assert_eq!(row(&answer, "mlx5_2/1").last(), Some(&"no: in pod ml/trainer-2"));
        assert!(
            row(&answer, "mlx5_2/1").contains(&"1 attachment"),
            "{}",
            answer.text
        );
        let port = &answer.json["ports"][1];
        assert_eq!(port["usedBy"][0]["containerId"], "c-2");
        assert_eq!(port["usedBy"][0]["kind"], "attachment");
        assert_eq!(
            port["forPods"],
            json!({ "usable": false, "why": "in pod ml/trainer-2" })
        );
        assert_eq!(answer.json["findings"], json!([]), "{}", answer.text);
        // The other pod has the other link: no link is left for a third pod.
        let entries = [whole_link(&ports[0], &boot()), whole_link(&ports[1], &boot())];
        let answer = node(&ports, &ports, &entries, true);
        assert_eq!(answer.json["findings"], json!([]), "{}", answer.text);
        assert_eq!(answer.outcome, Outcome::Fine);
    }
}

/// The table of a port has the addresses of the node and of the pods, as the kernel's drivers list them.
#[test]
fn a_port_with_addresses_of_several_pods_names_the_one_that_nccl_takes() {
    let port = FixturePort::ethernet(1, 100);
    let shown = |mode: &str, pods: u8, addresses: &[&str]| {
        let mut sysfs = format!("module/ib_core/parameters/netns_mode = {mode}\n");
        for (at, address) in addresses.iter().enumerate() {
            let table = "class/infiniband/mlx5_1/ports/1";
            let index = 3 + 2 * at;
            let lines = [
                ("gids", *address),
                ("gid_attrs/types", "RoCE v2"),
                ("gid_attrs/ndevs", "ens1"),
            ];
            for (file, value) in lines {
                let _ = writeln!(sysfs, "{table}/{file}/{index} = {value}");
            }
        }
        let directory = record(std::slice::from_ref(&port), &[], &sysfs);
        let of_pod = |n: u8| {
            let mut entry = entry(n, &Value::Null, &Value::Null);
            entry.intent.master = "ens1".to_owned();
            entry
        };
        let entries: Vec<Written> = (1..=pods).map(of_pod).collect();
        let attachments = Attachments::of(&entries, &BTreeMap::new(), |_| true);
        let answer = output(&recorded(directory.path(), &attachments).unwrap(), false);
        findings(&answer, "info")
    };
    let of_node = "0000:0000:0000:0000:0000:ffff:0a14:0015";
    let of_pod = "0000:0000:0000:0000:0000:ffff:0a07:0002";
    let found = shown("Y", 1, &[of_node, of_pod]);
    assert!(
        found[0].contains("NCCL sends from 10.20.0.21 (index 3) in each pod"),
        "{found:?}"
    );
    for (mode, pods, addresses) in [
        ("N", 1, [of_node, of_pod].as_slice()),
        ("Y", 0, &[of_node, of_pod]),
        ("Y", 1, &[of_pod, of_pod]),
        ("Y", 1, &[of_pod]),
    ] {
        assert_eq!(
            shown(mode, pods, addresses),
            [""; 0],
            "{mode} {pods} {addresses:?}"
        );
    }
}

#[test]
fn a_container_is_named_if_its_pod_is_not_known() {
    let ports = [FixturePort::infiniband(1, 100)];
    let mut entry = whole_link(&ports[0], &boot());
    entry.intent.pod = None;
    let answer = node(&ports, &ports, &[entry], true);
    assert_eq!(row(&answer, "mlx5_1/1").last(), Some(&"no: in container c-1"));
}

/// What cable and subnet manager do is no consequence of the move.
#[test]
fn a_port_in_a_pod_that_lost_its_cable_is_reported() {
    let ports = [FixturePort::infiniband(1, 100), FixturePort::infiniband(2, 100)];
    let directory = record(&ports[..1], &[], "");
    let sysfs = directory.path().join("sysfs");
    let text = fs::read_to_string(&sysfs)
        .unwrap()
        .replace("4: ACTIVE", "1: DOWN");
    fs::write(&sysfs, text.replace("5: LinkUp", "2: Polling")).unwrap();
    fs::write(directory.path().join("address.json"), "[]").unwrap();
    let attachments = Attachments::of(&[whole_link(&ports[0], &boot())], &BTreeMap::new(), |_| true);
    let answer = output(&recorded(directory.path(), &attachments).unwrap(), false);
    assert!(
        findings(&answer, "warn")[0].starts_with("mlx5_1/1: is down and polls"),
        "{}",
        answer.text
    );
}

#[test]
fn the_entry_of_a_dead_pod_or_of_an_earlier_boot_hides_no_fault() {
    let ports = [FixturePort::infiniband(1, 100), FixturePort::infiniband(2, 100)];
    let sentence = "mlx5_2/1: is Active and has no IPoIB link";
    for (boot, lives) in [(boot(), false), ("earlier".to_owned(), true)] {
        let answer = node(&ports, &ports[1..], &[whole_link(&ports[1], &boot)], lives);
        assert!(
            findings(&answer, "fail")[0].starts_with(sentence),
            "{}",
            answer.text
        );
    }
}

/// GUIDs are copied between virtual functions.
#[test]
fn the_pod_of_another_port_hides_no_fault() {
    let ports = [FixturePort::infiniband(1, 100), FixturePort::infiniband(2, 100)];
    let same_guid = json!("0000:0000:0000:0002");
    let mut device = link(&ports[0], &boot());
    device["hardware"]["portGuid"] = same_guid;
    let other_function = entry(1, &device, &Value::Null);
    let mut device = link(&ports[1], &boot());
    device["hardware"]["portGuid"] = json!("0000:0000:0000:0001");
    let other_guid = entry(2, &device, &Value::Null);
    for other in [other_function, other_guid] {
        let answer = node(&ports, &ports[1..], &[other], true);
        assert_eq!(findings(&answer, "fail").len(), 1, "{}", answer.text);
    }
}

/// In exclusive mode the device of a pod is not in the host's sysfs.
#[test]
fn an_rdma_device_that_is_in_a_pod_is_named_and_is_no_fault() {
    let ports = [FixturePort::infiniband(1, 100), FixturePort::infiniband(2, 100)];
    let moved = |port: &FixturePort| entry(port.number, &link(port, &boot()), &grant(port, &exclusive()));
    let answer = node(&ports[..1], &[], &[moved(&ports[1])], true);
    assert!(
        answer.text.contains("2 RDMA devices, 1 of them in pods"),
        "{}",
        answer.text
    );
    let sentence =
        "mlx5_2/1: is in pod ml/trainer-2 with its link link2 (network rail0), so the host does not see it";
    assert_eq!(findings(&answer, "info"), [sentence]);
    assert_eq!(answer.outcome, Outcome::Fine);
    let hidden = &answer.json["devicesInPods"][0];
    assert_eq!(
        (&hidden["hca"], &hidden["netdev"]),
        (&json!("mlx5_2"), &json!("link2"))
    );
    assert_eq!(hidden["usedBy"][0]["pod"], "ml/trainer-2");
    // Pods have every device.
    let all = [moved(&ports[0]), moved(&ports[1])];
    let answer = node(&[], &[], &all, true);
    assert!(!answer.text.contains("has no RDMA device"), "{}", answer.text);
    assert_eq!(
        (findings(&answer, "info").len(), answer.outcome),
        (2, Outcome::Fine)
    );
    // Neither pod lives.
    let answer = node(&[], &[], &all, false);
    assert!(
        findings(&answer, "info")[0].contains("has no RDMA device"),
        "{}",
        answer.text
    );
}

#[test]
fn an_rdma_device_that_the_host_sees_again_is_not_shown_in_a_pod() {
    let ports = [FixturePort::infiniband(1, 100)];
    let moved = entry(1, &Value::Null, &grant(&ports[0], &exclusive()));
    let answer = node(&ports, &[], &[moved], true);
    assert_eq!(answer.json["devicesInPods"], json!([]));
    assert_eq!(row(&answer, "mlx5_1/1").last(), Some(&"yes"));
}

/// The journal entry of a pod with a child of the link `ib1`, whose index was `parent`. The child has the index 11 in the pod.
fn with_child(n: u8, parent: Option<u32>) -> Written {
    let mut entry = entry(n, &Value::Null, &Value::Null);
    entry.intent.master = "ib1".to_owned();
    let made = json!([{ "index": 11, "kind": "ipoib", "parent": parent, "outside": false, "address": "" }]);
    entry.intent.made = serde_json::from_value(made).unwrap();
    entry
}

/// The kernel deletes the children of a link when its driver is unloaded or its adapter is lost, and Multus sends no CHECK.
#[test]
fn a_pod_whose_child_lost_its_parent_is_reported() {
    let ports = [FixturePort::infiniband(1, 100), FixturePort::infiniband(2, 100)];
    let lost = |gone: &[FixturePort], entry: Written, lives: bool| {
        let answer = node(&ports, gone, &[entry], lives);
        let failures = findings(&answer, "fail").into_iter();
        failures
            .filter(|text| text.starts_with("ib1: a parent"))
            .collect::<Vec<_>>()
    };
    assert_eq!(lost(&[], with_child(1, Some(11)), true), [""; 0], "it is there");
    assert_eq!(
        lost(&[], with_child(1, Some(7)), false),
        [""; 0],
        "the pod is gone"
    );
    assert_eq!(
        lost(&[], with_child(1, None), true),
        [""; 0],
        "the kernel reports no parent that has the child's own index"
    );
    let created_anew = lost(&[], with_child(1, Some(7)), true);
    assert!(
        created_anew[0].ends_with(": net1 of pod ml/trainer-1"),
        "{created_anew:?}"
    );
    assert_eq!(lost(&ports, with_child(1, Some(11)), true).len(), 1);
    assert_eq!(lost(&ports, with_child(1, None), true).len(), 1);
}

/// `linkInContainer`: the index of such a parent is one of the pod.
#[test]
fn a_child_of_an_interface_of_its_pod_is_not_lost() {
    let port = FixturePort::infiniband(1, 100);
    let whole = whole_link(&port, &boot());
    for kind in ["ipoib", "macvlan"] {
        let mut child = with_child(1, Some(7));
        child.attachment.ifname = "net2".parse().unwrap();
        child.intent.master = "net1".to_owned();
        child.intent.made[0].kind = kind.to_owned();
        let ports = std::slice::from_ref(&port);
        let answer = node(ports, ports, &[whole.clone(), child], true);
        assert_eq!(findings(&answer, "fail"), [""; 0], "{kind}");
    }
}

#[test]
fn a_node_that_lost_all_its_adapters_names_the_pods() {
    let entries = [with_child(1, Some(11)), with_child(2, Some(11))];
    let answer = node(&[], &[], &entries, true);
    let failures = findings(&answer, "fail");
    assert!(
        failures[0].ends_with("net1 of pod ml/trainer-1, net1 of pod ml/trainer-2"),
        "{failures:?}"
    );
    assert_eq!(answer.outcome, Outcome::Found, "{}", answer.text);
}
