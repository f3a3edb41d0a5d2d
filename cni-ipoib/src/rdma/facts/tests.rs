// SPDX-License-Identifier: Apache-2.0
mod bond;

use super::super::observe;
use super::*;
use crate::model::{Fault, ModelKernel, Node, active_backup, bond, ethernet, ipoib, of_kind, port_of};

const GUID: u64 = 0x248a_0703_00b4_0c5e;

/// `mlx5_0` with `ib0`, and `mlx5_1` with `eth1`, each on its own function.
fn node() -> (Node, ModelKernel) {
    let node = Node::with_ib0();
    node.device("mlx5_1", "0000:3b:00.1")
        .port("mlx5_1", 1, "Ethernet", "4: ACTIVE")
        .netdev("eth1", 6, "0000:3b:00.1");
    let kernel = ModelKernel::new(vec![ipoib(4, "ib0", 0xffff), ethernet(6, "eth1")]);
    let rdma = &mut kernel.set().state.rdma;
    rdma.device(1, "mlx5_0", GUID, None);
    rdma.device(2, "mlx5_1", GUID + 1, Some((6, "eth1")));
    (node, kernel.clone())
}

fn read(node: &Node, kernel: &ModelKernel, link: &Link) -> Facts {
    observe(&mut kernel.clone(), &node.sysfs(), Side::Host, link).unwrap()
}

fn names(facts: &Facts) -> Vec<&str> {
    facts
        .devices
        .iter()
        .map(|seen| seen.device.name.as_str())
        .collect()
}

fn log(kernel: &ModelKernel) -> Vec<String> {
    std::mem::take(&mut kernel.set().log)
}

#[test]
fn a_node_without_rdma_gets_no_request() {
    let kernel = ModelKernel::new(vec![ethernet(2, "eth0")]);
    let facts = read(&Node::bare(), &kernel, &ethernet(2, "eth0"));
    assert_eq!((facts.devices, facts.lowers), (vec![], vec![]));
    assert_eq!(log(&kernel), Vec::<String>::new());
}

#[test]
fn only_the_devices_of_the_links_own_function_are_read() {
    let (node, kernel) = node();
    let facts = read(&node, &kernel, &ipoib(4, "ib0", 0xffff));
    assert_eq!((names(&facts), facts.mode), (vec!["mlx5_0"], NetnsMode::Shared));
    assert_eq!(facts.devices[0].index, None);
    assert_eq!(log(&kernel), ["read the RDMA mode"]);
}

#[test]
fn netlink_reports_the_ethernet_link_of_a_port() {
    let (node, kernel) = node();
    let facts = read(&node, &kernel, &ethernet(6, "eth1"));
    assert_eq!(names(&facts), ["mlx5_1"]);
    assert_eq!(
        (facts.devices[0].index, &facts.devices[0].netdevs),
        (Some(2), &vec![(1, 6)])
    );
    let asked = [
        "read the RDMA mode",
        "list RDMA devices in Host",
        "list ports of RDMA device 2 in Host",
    ];
    assert_eq!(log(&kernel), asked);
}

#[test]
fn in_exclusive_mode_the_device_index_is_read_too() {
    let (node, kernel) = node();
    kernel.set().state.rdma.mode = NetnsMode::Exclusive;
    let facts = read(&node, &kernel, &ipoib(4, "ib0", 0xffff));
    assert_eq!(
        (facts.mode, facts.devices[0].index),
        (NetnsMode::Exclusive, Some(1))
    );
}

#[test]
fn a_device_that_netlink_does_not_list_is_read_again_and_has_no_index() {
    let (node, kernel) = node();
    kernel.set().state.rdma.mode = NetnsMode::Exclusive;
    kernel.set().state.rdma.devices[0].1.name = "ibp59s0".to_owned();
    let facts = read(&node, &kernel, &ipoib(4, "ib0", 0xffff));
    assert_eq!(facts.devices[0].index, None);
    let listed = log(&kernel)
        .iter()
        .filter(|request| request.as_str() == "list RDMA devices in Host")
        .count();
    assert_eq!(listed, READS);
}

#[test]
fn the_links_below_a_link_are_read_down_to_the_ports_of_a_bond() {
    let (node, kernel) = node();
    let vlan = Link {
        parent: Some(9),
        ..of_kind("vlan", ethernet(10, "bond0.7"))
    };
    let port = |index, name: &str, carrier| Link {
        master: Some(9),
        carrier,
        ..ethernet(index, name)
    };
    kernel.set().state.host = vec![
        vlan.clone(),
        bond(9, "bond0"),
        port(2, "eth0", false),
        port(6, "eth1", true),
    ];
    let facts = read(&node, &kernel, &vlan);
    let lowers: Vec<&str> = facts
        .lowers
        .iter()
        .map(|lower| lower.link.name.as_str())
        .collect();
    assert_eq!(
        lowers,
        ["bond0.7", "bond0", "eth1", "eth0"],
        "the port with carrier comes first"
    );
    assert_eq!(
        super::super::find(&facts, None).unwrap().seen.device.name,
        "mlx5_1"
    );
}

