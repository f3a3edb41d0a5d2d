// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::host::{Bond, BondPort};
use crate::model::{active_backup, bond as bond_link, of_kind, port_of};
use crate::plan::bond::port_name;
use common::netlink::{BondMode, FailOverMac};

fn of_port(index: u32, name: &str, state: PortState) -> BondPort {
    let link = port_of(9, ipoib(index, name, 0xffff));
    BondPort {
        root: link.clone(),
        link,
        port: Some(Port {
            device: format!("mlx5_{}", index - 4),
            ..port(state)
        }),
        pci: format!("0000:3b:00.{}", index - 4).parse().ok(),
        drivers: Drivers::default(),
    }
}

/// `bond0` with these ports. The port with this index is active.
fn bonded(active: Option<u32>, ports: Vec<BondPort>) -> Host {
    let master = Link {
        info: active_backup(active),
        ..bond_link(9, "bond0")
    };
    Host {
        bond: Some(Bond {
            mode: Some(BondMode::ActiveBackup),
            active,
            ports,
        }),
        ..host(master)
    }
}

/// The base of the tests: two ports. The second one is active.
fn pair() -> Host {
    bonded(
        Some(5),
        vec![
            of_port(4, "ib0", PortState::Active),
            of_port(5, "ib1", PortState::Active),
        ],
    )
}

/// The pair after a change of its ports.
fn changed(change: impl FnOnce(&mut Vec<BondPort>)) -> Host {
    let mut host = pair();
    change(&mut host.bond.as_mut().unwrap().ports);
    host
}

fn parents(child: &Child) -> Vec<(&str, u32)> {
    let ports = child.ports.iter();
    ports
        .map(|port| (port.parent.as_str(), port.parent_index))
        .collect()
}

#[test]
fn the_pod_gets_a_child_of_each_port_and_a_bond_of_its_own() {
    let child = planned(
        json!({"pkey": "0x8001", "mtu": 2000, "ipoibMode": "datagram"}),
        &pair(),
    );
    let NewLinkKind::Bond {
        mode,
        miimon,
        fail_over_mac,
        ..
    } = child.kind
    else {
        panic!("{:?}", child.kind);
    };
    assert_eq!(
        (mode, miimon, fail_over_mac),
        (BondMode::ActiveBackup, 100, FailOverMac::Active)
    );
    assert_eq!(
        (child.mode, child.parent.as_str(), child.parent_index, child.side),
        (Mode::Ipoib, "bond0", 0, Side::Pod)
    );
    assert_eq!(
        (child.mtu, child.addr_gen_mode),
        (Some(2000), Some(AddrGenMode::Random))
    );
    assert_eq!(parents(&child), [("ib1", 5), ("ib0", 4)], "the active one first");
    for port in &child.ports {
        assert_eq!(
            ipoib_of(port),
            (Some(Pkey(0x8001)), Some(IpoibMode::Datagram), Some(false))
        );
        assert_eq!(
            (port.side, port.mtu, port.carrier_timeout),
            (Side::Host, None, Duration::from_secs(10))
        );
    }
    assert_eq!(child.pci.unwrap().to_string(), "0000:3b:00.1");
}

#[test]
fn the_names_of_ports_fit_the_kernels_limit() {
    let name = |ifname: &str, number| {
        let mut mark = Mark::new("fabric", &crate::model::attachment("c1"));
        mark.group = 0x0123_4567;
        port_name(&ifname.parse().unwrap(), &mark, number)
    };
    assert_eq!(name("net1", 0), "net1p0");
    assert_eq!(name("thirteen-byte", 1), "thirteen-bytep1");
    assert_eq!(name("fourteen-bytes", 1), "rb01234567p1");
    assert_eq!(name("thirteen-byte", 10), "rb01234567p10");
}

#[test]
fn a_port_that_is_down_joins_the_bond_without_waiting() {
    let host = changed(|ports| {
        ports[1].port.as_mut().unwrap().state = PortState::Down;
        // A P_Key table without a subnet manager proves nothing.
        ports[1].port.as_mut().unwrap().pkeys = vec![Pkey(0xffff)];
    });
    let child = planned(json!({"pkey": "0x8001"}), &host);
    assert_eq!(parents(&child), [("ib1", 5), ("ib0", 4)]);
    assert_eq!(child.ports[0].carrier_timeout, Duration::ZERO);
    assert_eq!(child.ports[1].carrier_timeout, Duration::from_secs(10));
    assert_eq!(
        child.pci.unwrap().to_string(),
        "0000:3b:00.0",
        "the first one that works"
    );
}

