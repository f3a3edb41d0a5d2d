// SPDX-License-Identifier: Apache-2.0
//! A node without an agent.

use super::{assert_says, fixture, pool, write};
use crate::pool::BlockState;
use crate::testing::{Fault, Fixture, attachment, block, range};
use common::cni::dispatch::Plugin;
use common::cni::{Code, Route};
use serde_json::json;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

#[test]
fn add_allocates_the_next_address_of_the_nodes_blocks() {
    let mut file = pool("rail0", &["10.0.0.32/30", "10.0.0.64/30"]);
    file.ranges[0].gateway = Some("10.0.0.1".parse().unwrap());
    file.routes = vec![Route::new(
        "10.9.0.0/16".parse().unwrap(),
        Some("10.0.0.1".parse().unwrap()),
    )];
    file.dns.nameservers = vec!["10.0.0.53".to_owned()];
    let fixture = fixture(&file);
    let first = fixture.try_add("a").unwrap();
    assert_eq!(first.ips[0].address.to_string(), "10.0.0.32/24");
    assert_eq!(first.ips[0].gateway, file.ranges[0].gateway);
    assert_eq!((&first.routes, &first.dns), (&file.routes, &file.dns));
    assert_eq!(fixture.try_add("a").unwrap(), first, "ADD again");
    let rest: Vec<String> = (0..7).flat_map(|i| fixture.add(&format!("b{i}"))).collect();
    let expected = ["33", "34", "35", "64", "65", "66", "67"].map(|host| format!("10.0.0.{host}"));
    assert_eq!(rest, expected);
    fixture.assert_sound("with two full blocks");
}

#[test]
fn routes_and_dns_of_the_configuration_replace_those_of_the_pool() {
    let mut file = pool("rail0", &["10.0.0.32/30"]);
    file.routes = vec![Route::new("10.9.0.0/16".parse().unwrap(), None)];
    let mut fixture = fixture(&file);
    fixture.ipam["routes"] = json!([{"dst": "10.8.0.0/16"}]);
    fixture.ipam["dns"] = json!({"search": ["cluster.local"]});
    let result = fixture.try_add("a").unwrap();
    assert_eq!(result.routes, [Route::new("10.8.0.0/16".parse().unwrap(), None)]);
    assert_eq!(result.dns.search, ["cluster.local"]);
}

#[test]
fn a_lease_names_its_owner() {
    let fixture = fixture(&pool("rail0", &["10.0.0.32/30"]));
    let own = Path::new("/proc/self/ns/net");
    fixture
        .plugin
        .add(&fixture.call(&json!({})), &attachment("a"), own)
        .unwrap();
    let text = std::fs::read_to_string(fixture.file("leases/a@eth0")).unwrap();
    let lease: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&lease["pod"], &lease["uid"]), (&json!("ns/pod"), &json!("u-1")));
    let inode = std::fs::metadata(own).unwrap().ino();
    assert_eq!(lease["netns"]["inode"], json!(inode));
    assert!(lease.get("api").is_none(), "{lease}");
}

/// Otherwise the agent would end the lease with the first namespace.
#[test]
fn a_repeated_add_in_another_namespace_moves_the_lease_of_a_pool_there() {
    let fixture = fixture(&pool("rail0", &["10.0.0.32/30"]));
    let namespaces = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| namespaces.path().join(name));
    std::fs::write(&old, "").unwrap();
    std::fs::write(&new, "").unwrap();
    let first = fixture.add_in("a", &old).unwrap();
    assert_eq!(
        fixture.add_in("a", &new).unwrap(),
        first,
        "the address is the same"
    );
    let text = std::fs::read_to_string(fixture.file("leases/a@eth0")).unwrap();
    let line: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(line["netns"]["path"], json!(new), "{text}");
    fixture.assert_sound("after the move");
}

#[test]
fn one_address_of_each_family_or_none() {
    let mut file = pool("rail0", &["10.0.0.32/30", "fd00::10/127"]);
    file.ranges.push(range("fd00::/64"));
    let fixture = fixture(&file);
    assert_eq!(fixture.add("a"), ["10.0.0.32", "fd00::10"]);
    assert_eq!(fixture.add("b"), ["10.0.0.33", "fd00::11"]);
    let error = fixture.try_add("c").unwrap_err();
    assert_says(
        &error,
        Code::TRY_AGAIN,
        &["all 2 IPv6 addresses in 1 block of this node are in use"],
    );
    assert_eq!(fixture.names("leases"), ["a@eth0", "b@eth0"]);
    fixture.assert_sound("after a shortage of one family");
}

