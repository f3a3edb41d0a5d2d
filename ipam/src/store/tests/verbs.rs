// SPDX-License-Identifier: Apache-2.0
//! The verbs on a consistent store.

use super::{dual, single};
use crate::testing::{Fixture, assert_error, attachment};
use common::cni::dispatch::{Call, Plugin};
use common::cni::{Code, GcConf, Reader, Route};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

#[test]
fn an_add_without_a_reader_allocates_nothing() {
    let fixture = Fixture::new(&json!({"subnet": "10.0.0.0/24"}));
    let call = Call {
        reader: Reader::ABSENT,
        ..fixture.call(&json!({}))
    };
    let add = || fixture.plugin.add(&call, &attachment("a"), Path::new("/netns"));
    assert_error(&add().unwrap_err(), Code::IO, &["nothing reads stdout"]);
    assert_eq!(fixture.names("leases"), [""; 0]);
    assert_eq!(fixture.names("addresses"), [""; 0]);
}

#[test]
fn a_repeated_add_gives_the_same_result_under_a_new_configuration() {
    let mut fixture = Fixture::new(&json!({
        "subnet": "10.0.0.0/24", "gateway": "10.0.0.9",
        "routes": [{"dst": "10.9.0.0/16", "gw": "10.0.0.9", "mtu": 2044, "table": 7}], "dns": {"nameservers": ["10.0.0.53"]},
    }));
    let first = fixture.try_add("a").unwrap();
    assert_eq!(
        first.routes[0],
        Route {
            mtu: Some(2044),
            table: Some(7),
            ..Route::new("10.9.0.0/16".parse().unwrap(), Some("10.0.0.9".parse().unwrap()))
        }
    );
    let dir = fixture.ipam["dataDir"].clone();
    fixture.ipam = json!({"subnet": "172.16.0.0/24", "dataDir": dir});
    let again = fixture.try_add("a").unwrap();
    assert_eq!(again, first);
    for version in common::cni::Version::ALL {
        assert_eq!(
            again.to_json(version).to_string(),
            first.to_json(version).to_string()
        );
    }
    assert_eq!(fixture.add("b"), ["172.16.0.2"]);
}

#[test]
fn a_repeated_add_cannot_request_another_address() {
    let fixture = single("10.0.0.0/24");
    fixture.request("a", &["10.0.0.5"]).unwrap();
    fixture.request("a", &["10.0.0.5"]).unwrap();
    let error = fixture.request("a", &["10.0.0.6"]).unwrap_err();
    assert_error(
        &error,
        Code::INVALID_CONFIG,
        &["10.0.0.6", "already has 10.0.0.5"],
    );
}

#[test]
fn interfaces_of_one_container_have_leases_of_their_own() {
    let fixture = single("10.0.0.0/24");
    fixture.add("a");
    let mut second = attachment("a");
    second.ifname = "net@1".parse().unwrap();
    let result = fixture
        .plugin
        .add(&fixture.call(&json!({})), &second, Path::new("/x"))
        .unwrap();
    assert_eq!(result.ips[0].address.to_string(), "10.0.0.2/24");
    fixture.gc(&["a"]).unwrap();
    assert_eq!(
        fixture.names("leases"),
        ["a@eth0"],
        "an interface name may contain the separator"
    );
}

#[test]
fn an_address_in_use_is_refused_with_its_owner() {
    let fixture = single("10.0.0.0/24");
    fixture.add("a");
    let error = fixture.request("b", &["10.0.0.1"]).unwrap_err();
    assert_error(
        &error,
        Code::ADDRESS_IN_USE,
        &["in use by eth0 of container a (pod ns/pod) of network net since 2027-01-15T08:00:00Z"],
    );
    assert_eq!(fixture.names("leases"), ["a@eth0"]);
}

