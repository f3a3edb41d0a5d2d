// SPDX-License-Identifier: Apache-2.0
//! Damaged files, and files of other programs.

use super::{dual, single};
use crate::testing::{Fixture, assert_error};
use common::cni::Code;
use std::fs;
use std::time::Duration;

/// Damages a lease in every way and passes it to `then`.
fn with_damage(mut then: impl FnMut(&Fixture, &str)) {
    let damages: [(&str, &[u8]); 5] = [
        ("emptied by a power loss", b""),
        (
            "cut short",
            b"{\"container\":\"a\",\"ifname\":\"eth0\",\"since\":\"2026",
        ),
        ("zeros", &[0; 200]),
        ("not UTF-8", b"\xff\xfe\xfd"),
        ("foreign", b"{\"containerID\":\"a\"}"),
    ];
    for (name, content) in damages {
        let fixture = dual(4);
        fixture.add("a");
        // Written in place, so that the lease and its addresses remain one file.
        fs::OpenOptions::new()
            .write(true)
            .open(fixture.file("leases/a@eth0"))
            .unwrap()
            .set_len(0)
            .unwrap();
        fs::write(fixture.file("leases/a@eth0"), content).unwrap();
        then(&fixture, name);
    }
}

#[test]
fn a_damaged_lease_affects_only_its_owner() {
    with_damage(|fixture, damage| {
        let error = fixture.try_add("a").unwrap_err();
        assert_eq!(error.code, Code::STORE_CORRUPT, "{damage}: {error}");
        assert!(
            error.msg.contains("leases/a@eth0") && error.msg.contains("DEL"),
            "{damage}: {error}"
        );
        assert_eq!(fixture.add("b"), ["10.0.0.2", "fd00::2"], "{damage}");
        fixture.status().unwrap();
    });
}

#[test]
fn del_of_a_damaged_lease_releases_its_addresses() {
    with_damage(|fixture, damage| {
        fixture.del("a").unwrap_or_else(|e| panic!("{damage}: {e}"));
        fixture.assert_sound(damage);
        assert_eq!(fixture.names("addresses"), [""; 0], "{damage}");
        fixture
            .request("b", &["10.0.0.1", "fd00::1"])
            .unwrap_or_else(|e| panic!("{damage}: {e}"));
    });
}

