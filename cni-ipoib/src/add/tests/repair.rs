// SPDX-License-Identifier: Apache-2.0
//! Links that the kernel returned from dead pods: ADD restores its own link and no other.

use super::*;
use crate::device::fixture::{WAYS, fixture, host};
use serde_json::Value;

/// A node on which the pod of `c1` died with the link `link`, before its DEL.
fn after_the_death_with(link: &str) -> Fixture {
    let fixture = fixture(WAYS[0]);
    crate::device::fixture::add(&fixture, link).unwrap();
    fixture.kill_pod("c1");
    fixture
}

fn names_on_host(fixture: &Fixture) -> Vec<String> {
    let mut links = fixture.kernel.state().host;
    links.sort_by_key(|link| link.index);
    links.into_iter().map(|link| link.name).collect()
}

/// Every way to attach `c2` to a link other than `ens1`.
fn unrelated() -> [Value; 4] {
    [
        json!({"master": "ib0"}),
        json!({"master": "ens2", "mode": "macvlan"}),
        // Until DEL restores ens1, it is down, and so ens2 is the last active port.
        json!({"master": "ens2", "mode": "device", "keepLast": false}),
        json!({"master": [{"linkLayer": "InfiniBand"}], "mode": "device"}),
    ]
}

#[test]
fn an_add_succeeds_though_the_link_of_another_dead_pod_cannot_be_repaired() {
    for keys in unrelated() {
        let fixture = after_the_death_with("ens1");
        fixture.kernel.fail(Fault::Every("rename #6"));
        fixture
            .add_with("c2", &keys)
            .unwrap_or_else(|error| panic!("{keys}: {error:?}"));
    }
}

#[test]
fn an_add_changes_no_link_of_another_dead_pod() {
    for keys in unrelated() {
        let fixture = after_the_death_with("ens1");
        let before = fixture.kernel.state().host.iter().find(|l| l.index == 6).cloned();
        let entry = fixture.entry("c1").intent.clone();
        assert_eq!(before.as_ref().map(|link| link.name.as_str()), Some("net1"));
        fixture
            .add_with("c2", &keys)
            .unwrap_or_else(|error| panic!("{keys}: {error:?}"));
        let after = fixture.kernel.state().host.iter().find(|l| l.index == 6).cloned();
        assert_eq!(after, before, "{keys}");
        assert_eq!(fixture.entry("c1").intent, entry, "{keys}");
    }
}

#[test]
fn an_add_restores_the_returned_link_that_it_asks_for() {
    let device = |keys: Value| {
        let mut all = keys;
        all["mode"] = json!("device");
        all
    };
    for keys in [
        device(json!({"master": "ens1"})),
        device(json!({"master": "ens1np0"})),
        device(json!({"deviceID": "0000:17:00.0", "master": ""})),
        device(json!({"hwaddr": "b8:3f:d2:00:00:06", "master": ""})),
        device(json!({"master": ["ens1"]})),
        json!({"master": "ens1", "mode": "macvlan"}),
        json!({"master": ["ens1"], "mode": "macvlan"}),
    ] {
        // One node at a time, because each holds the lock on calls of IPAM plugins.
        let before = host(&fixture(WAYS[0]));
        let fixture = after_the_death_with("ens1");
        fixture
            .add_with("c2", &keys)
            .unwrap_or_else(|error| panic!("{keys}: {error:?}"));
        let released = fixture.entry("c1").intent.clone().unwrap();
        assert_eq!(released.device, None, "{keys}: the link is the host's again");
        assert!(
            fixture.entry("c1").done,
            "{keys}: DEL still releases the addresses"
        );
        fixture.del("c2").unwrap();
        fixture.del_without_netns("c1").unwrap();
        assert_eq!(host(&fixture), before, "{keys}");
    }
}

#[test]
fn an_add_by_description_restores_a_returned_link_if_no_other_fits() {
    let fixture = after_the_death_with("ib0");
    let keys = json!({"master": {"rdmaDevice": "mlx5_0"}, "mode": "device"});
    fixture.add_with("c2", &keys).unwrap();
    let device = fixture.entry("c2").intent.clone().unwrap().device.unwrap();
    assert_eq!(device.name, "ib0");
    assert_eq!(device.alias.as_deref(), Some("to the storage"));
}

/// That call is going to restore the link: to set it down and rename it, or to bind its function again.
#[test]
fn an_add_on_a_returned_link_waits_while_another_call_works_on_its_dead_pod() {
    for master in ["ens1", "net1"] {
        let fixture = after_the_death_with("ens1");
        if let Some(link) = fixture
            .kernel
            .set()
            .state
            .host
            .iter_mut()
            .find(|link| link.name == "net1")
        {
            (link.up, link.carrier) = (true, true);
        }
        let _working = fixture.entry("c1");
        let before = fixture.kernel.state().host;
        let keys = json!({"master": master, "mode": "macvlan"});
        let error = fixture.add_with("c2", &keys).unwrap_err();
        assert_eq!(error.code, Code::TRY_AGAIN, "{master}: {error:?}");
        assert_eq!(fixture.kernel.state().host, before, "{master}");
    }
}

#[test]
fn an_add_fails_if_the_returned_link_that_it_asks_for_cannot_be_restored() {
    let fixture = after_the_death_with("ens1");
    fixture.kernel.fail(Fault::Every("rename #6"));
    let keys = json!({"master": "ens1", "mode": "macvlan"});
    let error = fixture.add_with("c2", &keys).unwrap_err();
    assert_eq!(error.code, Code::KERNEL, "{error:?}");
    assert_eq!(error.msg, "cannot rename net1 to ens1");
    assert_eq!(names_on_host(&fixture), ["ib0", "ib1", "net1", "ens2"]);
    assert_eq!(fixture.written_down(), ["c1"]);
}

#[test]
fn a_kill_while_add_restores_a_link_loses_no_record_of_its_dead_pod() {
    // What an ADD or its kill left at the end of the file.
    for tail in ["done\n", "", "don", r#"{"netns":"#] {
        let fixture = after_the_death_with("ens1");
        let file = fixture.state.path().join("attachments/fabric/c1@net1");
        let content = std::fs::read_to_string(&file).unwrap();
        let before = content.replace("done\n", tail);
        std::fs::write(&file, &before).unwrap();
        let keys = json!({"master": "ens1", "mode": "macvlan"});
        fixture.add_with("c2", &keys).unwrap();
        let after = std::fs::read_to_string(&file).unwrap();
        assert!(after.starts_with(&before), "{tail:?}: {after}");
        let entry = fixture.entry("c1");
        assert_eq!(entry.intent.as_ref().unwrap().device, None, "{tail:?}");
        assert_eq!(entry.done, tail == "done\n", "{tail:?}");
        drop(entry);
        // kill -9 at any byte of the change.
        for end in before.len()..after.len() {
            std::fs::write(&file, &after[..end]).unwrap();
            assert!(fixture.entry("c1").intent.is_some(), "{tail:?}, {end}");
        }
    }
}
