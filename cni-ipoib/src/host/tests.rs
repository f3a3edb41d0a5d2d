// SPDX-License-Identifier: Apache-2.0
mod bond;

use super::*;
use crate::config::Master;
use crate::model::{Fault, ModelKernel, Node, bond, call, call_with, ethernet, ipoib, link, of_kind};
use common::netlink::RouteEntry;
use serde_json::{Value, json};

fn config(keys: Value) -> Config {
    Config::read(&call(keys)).unwrap()
}

/// Observes the only parent of `config`.
fn observed(kernel: &mut dyn Kernel, sysfs: &Sysfs, config: &Config) -> Result<Host, Error> {
    match &config.master {
        Master::Resolved(master) => observe(kernel, sysfs, side_of(config), master),
        Master::Preferred(choice) => panic!("{choice:?} is not one link"),
    }
}

/// Observes the parent that `keys` select among `links`.
fn seen(node: &Node, links: Vec<Link>, keys: Value) -> Result<Host, Error> {
    observed(&mut ModelKernel::new(links), &node.sysfs(), &config(keys))
}

fn text(node: &Node, links: Vec<Link>, keys: Value) -> String {
    seen(node, links, keys).unwrap_err().to_string()
}

fn child_of(parent: u32, child: Link) -> Link {
    Link {
        parent: Some(parent),
        ..child
    }
}

#[test]
fn an_infiniband_parent_is_read_with_its_port() {
    let host = seen(
        &Node::with_ib0(),
        vec![ipoib(4, "ib0", 0xffff)],
        json!({"master": "ib0"}),
    )
    .unwrap();
    assert_eq!(
        (host.side, host.master.name.as_str(), host.root.index),
        (Side::Host, "ib0", 4)
    );
    let expected = Port {
        device: "mlx5_0".to_owned(),
        number: 1,
        state: PortState::Active,
        phys_state: "LinkUp".to_owned(),
        pkeys: vec![Pkey(0xffff), Pkey(0x8001), Pkey(0x0002)],
    };
    assert_eq!(host.port, Some(expected));
    assert_eq!(host.pci.unwrap().to_string(), "0000:3b:00.0");
}

#[test]
fn a_parent_is_found_by_its_altname() {
    let link = Link {
        altnames: vec!["ibp59s0".to_owned()],
        ..ipoib(4, "ib0", 0xffff)
    };
    let host = seen(&Node::with_ib0(), vec![link], json!({"master": "ibp59s0"})).unwrap();
    assert_eq!(host.master.name, "ib0");
    assert!(host.port.is_some(), "the name comes from sysfs");
}

#[test]
fn a_child_of_a_child_is_created_on_the_root() {
    let links = vec![ipoib(4, "ib0", 0xffff), child_of(4, ipoib(5, "ib0.8001", 0x8001))];
    let host = seen(&Node::with_ib0(), links, json!({"master": "ib0.8001"})).unwrap();
    assert_eq!(
        (host.master.name.as_str(), host.root.name.as_str()),
        ("ib0.8001", "ib0")
    );
    assert_eq!(
        (host.port.unwrap().device.as_str(), host.pci.is_some()),
        ("mlx5_0", true)
    );
}

#[test]
fn a_child_with_its_parent_in_another_namespace_is_no_master() {
    let expected = "net1 is an IPoIB child whose parent is in another namespace: it carries no ipoib child; name a master whose parent is beside it";
    let stranger = child_of(4, ipoib(5, "net1", 0x8001));
    let by_number = Link {
        parent_netnsid: Some(0),
        ..stranger.clone()
    };
    for links in [vec![stranger], vec![ipoib(4, "ib0", 0xffff), by_number]] {
        assert_eq!(
            text(&Node::with_ib0(), links, json!({"master": "net1"})),
            expected
        );
    }
}

#[test]
fn a_vlan_is_its_own_root_without_a_port() {
    let vlan = child_of(2, of_kind("vlan", ethernet(3, "eth0.5")));
    let host = seen(
        &Node::bare(),
        vec![ethernet(2, "eth0"), vlan],
        json!({"master": "eth0.5"}),
    )
    .unwrap();
    assert_eq!(
        (host.root.name.as_str(), host.port, host.pci),
        ("eth0.5", None, None)
    );
}

