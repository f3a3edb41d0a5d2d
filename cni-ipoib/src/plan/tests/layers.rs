// SPDX-License-Identifier: Apache-2.0
use super::*;

#[test]
fn every_link_layer_supports_only_its_own_kinds() {
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
fn keys_of_another_mode_than_the_parents_are_refused() {
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
fn an_mtu_must_fit_the_parent() {
    let mtu = |mtu: u32, mode: &str, host: &Host| {
        let mut keys = json!({"mtu": mtu});
        if !mode.is_empty() {
            keys["ipoibMode"] = json!(mode);
        }
        plan(keys, host).map(|child| child.mtu)
    };
    assert_eq!(mtu(4092, "", &infiniband()).unwrap(), Some(4092));
    assert_eq!(mtu(65520, "connected", &with_connections()).unwrap(), Some(65520));
    assert_eq!(mtu(1500, "", &lan()).unwrap(), Some(1500));
    assert_eq!(mtu(0, "", &lan()).unwrap(), None);
    let text = |result: Result<Option<u32>, Error>| result.unwrap_err().to_string();
    assert_eq!(
        text(mtu(4093, "", &infiniband())),
        "mtu 4093 is more than ib0 carries in datagram mode: 4092; lower it or leave it out"
    );
    assert_eq!(
        text(mtu(65521, "connected", &with_connections())),
        "mtu 65521 is more than ib0 carries in connected mode: 65520; lower it or leave it out"
    );
    assert_eq!(
        text(mtu(1501, "", &lan())),
        "mtu 1501 is more than eth0 carries in an Ethernet frame: 1500; lower it or leave it out"
    );
}

#[test]
fn connected_mode_is_refused_on_a_link_that_has_only_datagram_mode() {
    let mut parent = infiniband();
    parent.drivers.link = Some("mlx5_core[ib_ipoib]".to_owned());
    let text = "ipoibMode connected is not supported: ib0 has only datagram mode, as its driver mlx5_core[ib_ipoib] moves the packets itself; set ipoibMode to datagram, or leave it out";
    let keys = json!({"ipoibMode": "connected"});
    assert_eq!(refused(keys.clone(), &parent), (2, text.to_owned()));
    planned(json!({"ipoibMode": "datagram"}), &parent);
    planned(keys, &with_connections());
}

#[test]
fn an_infiniband_link_that_is_no_ipoib_link_carries_no_child() {
    assert_refused([(
        json!({}),
        host(link(LinkLayer::Infiniband, 9, "odd0", IB_ADDRESS)),
        7,
        "odd0 is a link of kind unknown: it carries no ipoib child; name an IPoIB link",
    )]);
}

#[test]
fn a_port_of_an_infiniband_bond_carries_children_of_its_own() {
    let port_of_bond = Host {
        enslaved_to: Some(bond(9, "bond0")),
        ..infiniband()
    };
    planned(json!({}), &port_of_bond);
}

/// `eth0` as a port of a link of this kind.
fn port_of(kind: &str, name: &str) -> Host {
    Host {
        enslaved_to: Some(of_kind(kind, ethernet(9, name))),
        ..lan()
    }
}

#[test]
fn a_port_of_a_vrf_carries_children_and_the_vrf_does_not() {
    for mode in ["macvlan", "ipvlan"] {
        planned(json!({"mode": mode}), &port_of("vrf", "vrf0"));
        let text = format!("vrf0 is a VRF: it carries no {mode} child; name one of its ports");
        let vrf = host(of_kind("vrf", ethernet(9, "vrf0")));
        assert_eq!(refused(json!({"mode": mode}), &vrf), (7, text));
    }
}

#[test]
fn a_port_of_an_ethernet_bond_or_bridge_carries_no_child() {
    let enslaved = || port_of("bond", "bond0");
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
