// SPDX-License-Identifier: Apache-2.0
//! The RDMA device of a bond: its LAG device, or else the active port's.

use super::super::super::find;
use super::read;
use crate::model::{ModelKernel, Node, active_backup, bonded, ethernet, of_kind, port_of};
use common::netlink::{BondMode, FailOverMac, Link, LinkInfo};

/// `bond0` of `eth1` and `eth2`. The bond is the last link.
fn bond_of_two(info: LinkInfo) -> Vec<Link> {
    let bond = Link {
        info,
        ..of_kind("bond", ethernet(9, "bond0"))
    };
    vec![
        port_of(9, ethernet(4, "eth1")),
        port_of(9, ethernet(5, "eth2")),
        bond,
    ]
}

fn lacp() -> LinkInfo {
    LinkInfo::Bond {
        mode: BondMode::Ieee8023ad,
        active: None,
        miimon: 100,
        fail_over_mac: FailOverMac::None,
    }
}

fn device(node: &Node, links: Vec<Link>) -> String {
    let master = links.last().unwrap().clone();
    let facts = read(node, &ModelKernel::new(links), &master);
    find(&facts, None).unwrap().seen.device.name.clone()
}

#[test]
fn a_lag_bond_has_one_device_whichever_port_is_active() {
    let node = Node::bare();
    node.device("mlx5_bond_0", "0000:3b:00.0")
        .port("mlx5_bond_0", 1, "Ethernet", "4: ACTIVE")
        .netdev("eth1", 4, "0000:3b:00.0")
        .netdev("eth2", 5, "0000:3b:00.1");
    for info in [active_backup(Some(4)), active_backup(Some(5)), lacp()] {
        assert_eq!(device(&node, bond_of_two(info)), "mlx5_bond_0");
    }
}

#[test]
fn any_other_bond_has_its_active_ports_device() {
    let node = Node::bare();
    for (number, link) in [(0, "eth1"), (1, "eth2")] {
        let (device, pci) = (format!("mlx5_{number}"), format!("0000:3b:00.{number}"));
        node.device(&device, &pci)
            .port(&device, 1, "Ethernet", "4: ACTIVE")
            .netdev(link, 4 + number, &pci);
    }
    assert_eq!(device(&node, bond_of_two(active_backup(Some(4)))), "mlx5_0");
    assert_eq!(device(&node, bond_of_two(active_backup(Some(5)))), "mlx5_1");
    assert_eq!(
        device(&node, bond_of_two(lacp())),
        "mlx5_0",
        "all are active: the first"
    );
}

#[test]
fn a_bond_of_infiniband_ports_has_its_active_ports_device() {
    for (active, name) in [(4, "mlx5_0"), (5, "mlx5_1")] {
        let mut links = bonded();
        links[2].info = active_backup(Some(active));
        // In the model both ports have one GUID, so the bond's address identifies neither.
        links[2].address = common::netlink::HwAddress::default();
        assert_eq!(device(&Node::with_ib0_and_ib1(), links), name);
    }
}
