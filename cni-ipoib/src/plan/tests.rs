// SPDX-License-Identifier: Apache-2.0
#![expect(
    clippy::needless_pass_by_value,
    reason = "a table reads better without a reference before each value"
)]

mod address;
mod bond;
mod down;
mod layers;

use super::*;
use crate::host::Drivers;
use crate::model::{bond, call, call_with, ethernet, ipoib, link, of_kind};
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
        drivers: Drivers::default(),
        bond: None,
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

/// `ib0` on a driver without its own data path, whose links set the RC flag in their address.
fn with_connections() -> Host {
    let mut host = infiniband();
    host.master.address = IB_ADDRESS.replacen("00", "80", 1).parse().unwrap();
    host.root = host.master.clone();
    host
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
        (Some(Pkey(0xffff)), Some(IpoibMode::Datagram), Some(false))
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
    assert_eq!(child.pci.unwrap().to_string(), "0000:3b:00.0");

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
fn unset_keys_are_inherited_from_the_parent() {
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
        (Some(Pkey(0x8001)), Some(IpoibMode::Connected), Some(true)),
        "the kernel gives a child no umcast by itself"
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
