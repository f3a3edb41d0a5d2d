// SPDX-License-Identifier: Apache-2.0
mod bond;

use crate::device;
use crate::model::{Fault, Fixture, attachment, ethernet, of_kind};
use common::cni::dispatch::Plugin as _;
use common::cni::{self, CniResult, Code};
use common::netlink::{IpoibMode, Link, LinkInfo, MacvlanMode, RouteEntry};
use common::rdma::Pkey;
use serde_json::json;

fn attached() -> (Fixture, CniResult) {
    let fixture = Fixture::new();
    let result = fixture.add("c1").unwrap();
    (fixture, result)
}

/// CHECK after `change` of the pod's link.
fn after(change: impl FnOnce(&mut Link)) -> Result<(), cni::Error> {
    let (fixture, prev) = attached();
    change(&mut fixture.kernel.set().state.pod[0]);
    fixture.check("c1", &prev)
}

#[test]
fn check_accepts_the_result_of_add_and_calls_the_ipam_plugin() {
    let (fixture, prev) = attached();
    fixture.check("c1", &prev).unwrap();
    assert_eq!(fixture.ipam.verbs(), ["ADD", "CHECK"]);
    fixture.ipam.fail(true);
    assert_eq!(fixture.check("c1", &prev).unwrap_err().code, Code(99));
}

/// A change of the pod's link.
type Change = Box<dyn FnOnce(&mut Link)>;

#[test]
fn every_change_of_the_link_is_reported() {
    let ipoib = |pkey, mode| LinkInfo::Ipoib {
        pkey: Pkey(pkey),
        mode,
        umcast: false,
    };
    let cases: [(&str, Change); 9] = [
        ("it is down", Box::new(|link| link.up = false)),
        ("its MTU is 1999, was 2000", Box::new(|link| link.mtu = 1999)),
        ("its parent is not ib0", Box::new(|link| link.parent = Some(77))),
        (
            "another program made it (its group and alias are not this attachment's)",
            Box::new(|link| link.group = 0),
        ),
        (
            "another program made it (its group and alias are not this attachment's)",
            Box::new(|link| link.alias = Some("x".to_owned())),
        ),
        (
            "its address is 02:00:00:00:00:05, was 00:00:00:65:fe:80:00:00:00:00:00:00:24:8a:07:03:00:b4:0c:5e",
            Box::new(|link| link.address = "02:00:00:00:00:05".parse().unwrap()),
        ),
        (
            "its P_Key is 0x8001, want 0xffff",
            Box::new(move |link| link.info = ipoib(0x8001, IpoibMode::Datagram)),
        ),
        (
            "its IPoIB mode is connected, want datagram",
            Box::new(move |link| link.info = ipoib(0xffff, IpoibMode::Connected)),
        ),
        (
            "it is a link of kind macvlan, want ipoib",
            Box::new(|link| {
                link.kind = Some("macvlan".to_owned());
                link.info = LinkInfo::Macvlan {
                    mode: MacvlanMode::Bridge,
                };
            }),
        ),
    ];
    for (finding, change) in cases {
        let error = after(change).unwrap_err();
        assert_eq!(error.code, Code::CHECK_FAILED, "{finding}");
        let text = format!("net1 is not as ADD left it: {finding}");
        assert!(error.msg.starts_with(&text), "{}", error.msg);
    }
}

/// The kernel creates a child of a macvlan or ipvlan link on the parent of that link.
#[test]
fn check_accepts_the_child_of_a_link_of_its_own_kind() {
    for kind in ["macvlan", "ipvlan"] {
        let fixture = device::fixture::fixture(device::fixture::WAYS[0]);
        let own = Link {
            parent: Some(6),
            ..of_kind(kind, ethernet(30, "own0"))
        };
        fixture.kernel.set().state.host.push(own);
        let keys = json!({"master": "own0", "mode": kind});
        let prev = fixture.add_with("c1", &keys).unwrap();
        assert_eq!(fixture.kernel.state().pod[0].parent, Some(6), "{kind}");
        fixture
            .check_with("c1", &prev, keys.clone())
            .unwrap_or_else(|error| panic!("{kind}: {error:?}"));
        fixture.kernel.set().state.pod[0].parent = Some(30);
        let error = fixture.check_with("c1", &prev, keys).unwrap_err();
        assert!(error.msg.contains("its parent is not own0"), "{kind}: {error:?}");
    }
}