#[test]
fn addresses_come_only_from_active_blocks() {
    let mut file = pool("rail0", &[]);
    file.blocks = vec![
        block("10.0.0.16/30", BlockState::Draining),
        block("10.0.0.20/30", BlockState::Sharing),
        block("10.0.0.24/30", BlockState::Shared),
        block("10.0.0.28/30", BlockState::Active),
    ];
    let fixture = fixture(&file);
    assert_eq!(fixture.add("a"), ["10.0.0.28"]);
    for (ip, what) in [
        ("10.0.0.17", "about to be returned"),
        ("10.0.0.21", "about to be shared"),
    ] {
        assert_says(
            &fixture.request("b", &[ip]).unwrap_err(),
            Code::TRY_AGAIN,
            &[ip, what, "of this node"],
        );
    }
}

#[test]
fn a_block_that_is_being_drained_keeps_its_leases() {
    let mut file = pool("rail0", &["10.0.0.32/30"]);
    let fixture = fixture(&file);
    let added = fixture.try_add("a").unwrap();
    file.blocks[0].state = BlockState::Draining;
    file.blocks.push(block("10.0.0.64/30", BlockState::Active));
    write(fixture.data_dir(), &file);
    assert_eq!(fixture.add("b"), ["10.0.0.64"]);
    fixture.check("a", &added).unwrap();
    assert_eq!(fixture.try_add("a").unwrap(), added);
    fixture.del("a").unwrap();
    assert_eq!(fixture.names("resting"), ["10.0.0.32"]);
}

#[test]
fn excluding_an_address_in_use_leaves_it_with_its_pod() {
    let mut file = pool("rail0", &["10.0.0.32/31"]);
    let fixture = fixture(&file);
    let added = fixture.try_add("a").unwrap();
    file.ranges[0].exclude = vec!["10.0.0.32".to_owned()];
    file.generation = 2;
    write(fixture.data_dir(), &file);
    fixture.check("a", &added).unwrap();
    fixture.del("a").unwrap();
    fixture.pass(Duration::from_secs(60));
    assert_eq!(fixture.add("b"), ["10.0.0.33"]);
    assert_says(
        &fixture.request("c", &["10.0.0.32"]).unwrap_err(),
        Code::ADDRESS_EXCLUDED,
        &["excluded"],
    );
}

#[test]
fn addresses_rest_for_the_cooldown_of_the_pool() {
    let mut file = pool("rail0", &["10.0.0.32/32"]);
    file.cooldown_seconds = 90;
    let fixture = fixture(&file);
    fixture.add("a");
    fixture.del("a").unwrap();
    fixture.pass(Duration::from_secs(60));
    // The next call removes expired cooldown records, so it must know the cooldown.
    fixture.del("a").unwrap();
    fixture.gc(&[]).unwrap();
    let error = fixture.try_add("b").unwrap_err();
    assert_says(
        &error,
        Code::TRY_AGAIN,
        &["rest, the first for another 30 s", "agent.sock"],
    );
    fixture.pass(Duration::from_secs(31));
    assert_eq!(fixture.add("b"), ["10.0.0.32"]);
}

#[test]
fn a_lost_pool_file_ends_the_rest_of_no_address() {
    let mut file = pool("rail0", &["10.0.0.32/31"]);
    file.cooldown_seconds = 90;
    for content in [None, Some("damaged")] {
        let fixture = fixture(&file);
        fixture.add("a");
        fixture.add("b");
        fixture.del("a").unwrap();
        fixture.pass(Duration::from_secs(60));
        let path = fixture.network().join("pool.json");
        std::fs::remove_file(&path).unwrap();
        if let Some(content) = content {
            std::fs::write(&path, content).unwrap();
        }
        fixture.gc(&[]).unwrap();
        write(fixture.data_dir(), &file);
        assert_says(
            &fixture.try_add("c").unwrap_err(),
            Code::TRY_AGAIN,
            &["rest, the first for another 30 s"],
        );
        fixture.pass(Duration::from_secs(31));
        assert_eq!(fixture.add("c"), ["10.0.0.32"]);
    }
}

