// SPDX-License-Identifier: Apache-2.0
use super::function_at;
use crate::device::fixture::{Host, WAYS, fixture, host};
use crate::intent::Function;
use crate::kernel::Side;
use crate::model::{Fault, Fixture, Virtual, ipoib};
use common::cni::{self, CniResult, Code};
use common::netlink::{FunctionState, HwAddress, Link, NetnsMode};
use common::rdma::Guid;
use serde_json::json;
use std::fs;

pub(crate) const OWN: u64 = 0x248a_0703_00b4_0d01;
/// Its RDMA device has a GUID of its own.
const OWN_NODE: u64 = 0x248a_0703_00b4_0d00;
const ASKED: u64 = 0x0200_0000_0000_0021;
const PCI: &str = "0000:3b:00.2";

fn address(guid: u64) -> HwAddress {
    let mut bytes = ipoib(0, "", 0xffff).address.as_bytes().to_vec();
    bytes[12..].copy_from_slice(&guid.to_be_bytes());
    HwAddress::new(bytes)
}

/// The GUID of the RDMA device whose port has `guid`.
fn node_of(guid: u64) -> u64 {
    if guid == OWN { OWN_NODE } else { guid }
}

/// The fixture's node with `ib2`, on virtual function 1 of the device of `ib0`.
pub(crate) fn rig_with(way: (NetnsMode, bool), guid: u64) -> Fixture {
    let fixture = fixture(way);
    let physical = "devices/pci0000:3a/0000:3b:00.0";
    let function = format!("devices/pci0000:3a/{PCI}");
    fixture
        .node
        .device("mlx5_2", PCI)
        .port("mlx5_2", 1, "InfiniBand", "4: ACTIVE")
        .netdev("ib2", 8, PCI)
        .write(
            "class/infiniband/mlx5_2/node_guid",
            &Guid(node_of(guid)).to_string(),
        )
        .follow(
            &format!("{function}/infiniband/mlx5_2"),
            "class/infiniband/mlx5_2",
        )
        .write("bus/pci/drivers/mlx5_core/bind", "")
        .write(&format!("{physical}/sriov_numvfs"), "2")
        .write(&format!("{physical}/net/ib0/ifindex"), "4")
        .follow(&format!("{function}/driver"), "bus/pci/drivers/mlx5_core")
        .follow(&format!("{function}/physfn"), physical)
        .follow(&format!("{physical}/virtfn0"), "devices/pci0000:3a/0000:3b:00.1")
        .follow(&format!("{physical}/virtfn1"), &function);
    let entry = format!("fe80:0000:0000:0000:{}", Guid(guid));
    fixture
        .node
        .write("class/infiniband/mlx5_2/ports/1/gids/0", &entry);
    let mut model = fixture.kernel.set();
    // The model stores sysctls by name, and in the pod the function's link may be named ib0 for a while.
    model.state.left.sysctls.retain(|(of, _)| of != "ib0");
    model.state.host.push(Link {
        device: Some(format!("pci/{PCI}")),
        address: address(guid),
        altnames: vec!["rail2".to_owned()],
        alias: Some("a function".to_owned()),
        carrier: false,
        mtu: 2044,
        ..ipoib(8, "ib2", 0xffff)
    });
    model.state.rdma.device(3, "mlx5_2", node_of(guid), None);
    model.state.functions.push(Virtual {
        physical: 4,
        number: 1,
        device: format!("pci/{PCI}"),
        rdma: 3,
        node_guid: Guid(node_of(guid)),
        port_guid: Guid(guid),
        link_state: Some(FunctionState::Disable),
        unbound: None,
        stubborn: false,
        sysfs: fixture.node.path().join("class/infiniband/mlx5_2"),
        udev: None,
    });
    drop(model);
    fixture
}

fn add(fixture: &Fixture) -> Result<CniResult, cni::Error> {
    let keys = json!({"mode": "device", "master": "ib2", "guid": Guid(ASKED).to_string(), "mtu": 2000});
    fixture.add_with("c1", &keys)
}

fn guid_of(link: &Link) -> u64 {
    link.address.port_guid().unwrap().0
}