#[test]
fn a_lease_that_names_an_address_twice_ends_with_one_del() {
    for cooldown in [0, 60] {
        let mut fixture = single("10.0.0.0/24");
        fixture.ipam["cooldown"] = cooldown.into();
        fixture.add("a");
        let path = fixture.file("leases/a@eth0");
        let line = fs::read_to_string(&path).unwrap();
        let ip = r#"{"address":"10.0.0.1/24"#;
        let (head, tail) = line.split_once(r#""ips":["#).unwrap();
        let (first, _) = tail.split_once(']').unwrap();
        assert!(first.starts_with(ip), "{line}");
        fs::write(&path, format!(r#"{head}"ips":[{first},{tail}"#)).unwrap();
        fixture
            .del("a")
            .unwrap_or_else(|e| panic!("cooldown {cooldown}: {e}"));
        fixture.assert_sound("twice");
        assert_eq!(fixture.names("addresses"), [""; 0], "cooldown {cooldown}");
    }
}

#[test]
fn gc_leaves_a_damaged_lease_and_its_addresses_to_del() {
    with_damage(|fixture, damage| {
        let error = fixture.gc(&[]).unwrap_err();
        assert_error(&error, Code::STORE_CORRUPT, &["leases/a@eth0", "DEL"]);
        assert_eq!(fixture.names("addresses"), ["10.0.0.1", "fd00::1"], "{damage}");
        fixture.gc(&["a"]).unwrap_or_else(|e| panic!("{damage}: {e}"));
    });
}

#[test]
fn a_copied_lease_is_not_accepted_for_another_attachment() {
    let fixture = single("10.0.0.0/24");
    fixture.add("a");
    fs::copy(fixture.file("leases/a@eth0"), fixture.file("leases/b@eth0")).unwrap();
    let error = fixture.try_add("b").unwrap_err();
    assert_error(
        &error,
        Code::STORE_CORRUPT,
        &["it is the lease of eth0 of container a"],
    );
    fixture.del("b").unwrap();
    assert_eq!(
        fixture.add("a"),
        ["10.0.0.1"],
        "DEL of the copy must not release the original's address"
    );
    fixture.assert_sound("after the copy is gone");
}

#[test]
fn an_address_reassigned_by_hand_stays_with_its_new_owner() {
    let fixture = dual(4);
    fixture.add("a");
    fs::remove_file(fixture.file("addresses/10.0.0.1")).unwrap();
    fixture.request("b", &["10.0.0.1"]).unwrap();
    fixture.del("a").unwrap();
    assert_eq!(fixture.names("addresses"), ["10.0.0.1", "fd00::2"]);
    fixture.assert_sound("after DEL of the first owner");
}

#[test]
fn a_store_copied_without_hard_links_still_releases_addresses() {
    let fixture = dual(4);
    fixture.add("a");
    fixture.add("b");
    for name in fixture.names("addresses") {
        let path = fixture.file("addresses").join(name);
        let content = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, content).unwrap();
    }
    assert_eq!(fixture.add("b"), ["10.0.0.2", "fd00::2"]);
    fixture.del("a").unwrap();
    assert_eq!(fixture.names("addresses"), ["10.0.0.2", "fd00::2"]);
}

#[test]
fn addresses_of_host_local_stay_taken_until_its_del() {
    let fixture = Fixture::new(&serde_json::json!({"subnet": "10.0.0.0/29"}));
    fs::create_dir(fixture.network()).unwrap();
    fs::write(fixture.network().join("lock"), "").unwrap();
    fs::write(fixture.network().join("last_reserved_ip.0"), "10.0.0.3").unwrap();
    for ip in ["10.0.0.2", "10.0.0.3"] {
        fs::write(fixture.network().join(ip), "older-pod\r\neth0").unwrap();
    }
    assert_eq!(
        [fixture.add("a"), fixture.add("b"), fixture.add("c")],
        [["10.0.0.4"], ["10.0.0.5"], ["10.0.0.6"]]
    );
    assert!(fixture.try_add("d").unwrap_err().msg.contains("5 of 5 in use"));
    let error = fixture.request("d", &["10.0.0.3"]).unwrap_err();
    assert_error(
        &error,
        Code::ADDRESS_IN_USE,
        &["net/10.0.0.3, a lease of host-local"],
    );
    fs::remove_file(fixture.network().join("10.0.0.3")).unwrap();
    assert_eq!(fixture.add("d"), ["10.0.0.3"]);
}

#[test]
fn a_foreign_file_blocks_only_its_own_address() {
    let fixture = single("10.0.0.0/24");
    fixture.add("a");
    fs::write(fixture.file("addresses/10.0.0.2"), "kept for the storage head\n").unwrap();
    fs::write(fixture.file("addresses/README"), "not an address\n").unwrap();
    fs::write(fixture.file("leases/README"), "not a lease\n").unwrap();
    fs::write(fixture.file("resting/10.0.0.3"), "never released\n").unwrap();
    assert_eq!(fixture.add("b"), ["10.0.0.3"]);
    let error = fixture.request("c", &["10.0.0.2"]).unwrap_err();
    assert_error(
        &error,
        Code::ADDRESS_IN_USE,
        &["addresses/10.0.0.2, which is no lease; remove it if the address is unused"],
    );
    fixture.gc(&[]).unwrap();
    assert_eq!(
        fixture.names("addresses"),
        ["10.0.0.2", "README"],
        "GC removes only what the plugin wrote"
    );
}

#[test]
fn the_refusal_of_an_unreadable_address_names_its_file_and_the_cause() {
    let fixture = single("10.0.0.0/24");
    fixture.add("a");
    fs::create_dir(fixture.file("addresses/10.0.0.2")).unwrap();
    std::os::unix::fs::symlink("10.0.0.1", fixture.file("addresses/10.0.0.3")).unwrap();
    for (ip, cause) in [
        ("10.0.0.2", "it is not a regular file"),
        ("10.0.0.3", "os error 40"),
    ] {
        let error = fixture.request("b", &[ip]).unwrap_err();
        let file = format!("addresses/{ip}, which cannot be read (");
        assert_error(
            &error,
            Code::ADDRESS_IN_USE,
            &[&file, cause, "remove it if the address is unused"],
        );
    }
}

#[test]
fn the_error_names_a_directory_in_place_of_a_lease() {
    let fixture = single("10.0.0.0/24");
    fixture.add("b");
    fs::create_dir(fixture.file("leases/a@eth0")).unwrap();
    let error = fixture.del("a").unwrap_err();
    assert_error(&error, Code::STORE_CORRUPT, &["leases/a@eth0", "move it away"]);
    assert_eq!(fixture.add("c"), ["10.0.0.2"]);
}

#[test]
fn the_error_names_a_file_in_place_of_the_store() {
    let fixture = single("10.0.0.0/24");
    fs::write(fixture.network(), "").unwrap();
    for error in [
        fixture.try_add("a").map(|_| ()).unwrap_err(),
        fixture.status().unwrap_err(),
    ] {
        assert!(
            error.msg.contains("/net") && error.msg.contains("the path is a file and must be a directory"),
            "{error}"
        );
    }
    fixture.del("a").unwrap();
    fixture.gc(&[]).unwrap();
}

#[test]
fn a_damaged_cursor_changes_only_the_order() {
    let fixture = single("10.0.0.0/24");
    fixture.add("a");
    fixture.add("b");
    fs::write(
        fixture.network().join("cursors/10.0.0.1-10.0.0.254"),
        b"\xff\x00garbage",
    )
    .unwrap();
    assert_eq!(fixture.add("c"), ["10.0.0.3"]);
    fixture.del("a").unwrap();
    fixture.pass(Duration::from_secs(60));
    assert_eq!(fixture.add("d"), ["10.0.0.4"]);
}

#[test]
fn a_lease_file_removed_by_hand_does_not_free_a_valid_attachment() {
    let fixture = single("10.0.0.0/24");
    fixture.add("a");
    fixture.add("b");
    fs::remove_file(fixture.file("leases/a@eth0")).unwrap();
    fs::remove_file(fixture.file("leases/b@eth0")).unwrap();
    fixture.gc(&["a"]).unwrap();
    assert_eq!(fixture.names("addresses"), ["10.0.0.1"]);
}

#[test]
fn a_network_file_system_is_refused() {
    let fixture = single("10.0.0.0/24");
    fixture.plugin.disk.shared.set(Some("NFS"));
    let error = fixture.try_add("a").unwrap_err();
    assert_error(&error, Code::INVALID_CONFIG, &["lies on NFS", "ipam.dataDir"]);
}

#[test]
fn an_administrator_can_read_the_holder_of_an_address() {
    let fixture = single("10.0.0.0/24");
    fixture.add("a");
    let text = fs::read_to_string(fixture.file("addresses/10.0.0.1")).unwrap();
    let lease: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&lease["container"], &lease["ifname"], &lease["pod"]),
        (&"a".into(), &"eth0".into(), &"ns/pod".into())
    );
    assert_eq!(lease["since"], "2027-01-15T08:00:00Z");
    fixture.del("a").unwrap();
    let text = fs::read_to_string(fixture.file("resting/10.0.0.1")).unwrap();
    assert!(
        text.lines()
            .nth(1)
            .unwrap()
            .contains("\"released\":\"2027-01-15T08:00:00Z\""),
        "{text}"
    );
}
