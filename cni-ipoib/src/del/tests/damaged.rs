// SPDX-License-Identifier: Apache-2.0
//! An attachment's file whose content a person or a fault changed.

use crate::device::fixture::{WAYS, add, fixture, host, keys};
use crate::model::{Fault, Fixture, warnings_of};
use serde_json::json;
use std::fs;
use std::path::PathBuf;

fn file(fixture: &Fixture, container: &str) -> PathBuf {
    let file = format!("attachments/fabric/{container}@net1");
    fixture.state.path().join(file)
}

/// Replaces a text in the file of `c1`.
fn replace(fixture: &Fixture, from: &str, to: &str) {
    let file = file(fixture, "c1");
    let content = fs::read_to_string(&file).unwrap();
    assert!(content.contains(from), "{content}");
    fs::write(file, content.replace(from, to)).unwrap();
}

/// Runs `test` on a node with an attachment `c1`, for each kind of interface.
fn for_each_kind(test: impl Fn(&Fixture)) {
    let children: [fn() -> Fixture; 3] = [
        Fixture::new,
        || Fixture::new().plain(),
        || Fixture::new().on_bond(),
    ];
    for child in children {
        let fixture = child();
        fixture.add("c1").unwrap();
        test(&fixture);
    }
    for way in WAYS {
        for link in ["ib0", "ens1"] {
            let fixture = fixture(way);
            add(&fixture, link).unwrap();
            test(&fixture);
        }
    }
}

#[test]
fn del_with_the_content_of_another_attachment_leaves_that_attachment_unchanged() {
    for_each_kind(|fixture| {
        let before = fixture.kernel.state();
        fs::copy(file(fixture, "c1"), file(fixture, "c2")).unwrap();
        fixture.del("c2").unwrap();
        assert_eq!(fixture.kernel.state(), before);
        assert_eq!(fixture.written_down(), ["c1"]);
    });
}

#[test]
fn gc_with_the_content_of_another_attachment_leaves_that_attachment_unchanged() {
    for_each_kind(|fixture| {
        let before = fixture.kernel.state();
        fs::copy(file(fixture, "c1"), file(fixture, "c2")).unwrap();
        fixture.gc(&["c1"]).unwrap();
        assert_eq!(fixture.kernel.state(), before);
        assert_eq!(fixture.written_down(), ["c1", "c2"]);
    });
}

/// Neither a DEL nor the last GC of the IPAM plugin released the address.
#[track_caller]
fn assert_keeps_the_address_of_c1(fixture: &Fixture) {
    assert!(!fixture.ipam.verbs().contains(&"DEL".to_owned()));
    let valid = fixture.ipam.conf_of("GC")["cni.dev/valid-attachments"].clone();
    assert_eq!(valid, json!([{"containerID": "c1", "ifname": "net1"}]));
}

#[test]
fn gc_leaves_a_living_link_of_a_changed_file_and_its_address_to_del() {
    let fixture = Fixture::new();
    fixture.add("c1").unwrap();
    let before = fixture.kernel.state();
    replace(&fixture, "mlx5_0", "mlx5_7");
    let (collected, warnings) = warnings_of(|| fixture.gc(&[]));
    collected.unwrap();
    let names = |line: &String| line.contains("net1 of container c1");
    assert!(warnings.iter().any(names), "{warnings:?}");
    assert_eq!(fixture.kernel.state(), before);
    assert_eq!(fixture.written_down(), ["c1"]);
    assert_keeps_the_address_of_c1(&fixture);
    fixture.del("c1").unwrap();
    assert_eq!(fixture.kernel.state().pod, []);
    assert_eq!(fixture.written_down(), [""; 0]);
}

#[test]
fn a_refused_add_keeps_the_damaged_file_of_a_living_link() {
    let fixture = Fixture::new();
    fixture.add("c1").unwrap();
    let before = fixture.kernel.state();
    replace(&fixture, "mlx5_0", "mlx5_7");
    fixture.add("c1").unwrap_err();
    fixture.gc(&[]).unwrap();
    assert_eq!(fixture.kernel.state(), before);
    assert_eq!(fixture.written_down(), ["c1"]);
    assert_keeps_the_address_of_c1(&fixture);
}

#[test]
fn gc_removes_a_returned_link_of_a_changed_file() {
    let fixture = Fixture::new();
    let before = fixture.kernel.state().host;
    fixture.add("c1").unwrap();
    replace(&fixture, "mlx5_0", "mlx5_7");
    fixture.kernel.set().state.pod_dies();
    fixture.gc(&[]).unwrap();
    assert_eq!(fixture.kernel.state().host, before);
    assert_eq!(fixture.written_down(), [""; 0]);
}