#[test]
fn the_active_port_of_a_bond_comes_before_others_that_carry_too() {
    let (node, kernel) = node();
    let master = Link {
        info: active_backup(Some(6)),
        ..of_kind("bond", ethernet(9, "bond0"))
    };
    let port = |index, name: &str| port_of(9, ethernet(index, name));
    kernel.set().state.host = vec![master.clone(), port(2, "eth0"), port(6, "eth1")];
    let facts = read(&node, &kernel, &master);
    let lowers = facts.lowers.iter().map(|lower| lower.link.name.as_str());
    assert_eq!(lowers.collect::<Vec<_>>(), ["bond0", "eth1", "eth0"]);
}

#[test]
fn a_loop_of_parents_is_detected() {
    let (node, kernel) = node();
    let loops = |index, name: &str, parent| Link {
        parent: Some(parent),
        ..ethernet(index, name)
    };
    kernel.set().state.host = vec![loops(2, "a", 3), loops(3, "b", 2)];
    assert_eq!(read(&node, &kernel, &loops(2, "a", 3)).lowers.len(), 2);
}

#[test]
fn a_parent_in_another_namespace_is_not_read() {
    let (node, kernel) = node();
    let child = Link {
        parent: Some(6),
        parent_netnsid: Some(0),
        ..of_kind("macvlan", ethernet(2, "m0"))
    };
    assert_eq!(read(&node, &kernel, &child).lowers.len(), 1);
}

#[test]
fn gid_tables_are_read_only_as_a_last_resort() {
    let (node, kernel) = node();
    node.write("class/infiniband/rxe0/ports/1/link_layer", "Ethernet");
    node.write("class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0", "dummy0");
    node.write("class/infiniband/mlx5_1/ports/1/gid_attrs/ndevs/0", "eth1");
    let facts = read(&node, &kernel, &ethernet(7, "dummy0"));
    let found = super::super::find(&facts, None).unwrap();
    assert_eq!(found.seen.device.name, "rxe0");
    let facts = read(&node, &kernel, &ethernet(6, "eth1"));
    assert_eq!(facts.devices[0].gid_links, [], "netlink reported it already");
}

#[test]
fn without_a_request_only_the_links_own_driver_is_read() {
    let (node, kernel) = node();
    node.write("class/infiniband/rxe0/ports/1/link_layer", "Ethernet");
    node.write("class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0", "eth7");
    kernel.set().state.rdma.device(3, "rxe0", 8, Some((6, "eth1")));
    let link = ethernet(7, "eth7");
    let facts = Facts::read_near(&mut kernel.clone(), &node.sysfs(), Side::Host, &link).unwrap();
    assert_eq!(names(&facts), ["rxe0"], "those of software may be on any link");
    assert_eq!(facts.devices[0].gid_links, []);
    let asked = [
        "read the RDMA mode",
        "list RDMA devices in Host",
        "list ports of RDMA device 3 in Host",
    ];
    assert_eq!(log(&kernel), asked);
}

#[test]
fn a_refused_request_is_reported_with_its_step() {
    let error_of = |fault| {
        let (node, kernel) = node();
        kernel.fail(fault);
        let link = Link {
            parent: Some(2),
            ..ethernet(6, "eth1")
        };
        let error = observe(&mut kernel.clone(), &node.sysfs(), Side::Host, &link).unwrap_err();
        error.to_string()
    };
    let steps = [0, 1, 2, 3].map(|number| error_of(Fault::Refused(number)));
    assert_eq!(
        steps,
        [
            "cannot read the mode of the RDMA subsystem",
            "cannot look up link 2, the parent of eth1",
            "cannot list the RDMA devices",
            "cannot list the ports of RDMA device mlx5_1",
        ]
    );
}

#[test]
fn the_ports_of_a_bridge_lead_to_its_device() {
    let (node, kernel) = node();
    let bridge = of_kind("bridge", ethernet(9, "br0"));
    let mut port = ethernet(6, "eth1");
    port.master = Some(9);
    kernel.set().state.host = vec![bridge.clone(), port];
    let facts = read(&node, &kernel, &bridge);
    let found = super::super::find(&facts, None).unwrap();
    assert_eq!(found.seen.device.name, "mlx5_1");
}

#[test]
fn a_link_in_an_exclusive_pod_is_read_once() {
    let (node, kernel) = node();
    kernel.set().state.rdma.mode = NetnsMode::Exclusive;
    let link = ethernet(6, "eth1");
    kernel.set().state.pod = vec![link.clone()];
    observe(&mut kernel.clone(), &node.sysfs(), Side::Pod, &link).unwrap();
    let listed = log(&kernel);
    let reads = listed
        .iter()
        .filter(|request| *request == "list RDMA devices in Pod");
    assert!(
        reads.count() <= 2,
        "once, and once for the GID tables: {listed:?}"
    );
}
