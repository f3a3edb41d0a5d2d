// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::model::{bonded, port_of};
use common::netlink::BondMode;

/// An Ethernet bond `bond0` of `eth1` and `eth2`. The second port is active.
fn ethernet_bond() -> Vec<Link> {
    let bond = Link {
        info: LinkInfo::Bond {
            mode: BondMode::ActiveBackup,
            active: Some(5),
            miimon: 100,
            fail_over_mac: common::netlink::FailOverMac::None,
        },
        ..of_kind("bond", ethernet(9, "bond0"))
    };
    vec![
        port_of(9, ethernet(4, "eth1")),
        port_of(9, ethernet(5, "eth2")),
        bond,
    ]
}

#[test]
fn a_bond_is_read_with_its_ports_and_their_hardware() {
    let mut links = bonded();
    links.push(ipoib(6, "ib2", 0xffff));
    let node = Node::with_ib0_and_ib1();
    let host = seen(&node, links.clone(), json!({"master": "bond0"})).unwrap();
    let bond = host.bond.unwrap();
    assert_eq!((bond.mode, bond.active), (Some(BondMode::ActiveBackup), Some(4)));
    assert_eq!(bond.names(), ["ib0", "ib1"]);
    let devices = bond
        .ports
        .iter()
        .map(|port| port.port.as_ref().unwrap().device.as_str());
    assert_eq!(devices.collect::<Vec<_>>(), ["mlx5_0", "mlx5_1"]);
    assert_eq!(bond.active().unwrap().link.name, "ib0");
    assert_eq!((host.port, host.enslaved_to), (None, None));
    let host = seen(&node, links, json!({"master": "ib1"})).unwrap();
    let upper = host.enslaved_to.map(|upper| upper.name);
    assert_eq!((host.bond, upper.as_deref()), (None, Some("bond0")));
}

#[test]
fn the_port_of_a_bond_that_is_a_child_itself_has_its_root() {
    let mut links = bonded();
    links[1] = child_of(6, port_of(9, ipoib(5, "ib2.8001", 0x8001)));
    links.push(ipoib(6, "ib2", 0xffff));
    let host = seen(&Node::bare(), links, json!({"master": "bond0"})).unwrap();
    let bond = host.bond.unwrap();
    assert_eq!((bond.ports[1].link.index, bond.ports[1].root.index), (5, 6));
}

#[test]
fn an_ethernet_bond_has_the_pci_address_of_its_active_port() {
    let node = Node::bare();
    node.netdev("eth1", 4, "0000:3b:00.0")
        .netdev("eth2", 5, "0000:3b:00.1");
    let pci = |node: &Node| {
        let host = seen(node, ethernet_bond(), json!({"master": "bond0"})).unwrap();
        (host.port, host.pci.map(|pci| pci.to_string()))
    };
    assert_eq!(pci(&node), (None, Some("0000:3b:00.1".to_owned())));
    assert_eq!(pci(&Node::bare()), (None, None));
}

#[test]
fn a_bond_in_the_pod_is_not_looked_up_on_the_node() {
    let mut kernel = ModelKernel::new(Vec::new());
    kernel.set().state.pod = ethernet_bond();
    let config = config(json!({"master": "bond0", "linkInContainer": true}));
    let host = observed(&mut kernel, &Node::with_ib0().sysfs(), &config).unwrap();
    assert_eq!((host.port, host.pci), (None, None));
    assert_eq!(host.bond.unwrap().names(), ["eth1", "eth2"]);
}