#[test]
fn the_error_for_a_bond_without_traffic_explains_each_port() {
    let down = changed(|ports| {
        ports[0].port.as_mut().unwrap().state = PortState::Init;
        ports[1].link.up = false;
    });
    let unseen = changed(|ports| {
        for port in ports {
            port.port = None;
            port.link.carrier = false;
        }
    });
    let mut off = pair();
    off.master.up = false;
    assert_refused([
        (
            json!({}),
            down,
            102,
            "bond0 carries nothing: ib0 on mlx5_0 port 1 is initializing (LinkUp), ib1 is down; check cables, switch ports and, on InfiniBand, the subnet manager",
        ),
        (
            json!({}),
            unseen,
            102,
            "bond0 carries nothing: ib0 has no carrier, ib1 has no carrier; check cables, switch ports and, on InfiniBand, the subnet manager",
        ),
        (
            json!({}),
            bonded(None, Vec::new()),
            102,
            "bond0 has no ports; was it restarted without them? put them back: ip link set PORT master bond0",
        ),
        (
            json!({}),
            off,
            102,
            "bond0 is down; bring it up: ip link set bond0 up",
        ),
    ]);
}

#[test]
fn ports_on_different_fabrics_are_refused_while_both_are_up() {
    let other = "00:00:10:49:fe:80:00:00:00:00:00:01:24:8a:07:03:00:b4:0c:5f";
    let apart = |state| {
        changed(|ports| {
            ports[1].root.address = other.parse().unwrap();
            ports[1].port.as_mut().unwrap().state = state;
        })
    };
    let text = "bond0 is a bond of ports on different fabrics (subnet prefix: ib0 in 0xfe80000000000000, ib1 in 0xfe80000000000001): it carries no ipoib child; name one of its ports: ib0, ib1, or set bond to \"active\"";
    assert_refused([(json!({}), apart(PortState::Active), 7, text)]);
    // A port without a link has its default prefix.
    planned(json!({}), &apart(PortState::Down));
    planned(json!({"bond": "active"}), &apart(PortState::Active));
}

#[test]
fn ports_in_different_partitions_need_a_pkey() {
    let apart = changed(|ports| {
        ports[1].link.info = LinkInfo::Ipoib {
            pkey: Pkey(0x8001),
            mode: IpoibMode::Datagram,
            umcast: false,
        };
    });
    planned(json!({"pkey": "0x8001"}), &apart);
    assert_refused([(
        json!({}),
        apart,
        7,
        "bond0 is a bond of ports in different partitions (ib0 in 0xffff, ib1 in 0x8001): it carries no ipoib child; set pkey",
    )]);
}

#[test]
fn a_partition_must_be_in_the_table_of_every_port_that_is_up() {
    let lacks = changed(|ports| ports[0].port.as_mut().unwrap().pkeys = vec![Pkey(0xffff)]);
    let (code, text) = refused(json!({"pkey": "0x8001"}), &lacks);
    assert_eq!(code, 7);
    assert!(
        text.starts_with("pkey 0x8001 is not in the table of mlx5_0 port 1"),
        "{text}"
    );
}

#[test]
fn ports_that_are_children_themselves_pass_their_partition_and_root_on() {
    let host = changed(|ports| {
        for port in ports {
            port.link = Link {
                parent: Some(port.root.index),
                ..port_of(
                    9,
                    ipoib(port.root.index + 20, &format!("{}.8001", port.root.name), 0x8001),
                )
            };
        }
    });
    let child = planned(json!({}), &host);
    assert_eq!(parents(&child), [("ib0", 4), ("ib1", 5)]);
    assert_eq!(ipoib_of(&child.ports[0]).0, Some(Pkey(0x8001)));
}

#[test]
fn a_bond_has_no_address_of_its_own() {
    let mac = "00:00:10:49:fe:80:00:00:00:00:00:00:24:8a:07:03:00:b4:0c:5e";
    let text = |key: &str, value: &str| {
        format!(
            "{key} {value} cannot be given to an interface on bond0: a bond of InfiniBand ports has the address of its active port; remove {key}"
        )
    };
    assert_eq!(refused(json!({"mac": mac}), &pair()), (7, text("mac", mac)));
    let guid = json!({"runtimeConfig": {"infinibandGUID": GUID}});
    assert_eq!(
        refused(guid, &pair()),
        (7, text("infinibandGUID", "248a:0703:00b4:0c5e"))
    );
}

