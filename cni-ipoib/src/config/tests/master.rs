// SPDX-License-Identifier: Apache-2.0
//! `master` as a description or a list.

use super::*;
use crate::config::{Needs, Preference, Selector};
use common::netlink::LinkLayer;

fn preferred(keys: Value) -> Preferences {
    match read(keys.clone()).master {
        Master::Preferred(preferences) => preferences,
        other @ Master::Resolved(_) => panic!("{keys}: {other:?}"),
    }
}

fn described(master: Value) -> Selector {
    match preferred(json!({"master": master})).choices.remove(0) {
        Preference::Described(selector) => selector,
        Preference::Named(name) => panic!("{name} is a name"),
    }
}

#[test]
fn every_key_of_a_description_is_read() {
    let all = json!({
        "linkLayer": "InfiniBand", "state": "any", "rateMin": 200, "rdmaDevice": "mlx5_*", "pciAddress": "0000:1?:00.[01]",
        "ifName": "ib*", "pkey": "0x8001", "subnetPrefix": "fec0:0000:0000:0001", "numaNode": 1,
    });
    let expected = Selector {
        layer: Some(LinkLayer::Infiniband),
        any_state: true,
        rate_min: Some(200),
        rdma_device: "mlx5_*".parse().ok(),
        pci_address: "0000:1?:00.[01]".parse().ok(),
        if_name: "ib*".parse().ok(),
        pkey: Some(Pkey(0x8001)),
        subnet_prefix: Some(0xfec0_0000_0000_0001),
        numa_node: Some(1),
    };
    let read = described(all);
    assert_eq!(read, expected);
    assert_eq!(
        read.to_string(),
        "{linkLayer: InfiniBand, state: any, rateMin: 200, rdmaDevice: mlx5_*, pciAddress: 0000:1?:00.[01], \
         ifName: ib*, pkey: 0x8001, subnetPrefix: fec0:0000:0000:0001, numaNode: 1}"
    );
}

#[test]
fn empty_values_of_a_description_require_nothing() {
    let empty = json!({
        "linkLayer": "", "state": null, "rateMin": 0, "rdmaDevice": "", "pciAddress": null, "ifName": "", "pkey": null,
        "subnetPrefix": "", "numaNode": null,
    });
    assert_eq!(described(empty.clone()), Selector::default());
    assert_eq!(described(json!({})), Selector::default());
    assert_eq!(
        preferred(json!({"master": [empty]})),
        preferred(json!({"master": {}})),
        "in a list, too"
    );
}

#[test]
fn other_spellings_of_a_description_are_equal() {
    assert_eq!(
        described(json!({"linkLayer": "ETHERNET"})),
        described(json!({"linkLayer": "Ethernet"}))
    );
    assert_eq!(described(json!({"state": "active"})), Selector::default());
    assert_eq!(
        described(json!({"pkey": 0x8001})),
        described(json!({"pkey": "0x8001"}))
    );
    for prefix in ["fec0:0:0:1::", "fec0:0000:0000:0001", "fe:c0:00:00:00:00:00:01"] {
        assert_eq!(
            described(json!({"subnetPrefix": prefix})).subnet_prefix,
            Some(0xfec0_0000_0000_0001),
            "{prefix}"
        );
    }
}

#[test]
fn a_list_keeps_its_order_and_a_name_alone_is_no_list() {
    let list = preferred(json!({"master": ["ib0", {"numaNode": 0}, "ib1"]}));
    let names: Vec<String> = list.choices.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["ib0", "{numaNode: 0}", "ib1"]);
    assert_eq!(
        read(json!({"master": "ib0"})).master,
        Master::Resolved(ResolvedMaster::Named("ib0".to_owned()))
    );
}

#[test]
fn the_requirements_of_the_mode_apply_to_every_choice() {
    let needs = |keys: Value| {
        let mut keys = keys;
        keys["master"] = json!({});
        preferred(keys).needs
    };
    let layer = |layer| Needs {
        layer: Some(layer),
        ..Needs::default()
    };
    assert_eq!(needs(json!({})), Needs::default());
    assert_eq!(needs(json!({"mode": "ipoib"})), layer(LinkLayer::Infiniband));
    assert_eq!(needs(json!({"mode": "ipvlan"})), layer(LinkLayer::Ethernet));
    assert_eq!(
        needs(json!({"ipoibMode": "datagram"})),
        layer(LinkLayer::Infiniband)
    );
    let partition = Needs {
        pkey: Some(Pkey(0x8001)),
        ..layer(LinkLayer::Infiniband)
    };
    assert_eq!(needs(json!({"pkey": "0x8001"})), partition);
    let no_bond = Needs {
        no_bond: true,
        ..Needs::default()
    };
    assert_eq!(needs(json!({"bond": "refuse"})), no_bond);
    assert_eq!(needs(json!({"bond": "active"})), Needs::default());
    let unused = Needs {
        unused: true,
        ..layer(LinkLayer::Ethernet)
    };
    assert_eq!(needs(json!({"macvlanMode": "passthru"})), unused);
    assert_eq!(
        needs(json!({"macvlanMode": "private"})),
        layer(LinkLayer::Ethernet)
    );
}

