// SPDX-License-Identifier: Apache-2.0
#![expect(
    clippy::needless_pass_by_value,
    reason = "a table reads better without a reference before each value"
)]

use super::*;
use crate::model::{bond, call, call_with, ethernet, ipoib, link};
use common::cni;
use common::netlink::{IpvlanMode, Link, MacvlanMode};
use serde_json::{Value, json};

const GUID: &str = "24:8a:07:03:00:b4:0c:5e";
const IB_ADDRESS: &str = "00:00:10:49:fe:80:00:00:00:00:00:00:24:8a:07:03:00:b4:0c:5e";

fn host(master: Link) -> Host {
    Host {
        side: Side::Host,
        root: master.clone(),
        master,
        port: None,
        pci: None,
        slaves: Vec::new(),
        enslaved_to: None,
    }
}

fn port(state: PortState) -> Port {
    Port {
        device: "mlx5_0".to_owned(),
        number: 1,
        state,
        phys_state: "LinkUp".to_owned(),
        pkeys: vec![Pkey(0xffff), Pkey(0x8001), Pkey(0x0002)],
    }
}

/// `ib0` in partition 0xffff on an active port.
fn infiniband() -> Host {
    Host {
        port: Some(port(PortState::Active)),
        pci: "0000:3b:00.0".parse().ok(),
        ..host(ipoib(4, "ib0", 0xffff))
    }
}

/// `eth0` with MTU 1500.
fn lan() -> Host {
    host(ethernet(2, "eth0"))
}

fn plan(keys: Value, host: &Host) -> Result<Child, Error> {
    child(&Config::read(&call(keys)).unwrap(), host)
}

fn planned(keys: Value, host: &Host) -> Child {
    plan(keys.clone(), host).unwrap_or_else(|e| panic!("{keys}: {e}"))
}

/// The code and the message of a refusal.
fn refused(keys: Value, host: &Host) -> (u32, String) {
    let error = cni::Error::from(plan(keys.clone(), host).expect_err(&keys.to_string()));
    (error.code.0, error.msg)
}

fn assert_refused<const N: usize>(cases: [(Value, Host, u32, &str); N]) {
    for (keys, host, code, text) in cases {
        assert_eq!(refused(keys.clone(), &host), (code, text.to_owned()), "{keys}");
    }
}

