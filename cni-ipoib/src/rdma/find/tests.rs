// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::model::{bond, ethernet, ipoib, link, of_kind};
use common::netlink::{Link, NetnsMode};
use common::rdma::{Behind, Device, Guid, PortState};

const IB_GUID: u64 = 0x248a_0703_00b4_0c5e;

fn path(function: u8) -> String {
    format!("/sys/devices/pci0000:3a/0000:3b:00.{function}")
}

fn port(number: u32, layer: PortLayer, guid: u64) -> Port {
    Port {
        number,
        layer,
        state: PortState::Active,
        phys_state: "LinkUp".to_owned(),
        rate_mbps: None,
        lid: 0,
        sm_lid: 0,
        gid: Some(std::net::Ipv6Addr::from_bits(
            (0xfe80_u128 << 112) | u128::from(guid),
        )),
    }
}

/// An RDMA device on a function, or a software device.
fn seen(name: &str, function: Option<u8>, ports: Vec<Port>) -> ObservedDevice {
    let path = function.map(|number| path(number).into());
    ObservedDevice::from(Device {
        name: name.to_owned(),
        node_guid: Guid(0x248a_0703_00b4_0c00),
        pci: None,
        path,
        ports,
    })
}

fn roce(name: &str, function: Option<u8>) -> ObservedDevice {
    seen(name, function, vec![port(1, PortLayer::Ethernet, 1)])
}

fn ib(name: &str, function: Option<u8>) -> ObservedDevice {
    seen(name, function, vec![port(1, PortLayer::Infiniband, IB_GUID)])
}

fn on_port(seen: ObservedDevice, link: u32) -> ObservedDevice {
    ObservedDevice {
        netdevs: vec![(1, link)],
        ..seen
    }
}

fn lower(link: Link, function: Option<u8>) -> Lower {
    let behind = function.map(|number| Behind {
        path: path(number).into(),
        port: Some(1),
    });
    Lower { link, behind }
}

fn facts<const L: usize, const D: usize>(lowers: [Lower; L], devices: [ObservedDevice; D]) -> Facts {
    Facts {
        mode: NetnsMode::Shared,
        lowers: lowers.into(),
        devices: devices.into(),
    }
}

/// Device and port, the link that matched, and the rule.
fn found(facts: &Facts) -> (&str, u32, &str, MatchedBy) {
    let found = find(facts, None).unwrap();
    (
        &found.seen.device.name,
        found.port.number,
        &found.lower.link.name,
        found.matched_by,
    )
}

fn refused(facts: &Facts, wanted: Option<&str>) -> String {
    let wanted = wanted.map(|text| Pattern::new(text).unwrap());
    find(facts, wanted.as_ref()).unwrap_err().to_string()
}

#[test]
fn a_link_that_the_kernel_reports_on_a_port_has_its_device() {
    let devices = [
        on_port(roce("mlx5_0", Some(0)), 2),
        on_port(roce("mlx5_1", Some(0)), 3),
    ];
    let facts = facts([lower(ethernet(3, "eth1"), Some(0))], devices);
    assert_eq!(found(&facts), ("mlx5_1", 1, "eth1", MatchedBy::Netdev));
}

#[test]
fn an_ipoib_link_is_matched_by_port_guid_not_node_guid() {
    let two_ports = vec![
        port(1, PortLayer::Infiniband, 7),
        port(2, PortLayer::Infiniband, IB_GUID),
    ];
    let facts = facts(
        [lower(ipoib(4, "ib0", 0xffff), Some(0))],
        [seen("mlx5_0", Some(0), two_ports)],
    );
    assert_eq!(found(&facts), ("mlx5_0", 2, "ib0", MatchedBy::PortGuid));
}

#[test]
fn a_copied_guid_on_another_function_does_not_match() {
    let facts = facts(
        [lower(ipoib(4, "ib1", 0xffff), Some(1))],
        [ib("mlx5_0", Some(0)), ib("mlx5_1", Some(1))],
    );
    assert_eq!(found(&facts).0, "mlx5_1");
}