/// Two InfiniBand links, an Ethernet link with RDMA, one without, and a child of a dead pod.
fn five_links() -> (Node, Vec<Link>) {
    let node = Node::with_ib0();
    node.device("mlx5_1", "0000:3b:00.1")
        .port("mlx5_1", 1, "Ethernet", "1: DOWN")
        .netdev("eth1", 6, "0000:3b:00.1");
    let links = vec![
        link(common::netlink::LinkLayer::Loopback, 1, "lo", "00:00:00:00:00:00"),
        ethernet(2, "eth0"),
        ipoib(4, "ib0", 0xffff),
        child_of(4, ipoib(5, "net1", 0x8001)),
        ethernet(6, "eth1"),
    ];
    (node, links)
}

#[test]
fn the_error_for_a_missing_master_lists_the_possible_ones() {
    let (node, links) = five_links();
    let candidates = "RDMA-capable links of this node: ib0 (InfiniBand, mlx5_0/1, active), eth1 (Ethernet, mlx5_1/1, down)";
    assert_eq!(
        text(&node, links.clone(), json!({})),
        format!(
            "master is not set, and no device plugin chose a device (is its resource among the pod's limits and in the network's annotation k8s.v1.cni.cncf.io/resourceName?); {candidates}"
        )
    );
    let missing = format!("master \"ib7\" does not exist on this node; {candidates}");
    assert_eq!(text(&node, links, json!({"master": "ib7"})), missing);
    let bare = "master is not set, and no device plugin chose a device (is its resource among the pod's limits and in the network's annotation k8s.v1.cni.cncf.io/resourceName?); RDMA-capable links of this node: none (is the driver loaded? On InfiniBand it also takes the module ib_ipoib: modprobe ib_ipoib)";
    assert_eq!(text(&Node::bare(), vec![ethernet(2, "eth0")], json!({})), bare);
}

/// A pod that has ended had given its interface the name of a link that another pod has.
#[test]
fn the_returned_interface_of_a_pod_is_no_master_by_its_name() {
    let (node, mut links) = five_links();
    let returned = child_of(
        4,
        Link {
            alias: Some("rdmanet:fabric/c1@net1".to_owned()),
            ..ipoib(40, "ib7", 0xffff)
        },
    );
    links.push(returned);
    let refused = text(&node, links.clone(), json!({"master": "ib7"}));
    assert!(
        refused
            .starts_with("master \"ib7\" does not exist on this node: the interface of a pod that has ended"),
        "{refused}"
    );
    // A link that an administrator made.
    links.last_mut().unwrap().alias = None;
    assert_eq!(
        seen(&node, links, json!({"master": "ib7"})).unwrap().master.index,
        40
    );
}

#[test]
fn a_failure_to_list_candidates_does_not_hide_the_error() {
    let (node, links) = five_links();
    let mut kernel = ModelKernel::new(links);
    kernel.fail(Fault::Every("list"));
    let error = observed(&mut kernel, &node.sysfs(), &config(json!({"master": "ib7"}))).unwrap_err();
    assert!(
        matches!(&error, Error::MasterMissing { candidates, .. } if candidates.0.is_empty()),
        "{error}"
    );
}

#[test]
fn a_parent_in_the_pod_is_searched_there() {
    let mut kernel = ModelKernel::new(vec![ipoib(4, "ib0", 0xffff)]);
    let config = config(json!({"master": "ib0", "linkInContainer": true}));
    let node = Node::with_ib0();
    let error = observed(&mut kernel, &node.sysfs(), &config)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("master \"ib0\" does not exist in the pod (linkInContainer is set); "),
        "{error}"
    );
    kernel.set().state.pod.push(ipoib(3, "ib0", 0x8001));
    let host = observed(&mut kernel, &node.sysfs(), &config).unwrap();
    assert_eq!((host.side, host.master.index), (Side::Pod, 3));
    assert_eq!(
        host.port.map(|port| port.device).as_deref(),
        Some("mlx5_0"),
        "by GUID: the host's sysfs has another ib0"
    );
    assert_eq!(host.pci, None);
}

#[test]
fn a_device_is_found_by_its_pci_address() {
    let (node, links) = five_links();
    let host = seen(
        &node,
        links.clone(),
        json!({"master": "ib0", "deviceID": "0000:3b:00.1"}),
    )
    .unwrap();
    assert_eq!(host.master.name, "eth1");
    for id in ["0000:3b:00.7", "mlx5_core.sf.4"] {
        let expected = format!(
            "device {id} has no network interface in the host's namespace; is it bound to its driver, or already in a pod?"
        );
        assert_eq!(text(&node, links.clone(), json!({"deviceID": id})), expected);
    }
}