fn assert_clean(fixture: &Fixture, before: &Host, guid: u64, case: &str) {
    assert_eq!(&host(fixture), before, "{case}");
    let state = fixture.kernel.state();
    assert!(state.pod.is_empty(), "{case}");
    let function = &state.functions[0];
    let guids = (function.node_guid.0, function.port_guid.0);
    assert_eq!(guids, (node_of(guid), guid), "{case}");
    assert_eq!(function.link_state, Some(FunctionState::Disable), "{case}");
    let shown = fs::read_to_string(function.sysfs.join("node_guid")).unwrap();
    assert_eq!(
        shown.trim(),
        Guid(node_of(guid)).to_string(),
        "{case}: the driver uses it"
    );
    assert_eq!(state.functions[0].unbound, None, "{case}");
    assert_eq!(fixture.written_down(), [""; 0], "{case}");
}

#[test]
fn a_virtual_function_gets_its_guid_until_del() {
    for way in WAYS {
        let fixture = rig_with(way, OWN);
        let before = host(&fixture);
        let result = add(&fixture).unwrap_or_else(|e| panic!("{way:?}: {e:?}"));
        let state = fixture.kernel.state();
        let [link] = state.pod.as_slice() else {
            panic!("{way:?}: {:?}", state.pod)
        };
        assert_eq!(
            (guid_of(link), link.name.as_str(), link.mtu),
            (ASKED, "net1", 2000),
            "{way:?}"
        );
        assert_eq!(result.interfaces[0].mac, address(ASKED).to_string());
        assert_eq!(result.interfaces[0].pci_id, PCI);
        if way.0 == NetnsMode::Exclusive {
            assert_eq!(state.rdma.names(Side::Pod), ["mlx5_2"], "{way:?}");
            let written = fixture.entry("c1").intent.unwrap().rdma.unwrap();
            assert_eq!(written.device.index, 13, "the device that the driver recreated");
        }
        fixture.del("c1").unwrap();
        assert_clean(&fixture, &before, OWN, &format!("{way:?}"));
    }
}

/// The next pod has the device with another GUID and another index by then.
#[test]
fn a_late_del_leaves_a_function_to_the_next_pod_with_another_guid() {
    for way in WAYS {
        let fixture = rig_with(way, OWN);
        let before = host(&fixture);
        add(&fixture).unwrap();
        fixture.kill_pod("c1");
        let keys = json!({"mode": "device", "master": "ib2", "guid": Guid(ASKED + 1).to_string()});
        fixture
            .add_with("c2", &keys)
            .unwrap_or_else(|e| panic!("{way:?}: {e:?}"));
        fixture
            .del_without_netns("c1")
            .unwrap_or_else(|e| panic!("{way:?}: {e:?}"));
        assert_eq!(fixture.kernel.state().pod.len(), 1, "{way:?}");
        fixture.del("c2").unwrap();
        assert_clean(&fixture, &before, OWN, &format!("{way:?}"));
    }
}

/// The fixture's node, on which udev renames the link and the RDMA device of the function so many requests after a bind.
fn renamed_by_udev(way: (NetnsMode, bool), requests: (usize, usize)) -> Fixture {
    let fixture = rig_with(way, OWN);
    let links = fixture.node.path().join("class/net");
    fs::rename(links.join("ib2"), links.join("ibs3v1")).unwrap();
    {
        let mut model = fixture.kernel.set();
        model.state.host.last_mut().unwrap().name = "ibs3v1".to_owned();
        model.state.functions[0].udev = Some(requests);
    }
    fixture
}

#[test]
fn a_function_that_udev_renames_after_the_bind_gets_its_guid() {
    for way in WAYS {
        // In one mode from a rename before the link is found to one after the plan.
        let last = if way == WAYS[1] { 28 } else { 3 };
        for number in 1..=last {
            let fixture = renamed_by_udev(way, (number, number.min(4)));
            let keys = json!({"mode": "device", "master": "ibs3v1", "guid": Guid(ASKED).to_string()});
            let case = format!("{way:?}, the link is renamed by request {number}");
            fixture.add_with("c1", &keys).expect(&case);
            let state = fixture.kernel.state();
            let [link] = state.pod.as_slice() else {
                panic!("{case}: {:?}", state.pod)
            };
            assert_eq!((guid_of(link), link.name.as_str()), (ASKED, "net1"), "{case}");
            if way.0 == NetnsMode::Exclusive {
                assert_eq!(state.rdma.names(Side::Pod), ["mlx5_2"], "{case}");
            }
            fixture.del("c1").expect(&case);
        }
    }
}

#[test]
fn a_function_that_is_up_or_has_no_link_state_keeps_its_link_state() {
    for state in [Some(FunctionState::Enable), Some(FunctionState::Auto), None] {
        let fixture = rig_with(WAYS[0], OWN);
        let present = || fixture.kernel.state().functions[0].link_state;
        fixture.kernel.set().state.functions[0].link_state = state;
        add(&fixture).unwrap();
        assert_eq!(present(), state);
        fixture.del("c1").unwrap();
        assert_eq!(present(), state);
    }
}

