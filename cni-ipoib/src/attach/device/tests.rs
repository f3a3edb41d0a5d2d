// SPDX-License-Identifier: Apache-2.0
use crate::device::fixture::{Host, WAYS, add, host, rig, rig_with};
use crate::kernel::Side;
use crate::model::{Fault, Ipam, Rig};
use common::cni::Code;
use common::netlink::{IpoibMode, LinkInfo, NetnsMode};
use serde_json::json;

/// Whether the host is as it was, and nothing of an attachment is left.
fn assert_clean(rig: &Rig, before: &Host, case: &str) {
    assert_eq!(&host(rig), before, "{case}");
    assert!(rig.kernel.state().pod.is_empty(), "{case}");
    assert_eq!(rig.written_down(), [""; 0], "{case}");
    assert!(!rig.info_file().exists(), "{case}");
}

/// Runs `life` on each link in each mode, with a fault at the first request, then at the second, ... until
/// there is none.
fn everywhere(
    fault: fn(usize) -> Fault,
    ipam: fn() -> Ipam,
    mut life: impl FnMut(&Rig, &str, Option<&str>, &str),
) {
    for way in WAYS {
        // The Ethernet link has no RDMA part.
        let links: &[_] = if way == WAYS[0] {
            &["ib0", "ens1"]
        } else {
            &["ib0"]
        };
        for link in links {
            let rig = rig_with(ipam(), way);
            let before = host(&rig);
            let mut number = 0;
            loop {
                rig.kernel.fail(fault(number));
                let added = add(&rig, link);
                let log = rig.kernel.get().log.clone();
                let failed = log.get(number).cloned();
                let case = format!("{way:?} {link} {:?}: {failed:?}", fault(number));
                let harmless = |failed: &String| failed.starts_with("announce");
                assert_eq!(
                    added.is_ok(),
                    failed.as_ref().is_none_or(harmless),
                    "{case}: {added:?}"
                );
                life(&rig, link, failed.as_deref(), &case);
                rig.kernel.fail(Fault::None);
                assert_clean(&rig, &before, &case);
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
        everywhere(fault, Ipam::dual_stack, |rig, _, failed, case| {
            if failed.is_none_or(|failed| failed.starts_with("announce")) {
                rig.kernel.fail(Fault::None);
                rig.del("c1").expect(case);
            }
            let verbs = rig.ipam.verbs();
            assert_ne!(verbs.last().map(String::as_str), Some("ADD"), "{case}");
        });
    }
}

/// Kills ADD at each request: the kernel is unreachable after it. Then `after` cleans up.
fn after_a_kill(after: impl Fn(&Rig, &str)) {
    everywhere(Fault::From, Ipam::dual_stack, |rig, _, _, case| {
        rig.kernel.fail(Fault::None);
        after(rig, case);
    });
}

#[test]
fn after_a_kill_at_any_step_del_restores_the_host() {
    after_a_kill(|rig, case| rig.del("c1").expect(case));
}

#[test]
fn after_a_kill_at_any_step_del_without_netns_restores_the_host() {
    after_a_kill(|rig, case| rig.del_without_netns("c1").expect(case));
}

#[test]
fn after_a_kill_at_any_step_gc_restores_the_host() {
    after_a_kill(|rig, case| rig.gc(&["other"]).expect(case));
}

#[test]
fn after_a_kill_and_the_pods_death_del_restores_the_host() {
    after_a_kill(|rig, case| {
        rig.kernel.set().state.pod_dies();
        rig.del_without_netns("c1").expect(case);
    });
}

#[test]
fn after_a_kill_at_any_step_another_add_succeeds() {
    everywhere(Fault::From, Ipam::dual_stack, |rig, link, _, case| {
        rig.kernel.fail(Fault::None);
        if rig.entry("c1").done {
            assert_eq!(add(rig, link).unwrap_err().code, Code::IFNAME_IN_USE, "{case}");
        } else {
            add(rig, link).expect(case);
        }
        rig.del("c1").expect(case);
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
        let rig = rig(way);
        let before = host(&rig);
        let mut number = 0;
        loop {
            add(&rig, link).unwrap();
            rig.kernel.fail(Fault::From(number));
            // An error of the last request is only a warning, and so not a kill.
            let ended = rig.del("c1").is_ok();
            rig.kernel.fail(Fault::None);
            if ended {
                break;
            }
            let case = format!("{way:?} {link} DEL killed at {number}");
            match add(&rig, link) {
                Ok(_) => {}
                Err(error) => assert_eq!(error.code, Code::IFNAME_IN_USE, "{case}: {error:?}"),
            }
            rig.del("c1").expect(&case);
            assert_clean(&rig, &before, &case);
            number += 1;
        }
        assert!(number >= 5, "{way:?} {link}: DEL made {number} requests only");
    }
}

#[test]
fn the_pod_gets_the_link_under_its_name_with_its_settings() {
    for way in WAYS {
        let rig = rig(way);
        let result = add(&rig, "ib0").unwrap();
        let state = rig.kernel.state();
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
            serde_json::from_slice(&std::fs::read(rig.info_file()).unwrap()).unwrap();
        assert_eq!(
            info["pci"],
            json!({"pci-address": "0000:3b:00.0", "rdma-device": "mlx5_0"})
        );
        rig.del("c1").unwrap();
    }
}

#[test]
fn an_ethernet_link_gets_the_requested_address_until_del() {
    let rig = rig(WAYS[0]);
    let before = host(&rig);
    let result = rig
        .add_with(
            "c1",
            &json!({"mode": "device", "master": "ens1", "mac": "02:aa:00:00:00:01"}),
        )
        .unwrap();
    assert_eq!(result.interfaces[0].mac, "02:aa:00:00:00:01");
    assert_eq!(rig.kernel.state().pod[0].mtu, 9000);
    rig.del("c1").unwrap();
    assert_clean(&rig, &before, "after DEL");
}

#[test]
fn a_link_is_found_by_function_hardware_address_and_altname() {
    let rig = rig(WAYS[0]);
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
        rig.add_with("c1", &all)
            .unwrap_or_else(|e| panic!("{keys}: {e:?}"));
        assert_eq!(
            rig.kernel.state().pod[0].device.as_deref(),
            Some("pci/0000:17:00.0"),
            "{keys}"
        );
        rig.del("c1").unwrap();
    }
}

#[test]
fn a_link_cannot_be_moved_into_two_pods() {
    let rig = rig(WAYS[0]);
    let before = host(&rig);
    let keys = json!({"mode": "device", "master": "ens1"});
    // The first ADD wrote its journal entry, and was killed before the move.
    let requests = {
        rig.add_with("c1", &keys).unwrap();
        let log = rig.kernel.get().log.clone();
        rig.del("c1").unwrap();
        log.iter()
            .position(|request| request.starts_with("delete altname"))
            .unwrap()
    };
    rig.kernel.fail(Fault::From(requests));
    rig.add_with("c1", &keys).unwrap_err();
    rig.kernel.fail(Fault::None);
    let error = rig.add_with("c2", &keys).unwrap_err();
    assert_eq!(error.code, Code::TRY_AGAIN);
    assert!(
        error.msg.contains("ens1 belongs to fabric/net1 of container c1"),
        "{}",
        error.msg
    );
    rig.del("c1").unwrap();
    rig.add_with("c2", &keys).unwrap();
    rig.del("c2").unwrap();
    assert_clean(&rig, &before, "after both");
}