#[test]
fn a_shared_device_id_without_a_master_asks_for_a_master() {
    let (node, links) = five_links();
    let candidates = "RDMA-capable links of this node: ib0 (InfiniBand, mlx5_0/1, active), eth1 (Ethernet, mlx5_1/1, down)";
    assert_eq!(
        text(&node, links, json!({"deviceID": "17"})),
        format!(
            "device id \"17\" names no link: it is neither a PCI address nor an auxiliary device, but such an id as the RDMA shared device plugin allocates; set master to choose the link (device in a host-device configuration); {candidates}"
        )
    );
}

#[test]
fn a_child_on_the_device_is_not_used_as_its_link() {
    let node = Node::with_ib0();
    node.netdev("a1", 5, "0000:3b:00.0");
    let links = vec![ipoib(4, "ib0", 0xffff), child_of(4, ipoib(5, "a1", 0x8001))];
    let host = seen(&node, links, json!({"deviceID": "0000:3b:00.0"})).unwrap();
    assert_eq!(host.master.name, "ib0");
}

#[test]
fn a_representor_is_not_used_as_the_link_of_its_device() {
    let node = Node::bare();
    node.netdev("a1", 5, "0000:3b:00.0")
        .netdev("ens1", 6, "0000:3b:00.0");
    let representor = Link {
        phys_port_name: Some("pf0vf0".to_owned()),
        ..ethernet(5, "a1")
    };
    let keys = json!({"deviceID": "0000:3b:00.0"});
    let both = vec![representor.clone(), ethernet(6, "ens1")];
    assert_eq!(seen(&node, both, keys.clone()).unwrap().master.name, "ens1");
    let error = text(&node, vec![representor], keys);
    assert!(
        error.contains("has no network interface in the host's namespace"),
        "{error}"
    );
}

/// `kernelpath` of the reference plugin `host-device`.
#[test]
fn a_device_is_found_by_its_directory() {
    let node = Node::with_ib0_and_ib1();
    for (place, index) in [
        ("3b:00.0/net/ib0", "4"),
        ("3b:00.0/net/a1", "6"),
        ("3b:00.1/net/ib1", "5"),
    ] {
        node.write(&format!("devices/pci0000:3a/0000:{place}/ifindex"), index);
    }
    node.write("devices/pci0000:3a/0000:17:00.0/class", "0x010802");
    let links = vec![
        child_of(4, ipoib(6, "a1", 0x8001)),
        ipoib(4, "ib0", 0xffff),
        ipoib(5, "ib1", 0xffff),
    ];
    let observed = |path: &str| {
        let keys = call_with("host-device", json!({"kernelpath": path}), "");
        let mut kernel = ModelKernel::new(links.clone());
        observed(&mut kernel, &node.sysfs(), &Config::read(&keys).unwrap())
    };
    for (function, name) in [("3b:00.0", "ib0"), ("3b:00.1", "ib1")] {
        let host = observed(&format!("/sys/devices/pci0000:3a/0000:{function}")).unwrap();
        assert_eq!(host.master.name, name);
    }
    for function in ["17:00.0", "3b:00.7", "3b:00.0/net"] {
        let path = format!("/sys/devices/pci0000:3a/0000:{function}");
        let expected = format!(
            "device {path} has no network interface in the host's namespace; is it bound to its driver, or already in a pod?"
        );
        assert_eq!(observed(&path).unwrap_err().to_string(), expected);
    }
}

fn route(dst: &str, index: u32, priority: Option<u32>) -> RouteEntry {
    RouteEntry {
        priority,
        ..RouteEntry::new(dst.parse().unwrap(), index)
    }
}

fn default_link(routes: Vec<RouteEntry>) -> Result<Host, Error> {
    let mut kernel = ModelKernel::new(vec![
        ethernet(2, "eth0"),
        ethernet(3, "eth1"),
        ethernet(4, "eth2"),
    ]);
    kernel.set().state.host_routes = routes;
    let config = Config {
        master: Master::Resolved(ResolvedMaster::DefaultRoute),
        ..config(json!({}))
    };
    observed(&mut kernel, &Node::bare().sysfs(), &config)
}