#[test]
fn add_allocates_from_all_sets_or_none() {
    let fixture =
        Fixture::new(&json!({"ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "fd00::4/128"}]]}));
    fixture.add("a");
    let error = fixture.try_add("b").unwrap_err();
    assert_eq!(error.code, Code::EXHAUSTED);
    assert!(
        error.msg.starts_with("network net: ") && error.msg.contains("fd00::4-fd00::4: 1 of 1 in use"),
        "{error}"
    );
    assert_eq!(fixture.names("addresses"), ["10.0.0.2", "fd00::4"]);
    fixture.assert_sound("after half an ADD");
}

#[test]
fn requested_addresses_do_not_move_the_cursor() {
    let fixture = single("10.0.0.0/24");
    fixture.request("a", &["10.0.0.200"]).unwrap();
    assert_eq!(fixture.add("b"), ["10.0.0.1"]);
}

#[test]
fn check_reports_every_change() {
    let fixture = dual(4);
    let result = fixture.try_add("a").unwrap();
    fixture.check("a", &result).unwrap();
    let mut changed = result.clone();
    changed.ips[1].address = "fd00::9/124".parse().unwrap();
    let error = fixture.check("a", &changed).unwrap_err();
    assert_error(
        &error,
        Code::CHECK_FAILED,
        &["fd00::1/124, which prevResult lacks"],
    );
    let mut more = result.clone();
    more.ips.push(changed.ips[1].clone());
    fixture.check("a", &more).unwrap();
    let error = fixture.check("b", &result).unwrap_err();
    assert_error(&error, Code::CHECK_FAILED, &["has no lease"]);
    std::fs::remove_file(fixture.file("addresses/fd00::1")).unwrap();
    assert_eq!(fixture.check("a", &result).unwrap_err().code, Code::CHECK_FAILED);
    let without = fixture
        .plugin
        .check(&fixture.call(&json!({})), &attachment("a"), Path::new("/x"))
        .unwrap_err();
    assert_error(&without, Code::INVALID_CONFIG, &["prevResult"]);
}

#[test]
fn gc_releases_only_invalid_leases_of_its_own_network() {
    let mut fixture = dual(4);
    for id in ["a", "b", "c"] {
        fixture.add(id);
    }
    fixture.ipam["network_name"] = json!("other");
    fixture.add("d");
    fixture.ipam.as_object_mut().unwrap().remove("network_name");
    fixture.gc(&["b", "unknown"]).unwrap();
    assert_eq!(fixture.names("leases"), ["b@eth0"]);
    fixture.assert_sound("after GC");
    fixture.ipam["network_name"] = json!("other");
    assert_eq!(fixture.add("d"), ["10.0.0.1", "fd00::1"]);
}

#[test]
fn gc_keeps_leases_of_other_configurations_that_share_the_network() {
    let mut fixture = dual(4);
    fixture.ipam["network_name"] = json!("net");
    let rail1 = fixture.call(&json!({"name": "rail1"}));
    fixture
        .plugin
        .add(&rail1, &attachment("a"), Path::new("/x"))
        .unwrap();
    fixture
        .plugin
        .add(&rail1, &attachment("damaged"), Path::new("/x"))
        .unwrap();
    fixture.add("b");
    let gc = GcConf { valid: Vec::new() };
    let rail0 = fixture.call(&json!({"name": "rail0"}));
    fixture.plugin.gc(&rail0, &gc).unwrap();
    assert_eq!(fixture.names("leases"), ["a@eth0", "b@eth0", "damaged@eth0"]);
    std::fs::write(fixture.file("leases/damaged@eth0"), "x").unwrap();
    let error = fixture.plugin.gc(&rail0, &gc).unwrap_err();
    assert_error(&error, Code::STORE_CORRUPT, &["leases/damaged@eth0"]);
    fixture.plugin.gc(&rail1, &gc).unwrap_err();
    fixture.gc(&[]).unwrap_err();
    assert_eq!(
        fixture.names("leases"),
        ["damaged@eth0"],
        "each of the three networks may have made the damaged lease"
    );
}

#[test]
fn del_and_add_keep_a_lease_of_another_configuration_under_one_interface_name() {
    let mut fixture = dual(4);
    fixture.ipam["network_name"] = json!("net");
    fixture.add("a");
    let rail1 = fixture.call(&json!({"name": "rail1"}));
    fixture.plugin.del(&rail1, &attachment("a"), None).unwrap();
    assert_eq!(fixture.names("leases"), ["a@eth0"]);
    let error = fixture
        .plugin
        .add(&rail1, &attachment("a"), Path::new("/netns"))
        .unwrap_err();
    assert_error(
        &error,
        Code::IFNAME_IN_USE,
        &["eth0 of container a", "network net"],
    );
    fixture.del("a").unwrap();
    assert_eq!(fixture.names("leases"), [""; 0]);
}

#[test]
fn gc_keeps_leases_that_are_younger_than_its_list() {
    let fixture = dual(4);
    fixture.add("a");
    fixture.pass(Duration::from_secs(1));
    fixture.add("b");
    fixture
        .plugin
        .clock
        .since_boot
        .set(Duration::from_millis(1_000_500));
    fixture.gc(&[]).unwrap();
    assert_eq!(fixture.names("leases"), ["b@eth0"]);
}

#[test]
fn gc_continues_after_an_error_and_reports_it() {
    let fixture = dual(4);
    for id in ["a", "b", "c"] {
        fixture.add(id);
    }
    std::fs::remove_file(fixture.file("leases/b@eth0")).unwrap();
    std::fs::create_dir(fixture.file("leases/b@eth0")).unwrap();
    let error = fixture.gc(&[]).unwrap_err();
    assert_error(
        &error,
        Code::STORE_CORRUPT,
        &["leases/b@eth0", "GC has released all it could"],
    );
    assert_eq!(fixture.names("leases"), ["b@eth0"]);
    assert_eq!(
        fixture.names("addresses"),
        ["10.0.0.2", "fd00::2"],
        "the addresses of an unreadable lease stay allocated"
    );
}

#[test]
fn status_reports_the_error_of_add() {
    let fixture = single("10.0.0.4/31");
    fixture.status().unwrap();
    fixture.add("a");
    fixture.add("b");
    let error = fixture.status().unwrap_err();
    assert_error(
        &error,
        Code::NOT_AVAILABLE,
        &["2 of 2 in use; widen the range or remove pods"],
    );
    assert_eq!(fixture.names("leases"), ["a@eth0", "b@eth0"]);
}

#[test]
fn an_exhausted_range_explains_a_subnet_with_host_bits() {
    let fixture = Fixture::new(&json!({"range": "192.168.5.154/30", "perNode": true}));
    assert_eq!(
        [fixture.add("a"), fixture.add("b")],
        [["192.168.5.153"], ["192.168.5.154"]]
    );
    for error in [
        fixture.try_add("c").map(|_| ()).unwrap_err(),
        fixture.status().unwrap_err(),
    ] {
        assert!(
            error
                .details
                .contains("addresses begin at 192.168.5.153, not at 192.168.5.154"),
            "{error:?}"
        );
    }
}

/// An administrator took it for stale.
#[test]
fn del_and_gc_release_the_addresses_although_the_lock_file_was_removed() {
    for is_gc in [false, true] {
        let fixture = single("10.0.0.0/29");
        fixture.add("a");
        std::fs::remove_file(fixture.network().join("lock")).unwrap();
        let done = if is_gc { fixture.gc(&[]) } else { fixture.del("a") };
        done.unwrap();
        assert!(fixture.names("leases").is_empty(), "GC: {is_gc}");
        assert!(fixture.names("addresses").is_empty(), "GC: {is_gc}");
        fixture.assert_sound("without a lock file");
    }
}