#[test]
fn check_reports_all_differences_at_once() {
    let (fixture, prev) = attached();
    {
        let state = &mut fixture.kernel.set().state;
        state.pod[0].up = false;
        state.addresses.remove(0);
        state.routes.retain(|route| route.table.is_some());
    }
    let error = fixture.check("c1", &prev).unwrap_err();
    let text =
        "net1 is not as ADD left it: it is down; address 10.0.0.2/24 is gone; the route to 0.0.0.0/0 is gone";
    assert_eq!((error.code, error.msg.as_str()), (Code::CHECK_FAILED, text));
    assert_eq!(fixture.ipam.verbs(), ["ADD"]);
}

#[test]
fn a_missing_link_is_reported() {
    let (fixture, prev) = attached();
    fixture.kernel.set().state.pod.clear();
    assert_eq!(
        fixture.check("c1", &prev).unwrap_err().msg,
        "net1 is not as ADD left it: it is gone"
    );
}

#[test]
fn additions_of_other_plugins_are_no_difference() {
    let (fixture, prev) = attached();
    {
        let state = &mut fixture.kernel.set().state;
        let index = state.pod[0].index;
        state.addresses.push((index, "192.0.2.1/24".parse().unwrap()));
        state
            .routes
            .push(RouteEntry::new("192.0.2.0/24".parse().unwrap(), index));
        state.pod.push(ethernet(900, "eth0"));
    }
    fixture.check("c1", &prev).unwrap();
}

#[test]
fn other_interfaces_of_the_chain_are_not_checked() {
    let (fixture, mut prev) = attached();
    let chain = json!({
        "interfaces": [{"name": "eth0", "sandbox": "/ns"}],
        "ips": [{"address": "192.0.2.7/24", "interface": 0}],
        "routes": [{"dst": "198.51.100.0/24", "gw": "192.0.2.1"}, {"dst": "203.0.113.0/24"}],
    });
    let chain = CniResult::from_json(&chain).unwrap();
    for ip in &mut prev.ips {
        ip.interface = Some(1);
    }
    prev.interfaces.insert(0, chain.interfaces[0].clone());
    prev.ips.extend(chain.ips);
    prev.routes.extend(chain.routes);
    fixture.check("c1", &prev).unwrap();
}

#[test]
fn check_without_a_previous_result_is_an_error() {
    let (fixture, _) = attached();
    let call = fixture.call(&json!({}));
    for call in [
        call,
        fixture.call(&json!({"prevResult": {"interfaces": [{"name": "net1"}]}})),
    ] {
        let error = fixture
            .plugin()
            .check(&call, &attachment("c1"), &fixture.pod.path())
            .unwrap_err();
        let text = "CHECK needs prevResult with the interface net1; the runtime must pass the result of ADD";
        assert_eq!((error.code, error.msg.as_str()), (Code::INVALID_CONFIG, text));
    }
}

#[test]
fn a_failed_kernel_request_is_an_error_and_not_a_finding() {
    let (fixture, prev) = attached();
    for number in 0.. {
        fixture.kernel.fail(Fault::Refused(number));
        let checked = fixture.check("c1", &prev);
        if fixture.kernel.get().log.len() <= number {
            assert!(number >= 4, "CHECK makes {number} requests");
            return checked.unwrap();
        }
        assert_eq!(checked.unwrap_err().code, Code::KERNEL);
    }
}

#[test]
fn check_changes_nothing() {
    let (fixture, prev) = attached();
    let before = fixture.kernel.state();
    fixture.check("c1", &prev).unwrap();
    assert_eq!(fixture.kernel.state(), before);
    assert!(fixture.entry("c1").done);
}