#[test]
fn del_removes_no_file_that_a_changed_file_names() {
    let fixture = Fixture::new();
    fixture.add("c1").unwrap();
    let other = tempfile::NamedTempFile::new().unwrap();
    replace(
        &fixture,
        &fixture.info_file().display().to_string(),
        &other.path().display().to_string(),
    );
    fixture.del("c1").unwrap();
    assert!(other.path().exists());
    assert_eq!(fixture.kernel.state().pod, []);
}

/// DEL waits for a recorded link. A link that does not exist never returns.
#[test]
fn a_changed_file_keeps_no_container_from_being_removed() {
    for way in WAYS {
        for (link, from, to) in [
            ("ib0", "24:8a:07:03:00:b4:0c:5e", "24:8a:07:03:00:b4:0c:ff"),
            ("ens1", "b8:3f:d2", "b8:3f:d3"),
        ] {
            let fixture = fixture(way);
            add(&fixture, link).unwrap();
            replace(&fixture, from, to);
            fixture
                .del("c1")
                .unwrap_or_else(|e| panic!("{way:?} {link}: {e:?}"));
            assert_eq!(fixture.written_down(), [""; 0]);
        }
    }
}

#[test]
fn del_logs_the_attachment_whose_link_it_cannot_restore() {
    for damage in WITHOUT_INTENT {
        let fixture = fixture(WAYS[0]);
        let before = host(&fixture);
        add(&fixture, "ens1").unwrap();
        damage(&fixture);
        let (removed, warnings) = warnings_of(|| fixture.del("c1"));
        removed.unwrap();
        assert_ne!(host(&fixture), before);
        let names = |line: &String| line.contains("fabric/c1@net1") && line.contains("whole link");
        assert!(warnings.iter().any(names), "{warnings:?}");
    }
}

/// Damages the file of `c1` in each way after which DEL has no intent.
const WITHOUT_INTENT: [fn(&Fixture); 3] = [
    |fixture| replace(fixture, "\"mtu\":", "\"utm\":"),
    |fixture| fs::write(file(fixture, "c1"), "").unwrap(),
    |fixture| fs::remove_file(file(fixture, "c1")).unwrap(),
];

/// While the namespace lives, its pod could use the address that another pod gets.
#[test]
fn del_brings_a_whole_link_down_in_the_pod_before_it_releases_its_address() {
    for (way, damage) in WAYS
        .iter()
        .flat_map(|way| WITHOUT_INTENT.map(|damage| (way, damage)))
    {
        for link in ["ib0", "ens1"] {
            let fixture = fixture(*way);
            add(&fixture, link).unwrap();
            damage(&fixture);
            let before = fixture.kernel.state();
            fixture.kernel.fail(Fault::Every("bring #"));
            fixture.del("c1").unwrap_err();
            fixture.kernel.fail(Fault::None);
            assert!(!fixture.ipam.verbs().contains(&"DEL".to_owned()));
            let (removed, warnings) = warnings_of(|| fixture.del("c1"));
            removed.unwrap_or_else(|e| panic!("{way:?} {link}: {e:?}"));
            assert_eq!(fixture.ipam.verbs().last().unwrap(), "DEL");
            let state = fixture.kernel.state();
            assert_eq!(state.host, before.host);
            assert!(!state.pod[0].up && before.pod[0].up);
            let names = |line: &String| line.contains("net1") && line.contains("down");
            assert!(warnings.iter().any(names), "{warnings:?}");
        }
    }
}

#[test]
fn a_link_stays_while_an_attachment_on_it_has_a_damaged_file() {
    let fixture = fixture(WAYS[0]);
    fixture.add_with("c2", &json!({"master": "ib0"})).unwrap();
    fs::write(file(&fixture, "c2"), "{}\n").unwrap();
    // The model has one namespace for all pods.
    fixture.kernel.set().state.pod[0].name = "other".to_owned();
    let status = fixture.status(&keys(&fixture, "ib0"));
    for text in [
        fixture.add_with("c1", &keys(&fixture, "ib0")).unwrap_err().msg,
        status.unwrap_err().msg,
    ] {
        let expected =
            "the interface of fabric/net1 of container c2, whose file in the state directory is damaged; DEL";
        assert!(text.contains(expected), "{text}");
    }
    fixture.del("c2").unwrap();
    assert_eq!(fixture.kernel.state().pod, []);
    add(&fixture, "ib0").unwrap();
}

#[test]
fn del_of_an_intact_attachment_or_of_none_warns_of_nothing() {
    let fixture = fixture(WAYS[0]);
    add(&fixture, "ens1").unwrap();
    for _ in 0..2 {
        let (removed, warnings) = warnings_of(|| fixture.del("c1"));
        removed.unwrap();
        assert_eq!(warnings, [""; 0]);
    }
}