#[test]
fn the_mtu_of_a_bond_must_fit_every_port() {
    assert_eq!(refused(json!({"mtu": 4093}), &pair()).0, 7);
    let connections = changed(|ports| {
        for port in ports {
            port.root.address = IB_ADDRESS.replacen("00", "80", 1).parse().unwrap();
        }
    });
    let keys = json!({"mtu": 65520, "ipoibMode": "connected"});
    assert_eq!(planned(keys.clone(), &connections).mtu, Some(65520));
    assert_eq!(refused(keys, &pair()).0, 2, "its ports have only datagram mode");
}

#[test]
fn bond_active_uses_only_the_active_port() {
    let child = planned(json!({"bond": "active"}), &pair());
    assert_eq!(
        (child.parent.as_str(), child.parent_index, child.ports.len()),
        ("ib1", 5, 0)
    );
    assert_eq!(child.pci.unwrap().to_string(), "0000:3b:00.1");
    let none = bonded(None, pair().bond.unwrap().ports);
    let text = "bond0 carries nothing: ib0 is not active in the bond, ib1 is not active in the bond; check cables, switch ports and, on InfiniBand, the subnet manager";
    assert_refused([(json!({"bond": "active"}), none, 102, text)]);
}

#[test]
fn bond_refuse_refuses_only_bonds() {
    let ethernet_bond = Host {
        bond: Some(Bond {
            mode: None,
            active: None,
            ports: Vec::new(),
        }),
        ..lan()
    };
    assert_refused([
        (
            json!({"bond": "refuse"}),
            pair(),
            7,
            "bond0 is a bond, and bond is \"refuse\": it carries no ipoib child; name one of its ports: ib0, ib1, or change bond",
        ),
        (
            json!({"bond": "refuse"}),
            ethernet_bond,
            7,
            "eth0 is a bond, and bond is \"refuse\": it carries no macvlan child; name another link, or change bond",
        ),
    ]);
    planned(json!({"bond": "refuse"}), &infiniband());
    planned(json!({"bond": "refuse"}), &lan());
}

#[test]
fn nested_and_mixed_bonds_are_refused_with_a_remedy() {
    let with = |kind: &str, name: &str| {
        let kind = kind.to_owned();
        let name = name.to_owned();
        changed(move |ports| {
            ports[1].link = of_kind(&kind, link(LinkLayer::Infiniband, 5, &name, IB_ADDRESS));
        })
    };
    assert_refused([
        (
            json!({}),
            with("bond", "bond1"),
            7,
            "bond0 is a bond of bonds (bond1): it carries no ipoib child; name bond1",
        ),
        (
            json!({}),
            with("odd", "odd0"),
            7,
            "bond0 is a bond whose port odd0 is a link of kind odd: it carries no ipoib child; name an IPoIB link",
        ),
    ]);
}

#[test]
fn an_ethernet_bond_of_any_mode_can_have_a_child() {
    let on_bond = |keys| {
        let host = Host {
            bond: Some(Bond {
                mode: Some(BondMode::Ieee8023ad),
                active: None,
                ports: Vec::new(),
            }),
            ..lan()
        };
        plan(keys, &host)
    };
    for mode in ["macvlan", "ipvlan"] {
        let child = on_bond(json!({"mode": mode})).unwrap();
        assert_eq!((child.parent.as_str(), child.ports.len()), ("eth0", 0));
    }
    let error = cni::Error::from(on_bond(json!({"bond": "active"})).unwrap_err());
    assert_eq!(
        (error.code.0, error.msg.as_str()),
        (
            2,
            "bond active is not supported: a port of an Ethernet bond carries no child; remove bond, and the child sits on the bond itself"
        )
    );
    assert_eq!(
        refused(json!({"mode": "macvlan"}), &pair()).0,
        7,
        "nor is InfiniBand Ethernet"
    );
}

#[test]
fn the_error_for_an_ethernet_bond_without_carrier_lists_its_ports() {
    let mut host = lan();
    host.root.carrier = false;
    let with = |ports| Host {
        bond: Some(Bond {
            mode: None,
            active: None,
            ports,
        }),
        ..host.clone()
    };
    let port = |name: &str| {
        let link = Link {
            carrier: false,
            ..ethernet(3, name)
        };
        BondPort {
            root: link.clone(),
            link,
            port: None,
            pci: None,
            drivers: Drivers::default(),
        }
    };
    assert_refused([
        (
            json!({}),
            with(vec![port("eth1")]),
            102,
            "eth0 carries nothing: eth1 has no carrier; check cables, switch ports and, on InfiniBand, the subnet manager",
        ),
        (
            json!({}),
            with(Vec::new()),
            102,
            "eth0 has no ports; was it restarted without them? put them back: ip link set PORT master eth0",
        ),
    ]);
}