#[test]
fn the_error_of_a_port_without_carrier_names_the_link_state() {
    let fixture = rig_with(WAYS[0], ASKED);
    let error = add(&fixture).unwrap_err();
    assert_eq!(error.code, Code::NO_CARRIER);
    assert!(
        error.msg.contains("ip link set PF vf N state auto"),
        "{}",
        error.msg
    );
}

#[test]
fn a_guid_in_use_on_the_node_is_refused() {
    for way in WAYS {
        let fixture = rig_with(way, OWN);
        let before = host(&fixture);
        let of_ib0 = guid_of(&ipoib(4, "ib0", 0xffff));
        let keys = json!({"mode": "device", "master": "ib2", "guid": Guid(of_ib0).to_string()});
        let error = fixture.add_with("c1", &keys).unwrap_err();
        assert_eq!(error.code, Code::INVALID_CONFIG);
        let text = format!("ib2 is not given the GUID {}: mlx5_0 port 1 has it", Guid(of_ib0));
        assert!(error.msg.starts_with(&text), "{}", error.msg);
        assert_clean(&fixture, &before, OWN, &format!("{way:?}"));
    }
}

/// Runs ADD with a fault at each request in turn, and then `after`.
fn at_each_request(fault: fn(usize) -> Fault, after: impl Fn(&Fixture, &str, bool)) {
    for way in WAYS {
        let fixture = rig_with(way, OWN);
        let before = host(&fixture);
        for number in 0.. {
            fixture.kernel.fail(fault(number));
            let added = add(&fixture);
            let failed = fixture.kernel.get().log.get(number).cloned();
            let case = format!("{way:?} {:?}: {failed:?}", fault(number));
            fixture.kernel.fail(Fault::None);
            after(&fixture, &case, added.is_ok());
            assert_clean(&fixture, &before, OWN, &case);
            if failed.is_none() {
                assert!(number >= 30, "{way:?}: {number} requests only");
                break;
            }
        }
    }
}

#[test]
fn a_failure_at_any_step_leaves_the_function_as_it_was() {
    for fault in [Fault::Refused, Fault::AnswerLost] {
        at_each_request(fault, |fixture, case, added| {
            if added {
                fixture.del("c1").expect(case);
            }
        });
    }
}

#[test]
fn after_a_kill_at_any_step_del_gc_and_add_restore_the_guids() {
    at_each_request(Fault::From, |fixture, case, _| fixture.del("c1").expect(case));
    at_each_request(Fault::From, |fixture, case, _| {
        fixture.gc(&["other"]).expect(case);
    });
    at_each_request(Fault::From, |fixture, case, _| {
        fixture.kernel.set().state.pod_dies();
        fixture.del_without_netns("c1").expect(case);
    });
    at_each_request(Fault::From, |fixture, case, _| {
        if !fixture.entry("c1").done {
            add(fixture).expect(case);
        }
        fixture.del("c1").expect(case);
    });
}

#[test]
fn a_del_killed_at_any_step_is_finished_by_another_one() {
    for way in WAYS {
        let fixture = rig_with(way, OWN);
        let before = host(&fixture);
        for number in 0.. {
            add(&fixture).unwrap();
            fixture.kernel.fail(Fault::From(number));
            let ended = fixture.del("c1").is_ok();
            fixture.kernel.fail(Fault::None);
            let case = format!("{way:?} DEL killed at {number}");
            fixture.del("c1").expect(&case);
            if ended {
                assert!(number >= 10, "{way:?}: {number} requests only");
                break;
            }
            assert_clean(&fixture, &before, OWN, &case);
        }
    }
}

#[test]
fn a_function_without_a_guid_does_not_keep_the_pods() {
    for none in [0, Guid::NONE.0] {
        let fixture = rig_with(WAYS[0], none);
        add(&fixture).unwrap();
        assert_eq!(guid_of(&fixture.kernel.state().pod[0]), ASKED);
        fixture.del("c1").unwrap();
        let state = fixture.kernel.state();
        let function = &state.functions[0];
        assert_eq!((function.node_guid, function.port_guid), (Guid::NONE, Guid::NONE));
        let link = state.host.iter().find(|link| link.name == "ib2").unwrap();
        assert_eq!(guid_of(link), Guid::NONE.0);
        let refused = fixture
            .add_with("c1", &json!({"mode": "device", "master": "ib2"}))
            .unwrap_err();
        assert_eq!(refused.code, Code::INVALID_CONFIG);
        assert!(
            refused.msg.contains("its port has no GUID (ffff:ffff:ffff:ffff)"),
            "{}",
            refused.msg
        );
        assert!(refused.msg.contains("set \"guid\""), "{}", refused.msg);
    }
}