#[test]
fn an_invalid_description_is_refused_by_its_key() {
    let pattern =
        "want a pattern such as \"mlx5_*\", with ? for one character, * for any, [0-3] for one of a set";
    let whole = "want a name, a description, or a list of these";
    let list = "want a list of names and descriptions";
    let prefix = "want the first 64 bits of the subnet's GIDs, such as \"fe80:0000:0000:0000\" or \"fe80::\"";
    let cases = [
        (json!(7), format!("master is 7, {whole}")),
        (json!([]), format!("master is [], {whole}")),
        (json!(true), format!("master is true, {whole}")),
        (json!([""]), format!("master is \"\", {list}")),
        (json!([["ib0"]]), format!("master is [\"ib0\"], {list}")),
        (json!([null]), format!("master is null, {list}")),
        (
            json!({"linkLayer": "IB"}),
            "master.linkLayer is \"IB\", want InfiniBand or Ethernet".to_owned(),
        ),
        (
            json!({"state": "up"}),
            "master.state is \"up\", want active or any".to_owned(),
        ),
        (
            json!({"rateMin": "200"}),
            "master.rateMin is \"200\", want Gbit/s, from 1".to_owned(),
        ),
        (
            json!({"rateMin": -1}),
            "master.rateMin is -1, want Gbit/s, from 1".to_owned(),
        ),
        (
            json!({"rdmaDevice": "mlx5_[0"}),
            format!("master.rdmaDevice is \"mlx5_[0\", {pattern}"),
        ),
        (
            json!({"pciAddress": 3}),
            format!("master.pciAddress is 3, {pattern}"),
        ),
        (
            json!({"ifName": "a***b"}),
            format!("master.ifName is \"a***b\", {pattern}"),
        ),
        (
            json!({"pkey": "8001"}),
            "master.pkey is \"8001\", want a partition key such as \"0x8001\", neither 0 nor 0x8000"
                .to_owned(),
        ),
        (
            json!({"subnetPrefix": "fe80::1"}),
            format!("master.subnetPrefix is \"fe80::1\", {prefix}"),
        ),
        (
            json!({"subnetPrefix": 5}),
            format!("master.subnetPrefix is 5, {prefix}"),
        ),
        (
            json!({"numaNode": 1.5}),
            "master.numaNode is 1.5, want a node's number, from 0".to_owned(),
        ),
        (
            json!({"ratemin": 5}),
            "unknown key master.ratemin (value 5); did you mean master.rateMin?".to_owned(),
        ),
        (
            json!(["ib0", {"name": "x"}]),
            "unknown key master.name (value \"x\"); did you mean master.ifName?".to_owned(),
        ),
    ];
    for (master, text) in cases {
        assert_eq!(refused(json!({"master": master})), (7, text), "{master}");
    }
}

#[test]
fn a_description_that_the_mode_contradicts_is_refused() {
    let text = "master.linkLayer is \"ethernet\", want the link layer of the mode: ipoib is InfiniBand, macvlan and ipvlan are Ethernet";
    for mut keys in [json!({"mode": "ipoib"}), json!({"pkey": "0x8001"})] {
        keys["master"] = json!([{"linkLayer": "ethernet"}]);
        assert_eq!(refused(keys), (7, text.to_owned()));
    }
}

#[test]
fn a_description_selects_only_links_of_the_node() {
    let text = "linkInContainer is true, want false, since lists and descriptions choose among the node's links; name the master";
    for master in [json!({}), json!(["ib0"])] {
        let keys = json!({"master": master, "linkInContainer": true});
        assert_eq!(refused(keys), (7, text.to_owned()));
    }
}

#[test]
fn a_device_plugins_choice_precedes_a_description_or_a_list() {
    let master = |keys| read(keys).master;
    for written in [json!({"numaNode": 0}), json!(["ib0", {}])] {
        let pci = json!({"master": written, "deviceID": "0000:3b:00.1"});
        assert_eq!(
            master(pci),
            Master::Resolved(ResolvedMaster::Device("0000:3b:00.1".to_owned()))
        );
        let number = json!({"master": written, "deviceID": "17"});
        assert!(
            matches!(master(number), Master::Preferred(_)),
            "an id of shared devices names none"
        );
    }
}

#[test]
fn under_a_peers_name_a_description_is_checked_too() {
    let (code, text) = refused_as("ipoib", json!({"master": {"rdmadevice": "x"}}), "");
    assert_eq!(code, 7);
    assert!(text.contains("did you mean master.rdmaDevice?"), "{text}");
}
