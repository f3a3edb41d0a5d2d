// SPDX-License-Identifier: Apache-2.0
mod changed;
mod damaged;
mod fuzz;

use crate::mark::Mark;
use crate::model::{Fault, Fixture, Ipam, Pod, attachment, ethernet, ipoib, of_kind};
use crate::rdma::record;
use common::cni::Code;
use common::cni::dispatch::{Call, Plugin as _};
use serde_json::json;
use std::fs;
use std::path::Path;

#[test]
fn del_removes_everything_and_can_be_repeated() {
    let fixture = Fixture::new();
    let before = fixture.kernel.state();
    fixture.add("c1").unwrap();
    for _ in 0..2 {
        fixture.del("c1").unwrap();
        assert_eq!(fixture.kernel.state(), before);
        assert_eq!(fixture.written_down(), [""; 0]);
        assert!(!fixture.info_file().exists());
    }
    assert_eq!(fixture.ipam.verbs(), ["ADD", "DEL", "DEL"]);
}

#[test]
fn without_netns_del_uses_the_namespace_of_the_journal() {
    let fixture = Fixture::new();
    let before = fixture.kernel.state();
    fixture.add("c1").unwrap();
    fixture.del_without_netns("c1").unwrap();
    assert_eq!(fixture.kernel.state(), before);
    assert_eq!(fixture.ipam.verbs(), ["ADD", "DEL"]);
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
        let fixture = Fixture::new();
        let before = fixture.kernel.state();
        fixture.add("c1").unwrap();
        fixture
            .plugin()
            .del(
                &fixture.call(&json!({})),
                &attachment("c1"),
                Some(Path::new(&wrong)),
            )
            .unwrap();
        assert_eq!(fixture.kernel.state(), before, "{wrong}");
        assert_eq!(fixture.ipam.verbs(), ["ADD", "DEL"], "{wrong}");
    }
}

#[test]
fn del_finds_a_returned_child_and_no_other() {
    let fixture = Fixture::new();
    let before = fixture.kernel.state();
    fixture.add("c1").unwrap();
    fixture.kernel.set().state.pod_dies();
    assert_eq!(fixture.kernel.state().host.len(), 2);
    let strangers = [
        ipoib(50, "net1", 0x8001),
        crate::model::of_kind("macvlan", ethernet(51, "net1")),
    ];
    fixture.kernel.set().state.host.extend(strangers.clone());
    fixture.del_without_netns("c1").unwrap();
    assert_eq!(
        fixture.kernel.state().host,
        [before.host, strangers.to_vec()].concat()
    );
    assert_eq!(fixture.ipam.verbs(), ["ADD", "DEL"]);
}

#[test]
fn without_a_journal_entry_a_link_is_found_by_its_mark() {
    let fixture = Fixture::new();
    let before = fixture.kernel.state();
    fixture.add("c1").unwrap();
    fs::remove_dir_all(fixture.state.path().join("attachments")).unwrap();
    fixture.del("c1").unwrap();
    assert_eq!(fixture.kernel.state(), before);
    assert_eq!(fixture.ipam.verbs(), ["ADD", "DEL"]);
}

#[test]
fn the_parent_may_be_gone() {
    let fixture = Fixture::new();
    fixture.add("c1").unwrap();
    fixture.kernel.set().state.host.clear();
    fixture.del("c1").unwrap();
    assert!(fixture.kernel.state().pod.is_empty());
    assert_eq!(fixture.ipam.verbs(), ["ADD", "DEL"]);
}

#[test]
fn a_link_that_cannot_be_deleted_keeps_its_addresses_until_it_can() {
    let fixture = Fixture::new();
    fixture.add("c1").unwrap();
    for fault in ["delete", "list links"] {
        fixture.kernel.fail(Fault::Every(fault));
        let error = fixture.del("c1").unwrap_err();
        assert_eq!(error.code, Code::KERNEL, "{}", error.msg);
        assert_eq!(fixture.ipam.verbs(), ["ADD"]);
        assert_eq!(fixture.written_down(), ["c1"]);
    }
    fixture.kernel.fail(Fault::None);
    fixture.del("c1").unwrap();
    assert_eq!(fixture.ipam.verbs(), ["ADD", "DEL"]);
}

#[test]
fn addresses_that_cannot_be_released_keep_the_journal_entry() {
    let fixture = Fixture::new();
    fixture.add("c1").unwrap();
    fixture.ipam.fail(true);
    let error = fixture.del("c1").unwrap_err();
    assert_eq!((error.code, error.msg.as_str()), (Code(99), "ranges: no"));
    assert_eq!(fixture.written_down(), ["c1"]);
    assert!(fixture.kernel.state().pod.is_empty());
    fixture.ipam.fail(false);
    fixture.del("c1").unwrap();
    assert_eq!(
        (fixture.ipam.verbs(), fixture.written_down()),
        (vec!["ADD".to_owned(), "DEL".to_owned()], Vec::new())
    );
}

