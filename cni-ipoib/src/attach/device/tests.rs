// SPDX-License-Identifier: Apache-2.0
use crate::device::fixture::{Host, WAYS, add, fixture, host, rig_with};
use crate::kernel::Side;
use crate::model::{Fault, Fixture, Ipam, ethernet};
use common::cni::Code;
use common::netlink::{IpoibMode, Link, LinkInfo, NetnsMode};
use serde_json::json;

/// Asserts that the host is unchanged and nothing of an attachment is left.
fn assert_clean(fixture: &Fixture, before: &Host, case: &str) {
    assert_eq!(&host(fixture), before, "{case}");
    assert!(fixture.kernel.state().pod.is_empty(), "{case}");
    assert_eq!(fixture.written_down(), [""; 0], "{case}");
    assert!(!fixture.info_file().exists(), "{case}");
}

/// Whether ADD succeeds though this request fails. After a kill at the list of queue pairs, later requests fail too.
fn is_harmless(request: &str, fault: Fault) -> bool {
    let list = request.starts_with("list the queue pairs") && !matches!(fault, Fault::From(_));
    list || request.starts_with("announce")
}

/// Runs `life` on each link in each mode, with a fault at the first request, then at the second, and so on until no
/// request is left.
fn everywhere(
    fault: fn(usize) -> Fault,
    ipam: fn() -> Ipam,
    mut life: impl FnMut(&Fixture, &str, Option<&str>, &str),
) {
    for way in WAYS {
        // The Ethernet link has no RDMA part.
        let links: &[_] = if way == WAYS[0] {
            &["ib0", "ens1"]
        } else {
            &["ib0"]
        };
        for link in links {
            let fixture = rig_with(ipam(), way);
            let before = host(&fixture);
            let mut number = 0;
            loop {
                fixture.kernel.fail(fault(number));
                let added = add(&fixture, link);
                let log = fixture.kernel.get().log.clone();
                let failed = log.get(number).cloned();
                let case = format!("{way:?} {link} {:?}: {failed:?}", fault(number));
                let harmless = |failed: &String| is_harmless(failed, fault(number));
                assert_eq!(
                    added.is_ok(),
                    failed.as_ref().is_none_or(harmless),
                    "{case}: {added:?}"
                );
                life(&fixture, link, failed.as_deref(), &case);
                fixture.kernel.fail(Fault::None);
                assert_clean(&fixture, &before, &case);
                if failed.is_none() {
                    break;
                }
                number += 1;
            }
            assert!(number >= 18, "{way:?} {link}: {number} requests only");
        }
    }
}

#[test]
fn a_failure_at_any_step_restores_the_host() {
    for fault in [Fault::Refused, Fault::AnswerLost] {
        everywhere(fault, Ipam::dual_stack, |fixture, _, failed, case| {
            if failed.is_none_or(|failed| is_harmless(failed, fault(0))) {
                fixture.kernel.fail(Fault::None);
                fixture.del("c1").expect(case);
            }
            let verbs = fixture.ipam.verbs();
            assert_ne!(verbs.last().map(String::as_str), Some("ADD"), "{case}");
        });
    }
}

/// Kills ADD at each request: the kernel is unreachable after it. Then `after` cleans up.
fn after_a_kill(after: impl Fn(&Fixture, &str)) {
    everywhere(Fault::From, Ipam::dual_stack, |fixture, _, _, case| {
        fixture.kernel.fail(Fault::None);
        after(fixture, case);
    });
}

#[test]
fn after_a_kill_at_any_step_del_restores_the_host() {
    after_a_kill(|fixture, case| fixture.del("c1").expect(case));
}

#[test]
fn after_a_kill_at_any_step_del_without_netns_restores_the_host() {
    after_a_kill(|fixture, case| fixture.del_without_netns("c1").expect(case));
}

#[test]
fn after_a_kill_at_any_step_gc_restores_the_host() {
    after_a_kill(|fixture, case| fixture.gc(&["other"]).expect(case));
}

#[test]
fn after_a_kill_and_the_pods_death_del_restores_the_host() {
    after_a_kill(|fixture, case| {
        fixture.kernel.set().state.pod_dies();
        fixture.del_without_netns("c1").expect(case);
    });
}

#[test]
fn after_a_kill_at_any_step_another_add_succeeds() {
    everywhere(Fault::From, Ipam::dual_stack, |fixture, link, _, case| {
        fixture.kernel.fail(Fault::None);
        if fixture.entry("c1").done {
            assert_eq!(
                add(fixture, link).unwrap_err().code,
                Code::IFNAME_IN_USE,
                "{case}"
            );
        } else {
            add(fixture, link).expect(case);
        }
        fixture.del("c1").expect(case);
    });
}

