// SPDX-License-Identifier: Apache-2.0
//! Addresses that the IPAM plugin marks for a probe, and one without the mark.

use super::*;
use common::netlink::{BondMode, FailOverMac};
use common::probe::Claim;

fn probed() -> Ipam {
    Ipam::giving(&json!({
        "ips": [
            {"address": "10.0.0.2/24", "rdmanet.io/probe": true},
            {"address": "fd00:1::2/64"},
        ],
    }))
}

/// A bond of one `IPoIB` port. The bond gets the link layer and the address of that port.
fn bond_plan() -> Plan {
    let port = plan(Mode::Ipoib, IPOIB).child;
    let mut bond = plan(
        Mode::Ipoib,
        NewLinkKind::Bond {
            mode: BondMode::ActiveBackup,
            miimon: 100,
            fail_over_mac: FailOverMac::Active,
            peer_notifications: 5,
        },
    );
    bond.child.side = Side::Pod;
    bond.child.way = Way::Direct;
    bond.child.ports = vec![Child { mtu: None, ..port }];
    bond
}

fn position(log: &[String], start: &str) -> usize {
    let found = log.iter().position(|request| request.starts_with(start));
    found.unwrap_or_else(|| panic!("no {start:?} in {log:?}"))
}

#[test]
fn an_address_is_probed_before_it_is_added_and_announced_after() {
    for (mode, plan) in [
        (Mode::Ipoib, plan(Mode::Ipoib, IPOIB)),
        (Mode::Macvlan, plan(Mode::Macvlan, MACVLAN)),
        (Mode::Ipoib, bond_plan()),
    ] {
        let mut bench = Bench::new(mode, probed());
        bench.attach(&plan).unwrap();
        let log = bench.log();
        let order = [
            "give fd00:1::2/64",
            "bring ",
            "probe 1 on net1",
            "give 10.0.0.2/24",
            "announce",
        ];
        let places: Vec<usize> = order.iter().map(|start| position(&log, start)).collect();
        assert!(places.is_sorted(), "{mode}: {log:?}");
    }
}

#[test]
fn an_address_of_another_host_is_refused_and_released() {
    let mut bench = Bench::new(Mode::Ipoib, probed());
    bench.kernel.set().claim = Some(Claim {
        address: "10.0.0.2".parse().unwrap(),
        hardware: Some(
            "00:00:20:50:fe:80:00:00:00:00:00:00:24:8a:07:03:00:b4:0c:5e"
                .parse()
                .unwrap(),
        ),
        probes: false,
    });
    let error = bench.refused(&plan(Mode::Ipoib, IPOIB));
    assert_eq!(error.code, Code::ADDRESS_ANSWERED);
    for part in ["10.0.0.2", "net1", "port GUID 248a:0703:00b4:0c5e"] {
        assert!(error.msg.contains(part), "{error} lacks {part}");
    }
    let log = bench.log();
    assert!(
        !log.iter().any(|request| request.starts_with("give 10.0.0.2")),
        "{log:?}"
    );
    assert_eq!(bench.ipam.verbs(), ["ADD", "DEL"]);
}

#[test]
fn a_failed_probe_fails_add() {
    let mut bench = Bench::new(Mode::Macvlan, probed());
    bench.kernel.fail(Fault::Every("probe"));
    assert_eq!(bench.refused(&plan(Mode::Macvlan, MACVLAN)).code, Code::KERNEL);
}

#[test]
fn nothing_is_probed_unless_the_ipam_plugin_marks_it() {
    let mut bench = Bench::new(Mode::Ipoib, Ipam::dual_stack());
    bench.attach(&plan(Mode::Ipoib, IPOIB)).unwrap();
    let log = bench.log();
    assert!(!log.iter().any(|request| request.starts_with("probe")), "{log:?}");
}

/// How many requests in `log` look for carrier. After the time of the probe no request does: carrier that comes then
/// would let an `IPoIB` link use an unprobed address.
fn waits(log: &[String]) -> usize {
    let waits = |request: &&String| request.starts_with("wait ");
    log.iter().filter(waits).count()
}

/// The pod cannot reach a host that has the address, and a macvlan child may wait for its parent's carrier.
#[test]
fn an_address_on_a_link_without_carrier_is_added_unprobed() {
    let mut bench = Bench::new(Mode::Macvlan, probed());
    bench.kernel.set().carrier = false;
    bench.kernel.fail(Fault::Every("probe"));
    assert!(!bench.attach(&plan(Mode::Macvlan, MACVLAN)).unwrap().link.carrier);
    let log = bench.log();
    assert!(position(&log, "bring ") < position(&log, "give 10.0.0.2/24"));
    assert!(!log.iter().any(|request| request.starts_with("probe")), "{log:?}");
    assert_eq!(waits(&log), 1, "{log:?}");
}

#[test]
fn an_unprobed_address_of_an_ipoib_child_without_carrier_is_released() {
    let mut bench = Bench::new(Mode::Ipoib, probed());
    bench.kernel.set().carrier = false;
    let error = bench.refused(&plan(Mode::Ipoib, IPOIB));
    assert!(
        error.msg.starts_with("net1 has no carrier after 10s: "),
        "{error}"
    );
    assert_eq!(bench.ipam.verbs(), ["ADD", "DEL"]);
    assert_eq!(waits(&bench.log()), 1);
}
