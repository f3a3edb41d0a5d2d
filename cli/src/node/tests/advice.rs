// SPDX-License-Identifier: Apache-2.0
//! Which links and RDMA devices `USE` names.

use super::fixture::{FixturePort, node, record};
use super::{findings, look};
use serde_json::{Value, json};

/// The text in one line.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn says(text: &str, sentence: &str) {
    let words = words(text);
    assert!(words.contains(sentence), "no {sentence:?} in: {words}");
}

#[test]
fn slower_links_are_left_out_of_the_selector_and_of_nccl() {
    let ports = [
        FixturePort::ethernet(1, 400),
        FixturePort::ethernet(2, 25),
        FixturePort::ethernet(3, 400),
    ];
    let answer = node(&ports);
    says(
        &answer.text,
        r#""master": {"linkLayer": "Ethernet", "rateMin": 400}"#,
    );
    says(&answer.text, "NCCL_IB_HCA==mlx5_1:1,mlx5_3:1 the selector");
    says(&answer.text, "left out: ens2 (mlx5_2/1, 25 Gb/s) is slower");
    let masters = answer.json["use"]["masters"].as_array().unwrap();
    let left_out: Vec<_> = masters
        .iter()
        .map(|one| (&one["name"], &one["leftOut"]))
        .collect();
    assert_eq!(
        left_out,
        [
            (&json!("ens1"), &Value::Null),
            (&json!("ens3"), &Value::Null),
            (&json!("ens2"), &json!("is slower"))
        ]
    );
    assert_eq!(masters[0]["hcas"], json!(["mlx5_1:1"]));
}

#[test]
fn an_infiniband_link_of_another_subnet_is_left_out() {
    let other = FixturePort {
        prefix: "fe80:0000:0000:0001",
        ..FixturePort::infiniband(2, 200)
    };
    let answer = node(&[
        FixturePort::infiniband(1, 200),
        other,
        FixturePort::infiniband(3, 200),
    ]);
    says(
        &answer.text,
        r#""master": {"linkLayer": "InfiniBand", "subnetPrefix": "fe80:0000:0000:0000"}"#,
    );
    says(&answer.text, "NCCL_IB_HCA==mlx5_1:1,mlx5_3:1 the selector");
    says(
        &answer.text,
        "left out: ib2 (mlx5_2/1, 200 Gb/s) is in subnet fe80:0000:0000:0001",
    );
}

#[test]
fn an_address_of_the_node_on_a_link_is_named() {
    let addressed = FixturePort {
        address: Some("10.0.0.7"),
        ..FixturePort::ethernet(1, 100)
    };
    let answer = node(&[addressed, FixturePort::ethernet(2, 100)]);
    says(
        &answer.text,
        "2 Ethernet links that are up, are no ports of a bond or bridge, and have no default route of the node",
    );
    says(&answer.text, "the node itself has an address on ens1 (10.0.0.7)");
    assert_eq!(answer.json["use"]["masters"][0]["addresses"], json!(["10.0.0.7"]));
    let plain = node(&[FixturePort::ethernet(1, 100)]);
    assert!(!plain.text.contains("the node itself"), "{}", plain.text);
}

/// A bond of `ib1` and `ib2` over the latter.
fn bonded(arp_interval: Option<u32>) -> crate::output::Output {
    let ports = [1, 2].map(|number| FixturePort {
        bond: Some("bond0"),
        ..FixturePort::infiniband(number, 100)
    });
    let bond = json!({
        "ifindex": 9, "ifname": "bond0", "link_type": "infiniband", "flags": ["UP", "LOWER_UP"],
        "address": "00:00:10:49:fe:80:00:00:00:00:00:00:00:00:00:00:00:00:00:02",
        "linkinfo": {"info_kind": "bond", "info_data": {"mode": "active-backup", "active_slave": "ib2", "miimon": 0}},
    });
    let file = "class/net/bond0/bonding/arp_interval";
    let sysfs = arp_interval.map(|interval| format!("{file} = {interval}\n"));
    look(record(&ports, &[bond], &sysfs.unwrap_or_default()).path())
}

#[test]
fn nccl_gets_the_rdma_devices_of_all_ports_of_an_infiniband_bond() {
    let answer = bonded(Some(0));
    assert_eq!(
        answer.json["use"]["masters"][0]["name"], "bond0",
        "{}",
        answer.text
    );
    let found: Vec<&str> = answer.text.matches("NCCL_IB_HCA==mlx5_1:1,mlx5_2:1\n").collect();
    assert_eq!(found.len(), 2, "{}", answer.text);
}

#[test]
fn a_bond_is_at_fault_only_if_it_monitors_its_ports_neither_by_carrier_nor_by_arp() {
    let sentence = "bond0: monitors its ports neither by carrier (miimon 0) nor by ARP (arp_interval 0)";
    assert!(findings(&bonded(Some(0)), "fail")[0].starts_with(sentence));
    let by_arp = bonded(Some(100));
    assert_eq!(findings(&by_arp, "fail"), Vec::<String>::new());
    assert_eq!(findings(&by_arp, "warn"), Vec::<String>::new());
    let unknown = bonded(None);
    assert_eq!(findings(&unknown, "fail"), Vec::<String>::new());
    assert!(findings(&unknown, "warn")[0].contains("it fails over only if it has an arp_interval"));
}