#[test]
fn after_a_kill_of_del_at_any_step_another_add_succeeds() {
    for (way, link) in [
        (WAYS[0], "ens1"),
        (WAYS[0], "ib0"),
        (WAYS[1], "ib0"),
        (WAYS[2], "ib0"),
    ] {
        let fixture = fixture(way);
        let before = host(&fixture);
        let mut number = 0;
        loop {
            add(&fixture, link).unwrap();
            fixture.kernel.fail(Fault::From(number));
            // If the fault hits the last request, it causes only a warning, which is not a kill.
            let ended = fixture.del("c1").is_ok();
            fixture.kernel.fail(Fault::None);
            if ended {
                break;
            }
            let case = format!("{way:?} {link} DEL killed at {number}");
            match add(&fixture, link) {
                Ok(_) => {}
                Err(error) => assert_eq!(error.code, Code::IFNAME_IN_USE, "{case}: {error:?}"),
            }
            fixture.del("c1").expect(&case);
            assert_clean(&fixture, &before, &case);
            number += 1;
        }
        assert!(number >= 5, "{way:?} {link}: DEL made {number} requests only");
    }
}

#[test]
fn the_pod_gets_the_link_under_its_name_with_its_settings() {
    for way in WAYS {
        let fixture = fixture(way);
        let result = add(&fixture, "ib0").unwrap();
        let state = fixture.kernel.state();
        assert!(state.host.iter().all(|link| link.name != "ib0"), "{way:?}");
        let [link] = state.pod.as_slice() else {
            panic!("{way:?}: {:?}", state.pod)
        };
        assert_eq!(
            (link.name.as_str(), link.mtu, link.up),
            ("net1", 2000, true),
            "{way:?}"
        );
        assert_eq!(link.alias.as_deref(), Some("rdmanet:fabric/c1@net1"));
        let LinkInfo::Ipoib { mode, umcast, .. } = link.info else {
            panic!("{:?}", link.info)
        };
        assert_eq!((mode, umcast), (IpoibMode::Connected, true), "{way:?}");
        let in_pod = if way.0 == NetnsMode::Exclusive { 1 } else { 2 };
        assert_eq!(
            state.rdma.names(Side::Pod).len(),
            if way.0 == NetnsMode::Exclusive { in_pod } else { 0 }
        );
        let [interface] = result.interfaces.as_slice() else {
            panic!("{:?}", result.interfaces)
        };
        assert_eq!(
            (interface.name.as_str(), interface.pci_id.as_str()),
            ("net1", "0000:3b:00.0")
        );
        let info: serde_json::Value =
            serde_json::from_slice(&std::fs::read(fixture.info_file()).unwrap()).unwrap();
        assert_eq!(
            info["pci"],
            json!({"pci-address": "0000:3b:00.0", "rdma-device": "mlx5_0"})
        );
        fixture.del("c1").unwrap();
    }
}

#[test]
fn an_ethernet_link_gets_the_requested_address_until_del() {
    let fixture = fixture(WAYS[0]);
    let before = host(&fixture);
    let result = fixture
        .add_with(
            "c1",
            &json!({"mode": "device", "master": "ens1", "mac": "02:aa:00:00:00:01"}),
        )
        .unwrap();
    assert_eq!(result.interfaces[0].mac, "02:aa:00:00:00:01");
    assert_eq!(fixture.kernel.state().pod[0].mtu, 9000);
    fixture.del("c1").unwrap();
    assert_clean(&fixture, &before, "after DEL");
}

/// Linux before 5.14 does not report the device of a link. A virtual function has no permanent address if its physical
/// function set no MAC.
#[test]
fn an_ethernet_link_that_del_could_not_recognize_stays_on_the_host() {
    for keys in [
        json!({"mode": "device", "master": "ens1"}),
        json!({"mode": "device", "master": "ens1", "mac": "02:aa:00:00:00:01"}),
    ] {
        let fixture = fixture(WAYS[0]);
        {
            let ens1 = &mut fixture.kernel.set().state.host[2];
            (ens1.device, ens1.perm_address) = (None, None);
        }
        let before = host(&fixture);
        let text = fixture.add_with("c1", &keys).unwrap_err().msg;
        assert!(text.contains("it has no permanent address"), "{keys}: {text}");
        assert!(text.contains("Linux 5.14"), "{keys}: {text}");
        assert_clean(&fixture, &before, &keys.to_string());
    }
}

/// Adds a link of `device` below the function of `ens1`. `path` is the directory of the device below that of the host bridge.
fn beside_ens1(fixture: &Fixture, device: &str, path: &str) -> Link {
    fixture.node.netdev("ens3", 9, path);
    fixture.node.write("class/net/ens3/dev_port", "1");
    let link = Link {
        device: Some(device.to_owned()),
        perm_address: "b8:3f:d2:00:00:09".parse().ok(),
        ..ethernet(9, "ens3")
    };
    fixture.kernel.set().state.host.push(link.clone());
    link
}