#[test]
fn requested_addresses_are_allocated_from_the_nodes_blocks() {
    let mut file = pool("rail0", &["10.0.0.0/28", "fd00::10/127"]);
    file.ranges.push(range("fd00::/64"));
    file.ranges[0].gateway = Some("10.0.0.1".parse().unwrap());
    let fixture = fixture(&file);
    let given = fixture.request("a", &["10.0.0.5/24", "fd00::11"]).unwrap();
    let given: Vec<String> = given.ips.iter().map(|ip| ip.address.to_string()).collect();
    assert_eq!(given, ["10.0.0.5/24", "fd00::11/64"]);
    let refused = |ips: &[&str], code, words: &[&str]| {
        assert_says(&fixture.request("b", ips).unwrap_err(), code, words);
        assert_eq!(fixture.names("leases"), ["a@eth0"]);
    };
    refused(
        &["10.0.0.5"],
        Code::ADDRESS_IN_USE,
        &["network net: pool rail0: address 10.0.0.5", "ns/pod"],
    );
    refused(&["10.0.0.1"], Code::ADDRESS_EXCLUDED, &["a gateway"]);
    refused(&["10.0.0.0"], Code::ADDRESS_EXCLUDED, &["the network address"]);
    refused(
        &["10.9.0.1"],
        Code::ADDRESS_OUTSIDE,
        &["outside every range: 10.0.0.1-10.0.0.254, fd00::1-"],
    );
    refused(
        &["10.0.0.6/16"],
        Code::INVALID_CONFIG,
        &["prefix length 16", "10.0.0.0/24"],
    );
    refused(&["10.0.0.6", "10.0.0.7"], Code::INVALID_CONFIG, &["one family"]);
    assert_says(
        &fixture.request("a", &["10.0.0.6"]).unwrap_err(),
        Code::INVALID_CONFIG,
        &["already has 10.0.0.5"],
    );
}