/// Partition, mode and umcast of an `IPoIB` child.
fn ipoib_of(child: &Child) -> (Option<Pkey>, Option<IpoibMode>, Option<bool>) {
    match child.kind {
        NewLinkKind::Ipoib { pkey, mode, umcast } => (pkey, mode, umcast),
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_a_mode_the_parents_link_layer_decides() {
    let child = planned(json!({}), &infiniband());
    assert_eq!(child.mode, Mode::Ipoib);
    assert_eq!(
        ipoib_of(&child),
        (Some(Pkey(0xffff)), Some(IpoibMode::Datagram), None)
    );
    assert_eq!(
        (child.parent.as_str(), child.parent_index, child.side),
        ("ib0", 4, Side::Host)
    );
    assert_eq!(
        (child.mtu, child.address, child.addr_gen_mode),
        (None, None, Some(AddrGenMode::Random))
    );
    assert_eq!(child.carrier_timeout, Duration::from_secs(10));
    assert_eq!(
        (
            child.pci.unwrap().to_string().as_str(),
            child.rdma_device.as_deref()
        ),
        ("0000:3b:00.0", Some("mlx5_0"))
    );

    let child = planned(json!({}), &lan());
    assert_eq!(child.mode, Mode::Macvlan);
    assert!(
        matches!(
            child.kind,
            NewLinkKind::Macvlan {
                mode: MacvlanMode::Bridge,
                bc_queue_len: None
            }
        ),
        "{:?}",
        child.kind
    );
    assert_eq!(
        (child.addr_gen_mode, child.carrier_timeout),
        (None, Duration::from_millis(200))
    );
}

#[test]
fn what_is_not_set_is_inherited_from_the_parent() {
    let connected = LinkInfo::Ipoib {
        pkey: Pkey(0x8001),
        mode: IpoibMode::Connected,
        umcast: true,
    };
    let mut parent = infiniband();
    parent.master.info = connected.clone();
    parent.root.info = connected;
    assert_eq!(
        ipoib_of(&planned(json!({}), &parent)),
        (Some(Pkey(0x8001)), Some(IpoibMode::Connected), None)
    );
    let keys = json!({"pkey": "0x0002", "ipoibMode": "datagram", "umcast": false});
    assert_eq!(
        ipoib_of(&planned(keys, &parent)),
        (Some(Pkey(2)), Some(IpoibMode::Datagram), Some(false))
    );
}

#[test]
fn the_child_of_a_child_has_its_partition_and_the_roots_link() {
    let mut parent = infiniband();
    parent.master = Link {
        parent: Some(4),
        ..ipoib(5, "ib0.8001", 0x8001)
    };
    let child = planned(json!({}), &parent);
    assert_eq!(ipoib_of(&child).0, Some(Pkey(0x8001)));
    assert_eq!((child.parent.as_str(), child.parent_index), ("ib0", 4));
}

#[test]
fn a_pkey_must_be_in_the_ports_table_whatever_its_membership() {
    for pkey in ["0x8001", "0x0001", "0x8002", "0x7fff"] {
        planned(json!({"pkey": pkey}), &infiniband());
    }
    let text = "pkey 0x8003 is not in the table of mlx5_0 port 1 (it has 0xffff, 0x8001, 0x0002); have the subnet manager add this port to the partition";
    assert_eq!(
        refused(json!({"pkey": "0x8003"}), &infiniband()),
        (7, text.to_owned())
    );
    let out_of_sight = Host {
        port: None,
        ..infiniband()
    };
    assert_eq!(
        ipoib_of(&planned(json!({"pkey": "0x8003"}), &out_of_sight)).0,
        Some(Pkey(0x8003))
    );
}

#[test]
fn a_partition_that_the_parent_itself_has_lost_is_refused() {
    let mut parent = infiniband();
    parent.master.info = LinkInfo::Ipoib {
        pkey: Pkey(0x8009),
        mode: IpoibMode::Datagram,
        umcast: false,
    };
    assert_eq!(refused(json!({}), &parent).0, 7);
}

#[test]
fn every_link_layer_carries_its_own_kinds_only() {
    use LinkLayer::{Loopback, Other};
    let lo = || host(link(Loopback, 1, "lo", "00:00:00:00:00:00"));
    let tun = || host(link(Other(65534), 7, "tun0", ""));
    assert_refused([
        (
            json!({"mode": "macvlan"}),
            infiniband(),
            7,
            "ib0 is InfiniBand: macvlan needs Ethernet; use mode ipoib",
        ),
        (
            json!({"mode": "ipvlan"}),
            infiniband(),
            7,
            "ib0 is InfiniBand: ipvlan needs Ethernet; use mode ipoib",
        ),
        (
            json!({"mode": "ipoib"}),
            lan(),
            7,
            "eth0 is Ethernet: ipoib needs InfiniBand; use mode macvlan or ipvlan",
        ),
        (
            json!({"mode": "ipoib"}),
            lo(),
            7,
            "lo is a loopback: ipoib needs InfiniBand; use an InfiniBand master",
        ),
        (
            json!({}),
            lo(),
            7,
            "lo is a loopback: macvlan needs Ethernet; use an Ethernet master",
        ),
        (
            json!({"mode": "ipvlan"}),
            lo(),
            7,
            "lo is a loopback: ipvlan needs Ethernet; use an Ethernet master",
        ),
        (
            json!({}),
            tun(),
            7,
            "tun0 is neither InfiniBand nor Ethernet: macvlan needs Ethernet; use an Ethernet master",
        ),
    ]);
}

#[test]
fn keys_of_the_mode_that_the_parent_has_not_are_refused() {
    assert_refused([
        (
            json!({"pkey": "0x8001"}),
            lan(),
            7,
            "pkey is for mode ipoib, but the mode is macvlan; remove pkey or change the mode",
        ),
        (
            json!({"ipoibMode": "datagram"}),
            lan(),
            7,
            "ipoibMode is for mode ipoib, but the mode is macvlan; remove ipoibMode or change the mode",
        ),
        (
            json!({"macvlanMode": "bridge"}),
            infiniband(),
            7,
            "macvlanMode is for mode macvlan, but the mode is ipoib; remove macvlanMode or change the mode",
        ),
        (
            json!({"ipvlanMode": "l2"}),
            lan(),
            7,
            "ipvlanMode is for mode ipvlan, but the mode is macvlan; remove ipvlanMode or change the mode",
        ),
        (
            json!({"bcqueuelen": 5}),
            infiniband(),
            7,
            "bcqueuelen is for mode macvlan, but the mode is ipoib; remove bcqueuelen or change the mode",
        ),
    ]);
}

#[test]
fn dhcp_is_refused_on_infiniband_and_served_on_ethernet() {
    let keys = json!({"ipam": {"type": "dhcp"}});
    let text = "ipam.type dhcp is not supported: the dhcp plugin speaks Ethernet only; use rdma-ipam, host-local, static or whereabouts on InfiniBand";
    assert_eq!(refused(keys.clone(), &infiniband()), (2, text.to_owned()));
    planned(keys, &lan());
}

#[test]
fn an_mtu_is_what_the_parent_can_carry() {
    let mtu = |mtu: u32, mode: &str, host: &Host| {
        let mut keys = json!({"mtu": mtu});
        if !mode.is_empty() {
            keys["ipoibMode"] = json!(mode);
        }
        plan(keys, host).map(|child| child.mtu)
    };
    assert_eq!(mtu(4092, "", &infiniband()).unwrap(), Some(4092));
    assert_eq!(mtu(65520, "connected", &infiniband()).unwrap(), Some(65520));
    assert_eq!(mtu(1500, "", &lan()).unwrap(), Some(1500));
    assert_eq!(mtu(0, "", &lan()).unwrap(), None);
    let text = |result: Result<Option<u32>, Error>| result.unwrap_err().to_string();
    assert_eq!(
        text(mtu(4093, "", &infiniband())),
        "mtu 4093 is more than ib0 carries in datagram mode: 4092; lower it or leave it out"
    );
    assert_eq!(
        text(mtu(65521, "connected", &infiniband())),
        "mtu 65521 is more than ib0 carries in connected mode: 65520; lower it or leave it out"
    );
    assert_eq!(
        text(mtu(1501, "", &lan())),
        "mtu 1501 is more than eth0 carries in an Ethernet frame: 1500; lower it or leave it out"
    );
}

#[test]
fn a_bond_of_infiniband_ports_carries_no_child_but_its_ports_do() {
    let with = |slaves: &[&str]| Host {
        slaves: slaves.iter().map(|s| (*s).to_owned()).collect(),
        ..host(bond(9, "bond0"))
    };
    assert_refused([
        (
            json!({}),
            with(&["ib0", "ib1"]),
            7,
            "bond0 is a link of kind bond: it carries no ipoib child; name one of its ports: ib0, ib1",
        ),
        (
            json!({}),
            with(&[]),
            7,
            "bond0 is a link of kind bond: it carries no ipoib child; name an IPoIB link",
        ),
        (
            json!({}),
            host(link(LinkLayer::Infiniband, 9, "odd0", IB_ADDRESS)),
            7,
            "odd0 is a link of kind unknown: it carries no ipoib child; name an IPoIB link",
        ),
    ]);
    let port_of_bond = Host {
        enslaved_to: Some("bond0".to_owned()),
        ..infiniband()
    };
    planned(json!({}), &port_of_bond);
}

#[test]
fn a_port_of_an_ethernet_bond_or_bridge_carries_no_child() {
    let enslaved = || Host {
        enslaved_to: Some("bond0".to_owned()),
        ..lan()
    };
    assert_refused([
        (
            json!({}),
            enslaved(),
            7,
            "eth0 is a port of bond0: it carries no macvlan child; name bond0",
        ),
        (
            json!({"mode": "ipvlan"}),
            enslaved(),
            7,
            "eth0 is a port of bond0: it carries no ipvlan child; name bond0",
        ),
    ]);
}

#[test]
fn a_parent_that_is_down_is_refused_with_the_command_that_helps() {
    let down = |mut host: Host| {
        host.master.up = false;
        host.root.up = false;
        host
    };
    let mut child = infiniband();
    child.master = Link {
        up: false,
        ..ipoib(5, "ib0.8001", 0x8001)
    };
    let mut root = infiniband();
    root.master = ipoib(5, "ib0.8001", 0x8001);
    root.root.up = false;
    assert_refused([
        (
            json!({}),
            down(infiniband()),
            102,
            "ib0 is down; bring it up: ip link set ib0 up",
        ),
        (
            json!({}),
            down(lan()),
            102,
            "eth0 is down; bring it up: ip link set eth0 up",
        ),
        (
            json!({}),
            child,
            102,
            "ib0.8001 is down; bring it up: ip link set ib0.8001 up",
        ),
        (
            json!({}),
            root,
            102,
            "ib0 is down; bring it up: ip link set ib0 up",
        ),
    ]);
}

#[test]
fn an_infiniband_port_must_be_active() {
    let at = |state| Host {
        port: Some(port(state)),
        ..infiniband()
    };
    assert_refused([
        (
            json!({}),
            at(PortState::Down),
            102,
            "ib0 carries nothing: mlx5_0 port 1 is down (LinkUp); check cable, switch port and subnet manager",
        ),
        (
            json!({}),
            at(PortState::Init),
            102,
            "ib0 carries nothing: mlx5_0 port 1 is initializing (LinkUp); no subnet manager has configured it; is one running on this fabric?",
        ),
        (
            json!({}),
            at(PortState::Armed),
            102,
            "ib0 carries nothing: mlx5_0 port 1 is armed (LinkUp); the subnet manager has not finished with it",
        ),
        (
            json!({}),
            at(PortState::ActiveDefer),
            102,
            "ib0 carries nothing: mlx5_0 port 1 is active, deferred (LinkUp); the subnet manager has not finished with it",
        ),
        (
            json!({}),
            at(PortState::Unknown),
            102,
            "ib0 carries nothing: mlx5_0 port 1 is unknown (LinkUp); the subnet manager has not finished with it",
        ),
    ]);
}

#[test]
fn carrier_decides_where_no_port_does() {
    let without = |mut host: Host| {
        host.root.carrier = false;
        host.master.carrier = false;
        host
    };
    planned(json!({}), &without(infiniband()));
    let unseen = Host {
        port: None,
        ..without(infiniband())
    };
    assert_refused([
        (
            json!({}),
            unseen,
            102,
            "ib0 has no carrier; check cable and switch port",
        ),
        (
            json!({}),
            without(lan()),
            102,
            "eth0 has no carrier; check cable and switch port",
        ),
        (
            json!({"mode": "ipvlan"}),
            without(lan()),
            102,
            "eth0 has no carrier; check cable and switch port",
        ),
    ]);
}

#[test]
fn a_configuration_that_cannot_be_right_is_refused_before_a_cable_is_blamed() {
    let mut parent = infiniband();
    parent.master.up = false;
    assert_eq!(refused(json!({"pkey": "0x8003"}), &parent).0, 7);
}

#[test]
fn a_macvlan_gets_the_address_asked_for() {
    let mac = |keys| planned(keys, &lan()).address.map(|mac| mac.to_string());
    assert_eq!(mac(json!({})), None);
    assert_eq!(
        mac(json!({"mac": "02:00:00:00:00:05"})).as_deref(),
        Some("02:00:00:00:00:05")
    );
    assert_refused([
        (
            json!({"mode": "ipvlan", "mac": "02:00:00:00:00:05"}),
            lan(),
            7,
            "mac is for mode macvlan, but the mode is ipvlan; remove mac or change the mode",
        ),
        (
            json!({"mac": IB_ADDRESS}),
            lan(),
            7,
            "mac is 00:00:10:49:fe:80:00:00:00:00:00:00:24:8a:07:03:00:b4:0c:5e, want 6 bytes for an Ethernet master",
        ),
        (
            json!({"runtimeConfig": {"infinibandGUID": GUID}}),
            lan(),
            7,
            "infinibandGUID is for mode ipoib, but the mode is macvlan; remove infinibandGUID or change the mode",
        ),
    ]);
}

#[test]
fn an_ipoib_child_answers_at_its_ports_guid_and_no_other() {
    for keys in [
        json!({"mac": IB_ADDRESS}),
        json!({"mac": IB_ADDRESS.replace("00:00:10:49", "80:00:00:01")}),
        json!({"runtimeConfig": {"infinibandGUID": GUID}}),
        json!({"args": {"cni": {"guid": "248a:0703:00b4:0c5e"}}}),
    ] {
        assert_eq!(planned(keys, &infiniband()).address, None, "the kernel makes it");
    }
    let told = "cannot be given to a child of ib0: its children answer at the port's GUID 248a:0703:00b4:0c5e; remove";
    let other = IB_ADDRESS.replace("5e", "5f");
    let guid = json!({"infinibandGUID": "00:00:00:00:00:00:00:07"});
    for (key, value, keys) in [
        ("mac", "02:00:00:00:00:05", json!({"mac": "02:00:00:00:00:05"})),
        ("mac", other.as_str(), json!({"mac": other})),
        (
            "infinibandGUID",
            "0000:0000:0000:0007",
            json!({"runtimeConfig": guid}),
        ),
    ] {
        let text = format!("{key} {value} {told} {key}, or use a virtual function");
        assert_eq!(refused(keys, &infiniband()), (7, text));
    }
}

#[test]
fn ipvlan_and_macvlan_carry_their_own_settings() {
    let child = planned(json!({"mode": "ipvlan", "ipvlanMode": "l3"}), &lan());
    assert!(matches!(child.kind, NewLinkKind::Ipvlan { mode: IpvlanMode::L3 }));
    let child = planned(json!({"macvlanMode": "passthru", "bcqueuelen": 7}), &lan());
    assert!(matches!(
        child.kind,
        NewLinkKind::Macvlan {
            mode: MacvlanMode::Passthru,
            bc_queue_len: Some(7)
        }
    ));
}

#[test]
fn a_peers_configuration_on_the_wrong_layer_is_told_what_to_use() {
    let config = Config::read(&call_with(
        "macvlan",
        json!({"master": "ib0", "mode": "bridge"}),
        "",
    ))
    .unwrap();
    let text = child(&config, &infiniband()).unwrap_err().to_string();
    assert_eq!(text, "ib0 is InfiniBand: macvlan needs Ethernet; use mode ipoib");
}

#[test]
fn a_parent_in_the_pod_stays_there() {
    let inside = Host {
        side: Side::Pod,
        ..lan()
    };
    assert_eq!(planned(json!({"linkInContainer": true}), &inside).side, Side::Pod);
}
