// SPDX-License-Identifier: Apache-2.0
mod changed;

use crate::mark::Mark;
use crate::model::{Fault, Ipam, Pod, Rig, attachment, ethernet, ipoib, of_kind};
use common::cni::Code;
use common::cni::dispatch::Plugin as _;
use serde_json::json;
use std::fs;
use std::path::Path;

#[test]
fn del_removes_everything_and_can_be_repeated() {
    let rig = Rig::new();
    let before = rig.kernel.state();
    rig.add("c1").unwrap();
    for _ in 0..2 {
        rig.del("c1").unwrap();
        assert_eq!(rig.kernel.state(), before);
        assert_eq!(rig.written_down(), [""; 0]);
        assert!(!rig.info_file().exists());
    }
    assert_eq!(rig.ipam.verbs(), ["ADD", "DEL", "DEL"]);
}

#[test]
fn without_netns_del_uses_the_namespace_of_the_journal() {
    let rig = Rig::new();
    let before = rig.kernel.state();
    rig.add("c1").unwrap();
    rig.del_without_netns("c1").unwrap();
    assert_eq!(rig.kernel.state(), before);
    assert_eq!(rig.ipam.verbs(), ["ADD", "DEL"]);
}

#[test]
fn with_a_wrong_netns_del_still_finds_the_link() {
    let other = Pod::new();
    let file = tempfile::NamedTempFile::new().unwrap();
    let wrong = [
        "/proc/self/ns/net",
        "/nowhere/at/all",
        file.path().to_str().unwrap(),
        other.path().to_str().unwrap(),
    ]
    .map(str::to_owned);
    for wrong in wrong {
        let rig = Rig::new();
        let before = rig.kernel.state();
        rig.add("c1").unwrap();
        rig.plugin()
            .del(&rig.call(&json!({})), &attachment("c1"), Some(Path::new(&wrong)))
            .unwrap();
        assert_eq!(rig.kernel.state(), before, "{wrong}");
        assert_eq!(rig.ipam.verbs(), ["ADD", "DEL"], "{wrong}");
    }
}

#[test]
fn del_finds_a_returned_child_and_no_other() {
    let rig = Rig::new();
    let before = rig.kernel.state();
    rig.add("c1").unwrap();
    rig.kernel.set().state.pod_dies();
    assert_eq!(rig.kernel.state().host.len(), 2);
    let strangers = [
        ipoib(50, "net1", 0x8001),
        crate::model::of_kind("macvlan", ethernet(51, "net1")),
    ];
    rig.kernel.set().state.host.extend(strangers.clone());
    rig.del_without_netns("c1").unwrap();
    assert_eq!(
        rig.kernel.state().host,
        [before.host, strangers.to_vec()].concat()
    );
    assert_eq!(rig.ipam.verbs(), ["ADD", "DEL"]);
}

#[test]
fn without_a_journal_entry_a_link_is_found_by_its_mark() {
    let rig = Rig::new();
    let before = rig.kernel.state();
    rig.add("c1").unwrap();
    fs::remove_dir_all(rig.state.path().join("attachments")).unwrap();
    rig.del("c1").unwrap();
    assert_eq!(rig.kernel.state(), before);
    assert_eq!(rig.ipam.verbs(), ["ADD", "DEL"]);
}

#[test]
fn the_parent_may_be_gone() {
    let rig = Rig::new();
    rig.add("c1").unwrap();
    rig.kernel.set().state.host.clear();
    rig.del("c1").unwrap();
    assert!(rig.kernel.state().pod.is_empty());
    assert_eq!(rig.ipam.verbs(), ["ADD", "DEL"]);
}

#[test]
fn a_link_that_cannot_be_deleted_keeps_its_addresses_until_it_can() {
    let rig = Rig::new();
    rig.add("c1").unwrap();
    for fault in ["delete", "list links"] {
        rig.kernel.fail(Fault::Every(fault));
        let error = rig.del("c1").unwrap_err();
        assert_eq!(error.code, Code::KERNEL, "{}", error.msg);
        assert_eq!(rig.ipam.verbs(), ["ADD"]);
        assert_eq!(rig.written_down(), ["c1"]);
    }
    rig.kernel.fail(Fault::None);
    rig.del("c1").unwrap();
    assert_eq!(rig.ipam.verbs(), ["ADD", "DEL"]);
}