#[test]
fn del_works_with_a_missing_or_damaged_pool() {
    let path = |fixture: &Fixture| fixture.network().join("pool.json");
    let ends: [fn(&Path); 3] = [
        |path| std::fs::remove_file(path).unwrap(),
        |path| std::fs::write(path, "{").unwrap(),
        |path| std::fs::write(path, r#"{"format": 9}"#).unwrap(),
    ];
    for end in ends {
        let fixture = fixture(&pool("rail0", &["10.0.0.32/30"]));
        let added = fixture.try_add("a").unwrap();
        end(&path(&fixture));
        fixture.check("a", &added).unwrap();
        assert_eq!(fixture.try_add("a").unwrap(), added, "ADD again");
        fixture.del("a").unwrap();
        assert_eq!(
            (fixture.names("leases"), fixture.names("resting").len()),
            (Vec::new(), 1)
        );
    }
}

#[test]
fn del_finds_the_lease_when_the_configuration_names_another_pool() {
    let mut fixture = fixture(&pool("rail0", &["10.0.0.32/30"]));
    let added = fixture.try_add("a").unwrap();
    fixture.ipam["pool"] = json!("rail1");
    assert_eq!(
        fixture.try_add("a").unwrap(),
        added,
        "an attachment keeps what it has"
    );
    fixture.check("a", &added).unwrap();
    fixture.del("a").unwrap();
    assert!(fixture.names("leases").is_empty());
}

#[test]
fn del_and_add_of_another_network_keep_the_lease_under_the_same_interface_name() {
    let mut fixture = fixture(&pool("rail0", &["10.0.0.32/30"]));
    let added = fixture.try_add("a").unwrap();
    for other_pool in ["rail0", "rail1"] {
        fixture.ipam["pool"] = json!(other_pool);
        let other = fixture.call(&json!({"name": "other"}));
        fixture.plugin.del(&other, &attachment("a"), None).unwrap();
        assert_eq!(fixture.names("leases"), ["a@eth0"], "{other_pool}");
    }
    fixture.ipam["pool"] = json!("rail0");
    let other = fixture.call(&json!({"name": "other"}));
    let error = fixture
        .plugin
        .add(&other, &attachment("a"), Path::new("/netns"))
        .unwrap_err();
    assert_says(
        &error,
        Code::IFNAME_IN_USE,
        &["network other: pool rail0", "eth0 of container a", "network net"],
    );
    fixture.plugin.del(&other, &attachment("a"), None).unwrap();
    fixture.check("a", &added).unwrap();
    let previous = added.to_json(common::cni::Version::LATEST);
    let renamed = fixture.call(&json!({"name": "other", "prevResult": previous}));
    let error = fixture
        .plugin
        .check(&renamed, &attachment("a"), Path::new("/netns"));
    assert_says(
        &error.unwrap_err(),
        Code::CHECK_FAILED,
        &["lease is of another network", "network net"],
    );
    fixture.del("a").unwrap();
    assert_eq!(fixture.names("leases"), [""; 0]);
}

#[test]
fn two_networks_have_a_lease_each_in_their_pools_under_one_interface_name() {
    let mut fixture = fixture(&pool("rail0", &["10.0.0.32/30"]));
    write(fixture.data_dir(), &pool("rail1", &["10.0.0.64/30"]));
    fixture.add("a");
    fixture.ipam["pool"] = json!("rail1");
    let other = fixture.call(&json!({"name": "other"}));
    let added = fixture
        .plugin
        .add(&other, &attachment("a"), Path::new("/netns"))
        .unwrap();
    assert_eq!(added.ips[0].address.to_string(), "10.0.0.64/24");
    fixture.plugin.del(&other, &attachment("a"), None).unwrap();
    assert_eq!(fixture.names("leases"), ["a@eth0"]);
    fixture.place = "pools/rail1";
    assert_eq!(fixture.names("leases"), [""; 0]);
}

#[test]
fn del_of_any_network_ends_a_damaged_lease() {
    let fixture = fixture(&pool("rail0", &["10.0.0.32/30"]));
    fixture.add("a");
    std::fs::write(fixture.file("leases/a@eth0"), "{").unwrap();
    let other = fixture.call(&json!({"name": "other"}));
    fixture.plugin.del(&other, &attachment("a"), None).unwrap();
    assert_eq!(fixture.names("leases"), [""; 0]);
    assert_eq!(fixture.names("addresses"), [""; 0]);
}

#[test]
fn gc_ends_the_leases_of_its_own_network_only() {
    let fixture = fixture(&pool("rail0", &["10.0.0.32/29"]));
    for id in ["a", "b", "c"] {
        fixture.add(id);
    }
    let path = fixture.file("leases/c@eth0");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace(r#""network":"net""#, r#""network":"other""#)).unwrap();
    fixture.pass(Duration::from_millis(1));
    fixture.gc(&["a"]).unwrap();
    assert_eq!(fixture.names("leases"), ["a@eth0", "c@eth0"]);
    // The network of a damaged lease is unknown.
    std::fs::write(&path, "{").unwrap();
    assert_says(&fixture.gc(&["a"]).unwrap_err(), Code::STORE_CORRUPT, &["c@eth0"]);
    assert_eq!(fixture.names("leases"), ["a@eth0", "c@eth0"]);
}

#[test]
fn check_reports_a_lost_lease() {
    let fixture = fixture(&pool("rail0", &["10.0.0.32/30"]));
    let added = fixture.try_add("a").unwrap();
    fixture.del("a").unwrap();
    let error = fixture.check("a", &added).unwrap_err();
    assert_says(
        &error,
        Code::CHECK_FAILED,
        &["network net", "no lease in any pool"],
    );
}

#[test]
fn the_error_for_a_damaged_pool_names_the_file_and_the_remedy() {
    let fixture = fixture(&pool("rail0", &["10.0.0.32/30"]));
    std::fs::write(fixture.network().join("pool.json"), "{").unwrap();
    for error in [
        fixture.try_add("a").map(|_| ()).unwrap_err(),
        fixture.status().unwrap_err(),
    ] {
        assert_says(
            &error,
            error.code,
            &[
                "pool rail0",
                "pools/rail0/pool.json is damaged",
                "agent writes it anew",
            ],
        );
    }
    assert_eq!(fixture.try_add("a").unwrap_err().code, Code::STORE_CORRUPT);
    std::fs::write(fixture.network().join("pool.json"), r#"{"format": 9}"#).unwrap();
    assert_says(
        &fixture.try_add("a").unwrap_err(),
        Code::UNSUPPORTED_FIELD,
        &["format 9"],
    );
}

#[test]
fn status_succeeds_while_the_node_has_an_address_of_each_family() {
    let mut file = pool("rail0", &["10.0.0.32/32", "fd00::10/127"]);
    file.ranges.push(range("fd00::/64"));
    let fixture = fixture(&file);
    fixture.status().unwrap();
    assert!(fixture.names("leases").is_empty(), "STATUS gives nothing");
    fixture.add("a");
    let error = fixture.status().unwrap_err();
    assert_says(
        &error,
        Code::NOT_AVAILABLE,
        &["pool rail0", "all 1 IPv4", "agent.sock"],
    );
    fixture.del("a").unwrap();
    fixture.pass(Duration::from_secs(60));
    fixture.fault(Fault::ReadOnly);
    assert_says(
        &fixture.status().unwrap_err(),
        Code::NOT_AVAILABLE,
        &["remount it writable"],
    );
}