#[test]
fn an_ipoib_link_with_an_address_of_its_own_is_on_its_functions_port() {
    let odd = seen("mlx5_0", Some(0), vec![port(1, PortLayer::Infiniband, 9)]);
    let facts = facts([lower(ipoib(4, "ib0", 0xffff), Some(0))], [odd]);
    assert_eq!(found(&facts), ("mlx5_0", 1, "ib0", MatchedBy::Function));
}

#[test]
fn an_ipoib_link_in_the_pod_is_matched_by_its_guid_alone() {
    let facts = facts(
        [lower(ipoib(2, "ib0", 0xffff), None)],
        [roce("rxe0", None), ib("mlx5_0", Some(0))],
    );
    assert_eq!(found(&facts).0, "mlx5_0");
}

#[test]
fn a_management_device_on_the_same_function_is_skipped() {
    for smi in ["smi1", "mlx5_9"] {
        let smi = ObservedDevice {
            smi: true,
            ..ib(smi, Some(0))
        };
        let facts = facts(
            [lower(ipoib(4, "ib0", 0xffff), Some(0))],
            [smi, ib("mlx5_0", Some(0))],
        );
        assert_eq!(found(&facts).0, "mlx5_0");
    }
    assert!(ib("smi12", None).smi, "by its name on kernels that do not say it");
    assert!(!ib("smith", None).smi);
}

#[test]
fn a_representor_shares_the_function_but_not_the_device() {
    let facts = facts(
        [lower(ethernet(9, "eth0_3"), Some(0))],
        [on_port(roce("mlx5_0", Some(0)), 2)],
    );
    assert_eq!(refused(&facts, None), "the node has no RDMA device for it");
}

/// Such as while the uplink is in a pod, or if the driver gives the representor a port for raw packets.
#[test]
fn a_representor_has_no_device_even_on_a_port_of_its_own() {
    let representor = Link {
        phys_port_name: Some("pf0vf3".to_owned()),
        ..ethernet(9, "eth0_3")
    };
    for device in [roce("mlx5_0", Some(0)), on_port(roce("mlx5_0", Some(0)), 9)] {
        let facts = facts([lower(representor.clone(), Some(0))], [device]);
        assert_eq!(refused(&facts, None), "the node has no RDMA device for it");
    }
}

#[test]
fn a_child_has_its_parents_device() {
    let vlan = of_kind("vlan", ethernet(5, "eth0.7"));
    let facts = facts(
        [
            lower(of_kind("macvlan", ethernet(6, "m0")), None),
            lower(vlan, None),
            lower(ethernet(2, "eth0"), Some(0)),
        ],
        [on_port(roce("mlx5_0", Some(0)), 2)],
    );
    assert_eq!(found(&facts), ("mlx5_0", 1, "eth0", MatchedBy::Netdev));
}

#[test]
fn a_bond_has_its_lag_device() {
    let bond0 = || of_kind("bond", ethernet(9, "bond0"));
    let ports = || {
        [
            lower(bond0(), None),
            lower(ethernet(2, "eth0"), Some(0)),
            lower(ethernet(3, "eth1"), Some(1)),
        ]
    };
    let lag = on_port(roce("mlx5_bond_0", Some(0)), 9);
    assert_eq!(
        found(&facts(ports(), [lag])),
        ("mlx5_bond_0", 1, "bond0", MatchedBy::Netdev)
    );
    let by_table = ObservedDevice {
        gid_links: vec![(1, "bond0".to_owned())],
        ..roce("mlx5_bond_0", Some(0))
    };
    assert_eq!(found(&facts(ports(), [by_table])).3, MatchedBy::GidTable);
}

#[test]
fn a_bond_without_lag_has_the_device_of_its_first_port() {
    let bond0 = bond(9, "bond0");
    let elsewhere = ipoib(5, "ib1", 0xffff);
    let facts = facts(
        [
            lower(bond0, None),
            lower(elsewhere, Some(1)),
            lower(ipoib(4, "ib0", 0xffff), Some(0)),
        ],
        [
            seen("mlx5_1", Some(1), vec![port(1, PortLayer::Infiniband, 8)]),
            seen("mlx5_0", Some(0), vec![port(1, PortLayer::Infiniband, 7)]),
        ],
    );
    assert_eq!((found(&facts).0, found(&facts).2), ("mlx5_1", "ib1"));
}