#[test]
fn a_function_that_has_the_guid_already_is_moved_unchanged() {
    let fixture = rig_with(WAYS[0], ASKED);
    let set = |state| fixture.kernel.set().state.functions[0].link_state = Some(state);
    set(FunctionState::Enable);
    fixture.kernel.set().state.host.last_mut().unwrap().carrier = true;
    let before = host(&fixture);
    add(&fixture).unwrap();
    let touched = |request: &&String| {
        let starts = ["set the GUIDs", "set the link state", "unbind"];
        starts.iter().any(|start| request.starts_with(start))
    };
    assert_eq!(fixture.kernel.get().log.iter().find(touched), None);
    fixture.del("c1").unwrap();
    set(FunctionState::Disable);
    assert_clean(&fixture, &before, ASKED, "after DEL");
}

#[test]
fn a_guid_that_cannot_be_set_is_refused_before_any_change() {
    let fixture = rig_with(WAYS[0], OWN);
    let before = host(&fixture);
    fs::remove_dir_all(
        fixture
            .node
            .path()
            .join("devices/pci0000:3a/0000:3b:00.0/net/ib0"),
    )
    .unwrap();
    let error = add(&fixture).unwrap_err();
    assert_eq!(error.code, Code::INVALID_CONFIG);
    assert!(
        error
            .msg
            .contains("virtual function 1 of 0000:3b:00.0 (0000:3b:00.2)"),
        "{}",
        error.msg
    );
    assert_clean(&fixture, &before, OWN, "refused");
}

#[test]
fn a_driver_that_uses_another_guid_is_reported() {
    let fixture = rig_with(WAYS[0], OWN);
    let before = host(&fixture);
    fixture.kernel.set().state.functions[0].stubborn = true;
    let error = add(&fixture).unwrap_err();
    assert_eq!(error.code, Code::KERNEL);
    let expected = "given the GUID 0200:0000:0000:0021 and has 248a:0703:00b4:0d01";
    assert!(error.msg.contains(expected), "{}", error.msg);
    assert_clean(&fixture, &before, OWN, "refused");
}

#[test]
fn a_pod_is_removed_though_the_physical_function_is_gone() {
    let fixture = rig_with(WAYS[0], OWN);
    add(&fixture).unwrap();
    fs::remove_dir_all(fixture.node.path().join("devices/pci0000:3a/0000:3b:00.0/net")).unwrap();
    fixture.del("c1").unwrap();
    assert!(fixture.written_down().is_empty());
    assert!(fixture.kernel.state().host.iter().any(|link| link.name == "ib2"));
}

#[test]
fn a_function_cannot_be_moved_into_two_pods() {
    let fixture = rig_with(WAYS[0], OWN);
    fixture.kernel.fail(Fault::Every("bind"));
    add(&fixture).unwrap_err();
    fixture.kernel.fail(Fault::None);
    {
        let mut model = fixture.kernel.set();
        let (link, device) = model.state.functions[0].unbound.take().unwrap();
        model.state.host.push(link);
        model.state.rdma.devices.push((Side::Host, device));
    }
    let error = fixture
        .add_with("c2", &json!({"mode": "device", "master": "ib2"}))
        .unwrap_err();
    assert_eq!(error.code, Code::TRY_AGAIN, "{error:?}");
}

#[test]
fn sysfs_shows_the_function_its_number_and_its_guids() {
    let fixture = rig_with(WAYS[0], OWN);
    let root = fixture.node.path().canonicalize().unwrap();
    let directory = |pci: &str| root.join("devices/pci0000:3a").join(pci);
    let link = fixture.kernel.state().host.pop().unwrap();
    let expected = Function {
        path: directory(PCI),
        physical: directory("0000:3b:00.0"),
        number: 1,
        driver: root.join("bus/pci/drivers/mlx5_core"),
        node_guid: Guid(OWN_NODE),
        port_guid: Guid(OWN),
        link_state: None,
    };
    assert_eq!(function_at(&directory(PCI), &link), Some(expected));
    assert_eq!(
        function_at(&directory("0000:3b:00.0"), &link),
        None,
        "a physical function"
    );
}