#[test]
fn addresses_that_cannot_be_released_keep_the_journal_entry() {
    let rig = Rig::new();
    rig.add("c1").unwrap();
    rig.ipam.fail(true);
    let error = rig.del("c1").unwrap_err();
    assert_eq!((error.code, error.msg.as_str()), (Code(99), "ranges: no"));
    assert_eq!(rig.written_down(), ["c1"]);
    assert!(rig.kernel.state().pod.is_empty());
    rig.ipam.fail(false);
    rig.del("c1").unwrap();
    assert_eq!(
        (rig.ipam.verbs(), rig.written_down()),
        (vec!["ADD".to_owned(), "DEL".to_owned()], Vec::new())
    );
}

#[test]
fn del_releases_addresses_though_the_configuration_lost_its_ipam() {
    let rig = Rig::new();
    rig.add("c1").unwrap();
    let call = rig.call(&json!({"ipam": {}}));
    rig.plugin()
        .del(&call, &attachment("c1"), Some(&rig.pod.path()))
        .unwrap();
    assert_eq!(rig.ipam.verbs(), ["ADD", "DEL"]);
}

#[test]
fn del_accepts_a_configuration_that_add_refuses() {
    let rig = Rig::new();
    for keys in [
        json!({"master": 7, "mode": [], "pkey": "red", "mtu": -1, "nonsense": true}),
        json!({"ipam": {"type": "../ranges"}}),
        json!({"ipam": "ranges"}),
        json!({"ipam": {"type": 7}, "runtimeConfig": 7, "delegateTimeout": -1}),
        json!({"delegateTimeout": u64::MAX}),
        json!({"prevResult": {"ips": "none"}}),
        json!({"prevResult": 7}),
    ] {
        let call = rig.call(&keys);
        let added = rig.plugin().add(&call, &attachment("c1"), &rig.pod.path());
        assert!(added.is_err(), "{keys}");
        let deleted = rig.plugin().del(&call, &attachment("c1"), Some(&rig.pod.path()));
        assert_eq!(deleted, Ok(()), "{keys}");
    }
}

#[test]
fn del_works_with_an_unwritable_state_directory() {
    let rig = Rig::new();
    let before = rig.kernel.state();
    rig.add("c1").unwrap();
    fs::remove_dir_all(rig.state.path().join("attachments")).unwrap();
    fs::write(rig.state.path().join("attachments"), "in the way").unwrap();
    rig.del("c1").unwrap();
    assert_eq!(rig.kernel.state(), before);
    assert_eq!(rig.ipam.verbs(), ["ADD", "DEL"]);
}

#[test]
fn del_works_with_a_foreign_file_in_the_journal() {
    let rig = Rig::new();
    let before = rig.kernel.state();
    rig.add("c1").unwrap();
    fs::write(
        rig.state.path().join("attachments/fabric/c1@net1"),
        b"\xff\xfe garbage",
    )
    .unwrap();
    rig.del("c1").unwrap();
    assert_eq!((rig.kernel.state(), rig.written_down()), (before, Vec::new()));
}

#[test]
fn a_link_of_another_plugin_is_deleted_by_its_result() {
    let rig = Rig::with(Ipam::dual_stack());
    let foreign = of_kind("macvlan", ethernet(7, "net1"));
    rig.kernel.set().state.pod.push(foreign.clone());
    let prev = json!({
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "net1", "mac": foreign.address.to_string(), "sandbox": "/run/netns/a"}],
    });
    rig.del("c1").unwrap();
    assert_eq!(rig.kernel.state().pod, [foreign], "its name proves nothing");
    let call = rig.call(&json!({"prevResult": prev}));
    rig.plugin()
        .del(&call, &attachment("c1"), Some(&rig.pod.path()))
        .unwrap();
    assert!(rig.kernel.state().pod.is_empty());
}

#[test]
fn del_keeps_another_containers_link_in_a_reused_namespace() {
    let rig = Rig::new();
    let mark = Mark::new("fabric", &attachment("c2"));
    let theirs = common::netlink::Link {
        group: mark.group,
        alias: Some(mark.alias),
        ..ipoib(7, "net1", 0x8001)
    };
    rig.kernel.set().state.pod.push(theirs.clone());
    rig.del("c1").unwrap();
    assert_eq!(rig.kernel.state().pod, [theirs]);
}