#[test]
fn del_releases_addresses_though_the_configuration_lost_its_ipam() {
    let fixture = Fixture::new();
    fixture.add("c1").unwrap();
    let call = fixture.call(&json!({"ipam": {}}));
    fixture
        .plugin()
        .del(&call, &attachment("c1"), Some(&fixture.pod.path()))
        .unwrap();
    assert_eq!(fixture.ipam.verbs(), ["ADD", "DEL"]);
}

#[test]
fn del_accepts_a_configuration_that_add_refuses() {
    let fixture = Fixture::new();
    for keys in [
        json!({"master": 7, "mode": [], "pkey": "red", "mtu": -1, "nonsense": true}),
        json!({"ipam": {"type": "../ranges"}}),
        json!({"ipam": "ranges"}),
        json!({"ipam": {"type": 7}, "runtimeConfig": 7, "delegateTimeout": -1}),
        json!({"delegateTimeout": u64::MAX}),
        json!({"prevResult": {"ips": "none"}}),
        json!({"prevResult": 7}),
    ] {
        let call = fixture.call(&keys);
        let added = fixture
            .plugin()
            .add(&call, &attachment("c1"), &fixture.pod.path());
        assert!(added.is_err(), "{keys}");
        let deleted = fixture
            .plugin()
            .del(&call, &attachment("c1"), Some(&fixture.pod.path()));
        assert_eq!(deleted, Ok(()), "{keys}");
    }
}

#[test]
fn del_works_with_an_unwritable_state_directory() {
    let fixture = Fixture::new();
    let before = fixture.kernel.state();
    fixture.add("c1").unwrap();
    fs::remove_dir_all(fixture.state.path().join("attachments")).unwrap();
    fs::write(fixture.state.path().join("attachments"), "in the way").unwrap();
    fixture.del("c1").unwrap();
    assert_eq!(fixture.kernel.state(), before);
    assert_eq!(fixture.ipam.verbs(), ["ADD", "DEL"]);
}

#[test]
fn del_works_with_a_foreign_file_in_the_journal() {
    let fixture = Fixture::new();
    let before = fixture.kernel.state();
    fixture.add("c1").unwrap();
    fs::write(
        fixture.state.path().join("attachments/fabric/c1@net1"),
        b"\xff\xfe garbage",
    )
    .unwrap();
    fixture.del("c1").unwrap();
    assert_eq!(
        (fixture.kernel.state(), fixture.written_down()),
        (before, Vec::new())
    );
}

#[test]
fn a_link_of_another_plugin_is_deleted_by_its_result() {
    let fixture = Fixture::with(Ipam::dual_stack());
    let foreign = of_kind("macvlan", ethernet(7, "net1"));
    fixture.kernel.set().state.pod.push(foreign.clone());
    let prev = json!({
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "net1", "mac": foreign.address.to_string(), "sandbox": "/run/netns/a"}],
    });
    fixture.del("c1").unwrap();
    assert_eq!(fixture.kernel.state().pod, [foreign], "its name proves nothing");
    let call = fixture.call(&json!({"prevResult": prev}));
    fixture
        .plugin()
        .del(&call, &attachment("c1"), Some(&fixture.pod.path()))
        .unwrap();
    assert!(fixture.kernel.state().pod.is_empty());
}

#[test]
fn del_of_another_network_under_the_same_interface_name_removes_nothing() {
    let fixture = Fixture::new();
    fixture.add("c1").unwrap();
    let before = fixture.kernel.state();
    let record = record::file(fixture.state.path(), &attachment("c1"));
    assert!(record.exists());
    for program in ["cni-ipoib", "ipoib"] {
        let call = Call {
            program: program.to_owned(),
            ..fixture.call(&json!({"name": "other"}))
        };
        let netns = fixture.pod.path();
        fixture
            .plugin()
            .del(&call, &attachment("c1"), Some(&netns))
            .unwrap();
        assert_eq!(fixture.kernel.state(), before, "{program}");
        assert_eq!(fixture.written_down(), ["c1"], "{program}");
        assert!(record.exists() && fixture.info_file().exists(), "{program}");
    }
    assert!(fixture.entry("c1").done);
    fixture.del("c1").unwrap();
    assert!(!record.exists());
}

#[test]
fn del_keeps_another_containers_link_in_a_reused_namespace() {
    let fixture = Fixture::new();
    let mark = Mark::new("fabric", &attachment("c2"));
    let theirs = common::netlink::Link {
        group: mark.group,
        alias: Some(mark.alias),
        ..ipoib(7, "net1", 0x8001)
    };
    fixture.kernel.set().state.pod.push(theirs.clone());
    fixture.del("c1").unwrap();
    assert_eq!(fixture.kernel.state().pod, [theirs]);
}