#[test]
fn a_port_without_a_permanent_address_stays_on_the_host_beside_another_port() {
    let fixture = fixture(WAYS[0]);
    beside_ens1(&fixture, "pci/0000:17:00.0", "0000:17:00.0");
    for link in &mut fixture.kernel.set().state.host {
        link.perm_address = None;
    }
    let before = host(&fixture);
    let text = add(&fixture, "ens1").unwrap_err().msg;
    assert!(text.contains("ens3 is on the same device"), "{text}");
    assert_clean(&fixture, &before, &text);
}

/// A subfunction is below the function of its parent. A port shares its function with another one.
#[test]
fn a_part_of_a_function_is_not_reported_as_the_function() {
    let subfunction = ("auxiliary/mlx5_core.sf.4", "0000:17:00.0/mlx5_core.sf.4");
    for (device, path) in [subfunction, ("pci/0000:17:00.0", "0000:17:00.0")] {
        let fixture = fixture(WAYS[0]);
        beside_ens1(&fixture, device, path);
        let result = add(&fixture, "ens3").unwrap();
        assert_eq!(result.interfaces[0].pci_id, "", "{device}");
        let info = std::fs::read(fixture.info_file()).unwrap();
        let info: serde_json::Value = serde_json::from_slice(&info).unwrap();
        assert_eq!(info["pci"], json!({"pf-pci-address": "0000:17:00.0"}), "{device}");
    }
}

#[test]
fn a_port_is_not_the_whole_function_while_another_pod_has_the_other_port() {
    let fixture = fixture(WAYS[0]);
    beside_ens1(&fixture, "pci/0000:17:00.0", "0000:17:00.0");
    add(&fixture, "ens1").unwrap();
    fixture.kernel.set().state.pod[0].name = "other".to_owned();
    let keys = json!({"mode": "device", "master": "ens3"});
    let result = fixture.add_with("c2", &keys).unwrap();
    assert_eq!(result.interfaces[0].pci_id, "");
}

/// A function of virtio has one virtio device, which is a device of its own in sysfs.
#[test]
fn the_link_of_a_virtio_device_is_reported_as_the_function() {
    let fixture = fixture(WAYS[0]);
    fixture
        .node
        .follow("class/net/ens1/device", "devices/pci0000:3a/0000:17:00.0/virtio0");
    let result = add(&fixture, "ens1").unwrap();
    assert_eq!(result.interfaces[0].pci_id, "0000:17:00.0");
}

#[test]
fn a_link_is_found_by_function_hardware_address_and_altname() {
    let fixture = fixture(WAYS[0]);
    for keys in [
        json!({"deviceID": "0000:17:00.0"}),
        json!({"pciBusID": "0000:17:00.0"}),
        json!({"runtimeConfig": {"deviceID": "0000:17:00.0"}}),
        json!({"hwaddr": "b8:3f:d2:00:00:06", "master": ""}),
        json!({"hwaddr": "02:00:00:00:00:06", "master": ""}),
        json!({"master": "ens1np0"}),
    ] {
        let mut all = json!({"mode": "device"});
        all.as_object_mut()
            .unwrap()
            .extend(keys.as_object().unwrap().clone());
        fixture
            .add_with("c1", &all)
            .unwrap_or_else(|e| panic!("{keys}: {e:?}"));
        assert_eq!(
            fixture.kernel.state().pod[0].device.as_deref(),
            Some("pci/0000:17:00.0"),
            "{keys}"
        );
        fixture.del("c1").unwrap();
    }
}

#[test]
fn a_link_cannot_be_moved_into_two_pods() {
    let fixture = fixture(WAYS[0]);
    let before = host(&fixture);
    let keys = json!({"mode": "device", "master": "ens1"});
    // The first ADD wrote its journal entry, and was killed before the move.
    let requests = {
        fixture.add_with("c1", &keys).unwrap();
        let log = fixture.kernel.get().log.clone();
        fixture.del("c1").unwrap();
        log.iter()
            .position(|request| request.starts_with("delete altname"))
            .unwrap()
    };
    fixture.kernel.fail(Fault::From(requests));
    fixture.add_with("c1", &keys).unwrap_err();
    fixture.kernel.fail(Fault::None);
    let error = fixture.add_with("c2", &keys).unwrap_err();
    assert_eq!(error.code, Code::TRY_AGAIN);
    assert!(
        error.msg.contains("ens1 belongs to fabric/net1 of container c1"),
        "{}",
        error.msg
    );
    fixture.del("c1").unwrap();
    fixture.add_with("c2", &keys).unwrap();
    fixture.del("c2").unwrap();
    assert_clean(&fixture, &before, "after both");
}