#[test]
fn a_software_device_is_found_by_its_gid_table() {
    let rxe = ObservedDevice {
        gid_links: vec![(1, "eth0".to_owned())],
        ..roce("rxe0", None)
    };
    let facts = facts([lower(ethernet(2, "eth0"), None)], [roce("rxe1", None), rxe]);
    assert_eq!(found(&facts), ("rxe0", 1, "eth0", MatchedBy::GidTable));
}

#[test]
fn a_pods_link_in_the_gid_table_makes_no_host_link_of_its_name_an_rdma_link() {
    let of_pod = |function, link: Link| ObservedDevice {
        gid_links: vec![(1, link.name)],
        ..roce("mlx5_0", function)
    };
    let eth2 = || ethernet(3, "eth2");
    for function in [Some(1), None] {
        let facts = facts([lower(eth2(), function)], [of_pod(Some(0), eth2())]);
        assert_eq!(find(&facts, None), Err(NotFound::None), "{function:?}");
    }
    let software = on_port(of_pod(None, eth2()), 2);
    let facts = facts([lower(eth2(), Some(1))], [software]);
    assert_eq!(
        find(&facts, None),
        Err(NotFound::None),
        "the kernel reports eth0 on its port"
    );
}

#[test]
fn a_selector_chooses_among_several_devices() {
    let devices = || {
        [
            on_port(roce("mlx5_0", Some(0)), 2),
            on_port(roce("rxe0", None), 2),
        ]
    };
    let facts = facts([lower(ethernet(2, "eth0"), Some(0))], devices());
    assert_eq!(
        refused(&facts, None),
        "several devices belong to it (mlx5_0, rxe0); name one in rdma.device"
    );
    assert_eq!(
        refused(&facts, Some("*")),
        "several devices belong to it (mlx5_0, rxe0); name one in rdma.device"
    );
    assert_eq!(
        refused(&facts, Some("bnxt*")),
        "rdma.device is \"bnxt*\", and the devices of the link are mlx5_0, rxe0"
    );
    let pattern = Pattern::new("rxe?").unwrap();
    assert_eq!(find(&facts, Some(&pattern)).unwrap().seen.device.name, "rxe0");
}

#[test]
fn a_selector_may_choose_another_than_the_first_device() {
    let lag = on_port(roce("mlx5_bond_0", Some(0)), 9);
    let facts = facts(
        [
            lower(of_kind("bond", ethernet(9, "bond0")), None),
            lower(ethernet(3, "eth1"), Some(1)),
        ],
        [lag, roce("mlx5_1", Some(1))],
    );
    let pattern = Pattern::new("mlx5_1").unwrap();
    assert_eq!(find(&facts, Some(&pattern)).unwrap().seen.device.name, "mlx5_1");
}

#[test]
fn a_link_without_rdma_has_none() {
    let loopback = link(common::netlink::LinkLayer::Loopback, 1, "lo", "");
    for link in [loopback, ethernet(2, "eth0"), ipoib(4, "ib9", 0xffff)] {
        let facts = facts(
            [lower(link, Some(7))],
            [roce("mlx5_0", Some(0)), ib("mlx5_1", Some(1))],
        );
        assert_eq!(find(&facts, None), Err(NotFound::None));
        assert_eq!(
            find(&facts, Some(&Pattern::new("*").unwrap())),
            Err(NotFound::None)
        );
    }
}

#[test]
fn the_reason_for_a_choice_is_a_sentence() {
    let all = [
        MatchedBy::Netdev,
        MatchedBy::PortGuid,
        MatchedBy::Function,
        MatchedBy::GidTable,
    ]
    .map(|rung| rung.to_string());
    assert_eq!(
        all,
        [
            "the kernel names it",
            "its port has the GUID of the link's address",
            "it is on the link's function",
            "the link is in its GID table"
        ]
    );
}