#[test]
fn the_default_route_with_the_lowest_metric_names_the_parent() {
    let cases = [
        ("the only one", vec![route("0.0.0.0/0", 3, None)], "eth1"),
        (
            "the lowest metric",
            vec![route("0.0.0.0/0", 2, Some(100)), route("0.0.0.0/0", 4, Some(50))],
            "eth2",
        ),
        (
            "no metric is 0",
            vec![route("0.0.0.0/0", 2, Some(1)), route("0.0.0.0/0", 3, None)],
            "eth1",
        ),
        (
            "equal metrics",
            vec![route("0.0.0.0/0", 4, None), route("0.0.0.0/0", 2, None)],
            "eth0",
        ),
        (
            "IPv6 only",
            vec![route("10.0.0.0/8", 2, None), route("::/0", 4, Some(1024))],
            "eth2",
        ),
        (
            "both families",
            vec![route("::/0", 4, Some(1024)), route("0.0.0.0/0", 3, Some(100))],
            "eth1",
        ),
    ];
    for (case, routes, expected) in cases {
        assert_eq!(default_link(routes).unwrap().master.name, expected, "{case}");
    }
}

#[test]
fn only_default_routes_of_the_main_table_name_the_parent() {
    let elsewhere = RouteEntry {
        table: Some(100),
        ..route("0.0.0.0/0", 2, None)
    };
    for routes in [vec![], vec![route("0.0.0.0/1", 2, None)], vec![elsewhere.clone()]] {
        let error = default_link(routes).unwrap_err().to_string();
        assert_eq!(
            error,
            "master is not set and there is no default route to take it from; set master"
        );
    }
    let main = RouteEntry {
        table: Some(254),
        ..route("0.0.0.0/0", 4, Some(9))
    };
    assert_eq!(default_link(vec![elsewhere, main]).unwrap().master.name, "eth2");
}

#[test]
fn the_error_of_a_refused_request_names_the_step() {
    let error_of = |fault, keys| {
        let port = Link {
            master: Some(9),
            ..ipoib(4, "ib0", 0xffff)
        };
        let mut kernel = ModelKernel::new(vec![port, bond(9, "bond0"), child_of(4, ipoib(5, "ib0.1", 1))]);
        kernel.fail(fault);
        observed(&mut kernel, &Node::with_ib0().sysfs(), &config(keys))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error_of(Fault::Refused(0), json!({"master": "ib0"})),
        "cannot look up master ib0"
    );
    assert_eq!(
        error_of(Fault::Refused(1), json!({"master": "ib0"})),
        "cannot look up link 9"
    );
    assert_eq!(
        error_of(Fault::Refused(1), json!({"master": "ib0.1"})),
        "cannot look up link 4"
    );
    assert_eq!(
        error_of(Fault::Refused(1), json!({"master": "bond0"})),
        "cannot list the links"
    );
    assert_eq!(
        error_of(Fault::Refused(0), json!({"deviceID": "0000:3b:00.0"})),
        "cannot look up ib0"
    );
}

#[test]
fn an_infiniband_link_without_a_visible_port_is_accepted() {
    let host = seen(
        &Node::bare(),
        vec![ipoib(4, "ib0", 0xffff)],
        json!({"master": "ib0"}),
    )
    .unwrap();
    assert_eq!((host.port, host.pci), (None, None));
}

#[test]
fn the_drivers_of_an_infiniband_parent_are_read() {
    let seen = |link: Link, keys: Value| seen(&Node::with_ib0(), vec![link], keys).unwrap().drivers;
    let drivers = seen(ipoib(4, "ib0", 0xffff), json!({"master": "ib0"}));
    assert_eq!(drivers.hca.as_deref(), Some("mlx5_core"));
    assert_eq!(drivers.link.as_deref(), Some("mlx5_core[ib_ipoib]"));
    let ethernet = seen(ethernet(2, "eth0"), json!({"master": "eth0"}));
    assert_eq!(
        ethernet,
        Drivers::default(),
        "its children may be created anywhere"
    );
}

#[test]
fn the_drivers_of_each_port_of_a_bond_are_read() {
    let node = Node::with_ib0_and_ib1();
    node.driven("0000:3b:00.1", "mlx4_core");
    let host = seen(&node, crate::model::bonded(), json!({"master": "bond0"})).unwrap();
    let ports = host.bond.unwrap().ports;
    let drivers: Vec<_> = ports.iter().map(|port| port.drivers.hca.as_deref()).collect();
    assert_eq!(drivers, [Some("mlx5_core"), Some("mlx4_core")]);
}
