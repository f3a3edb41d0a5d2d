// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::testing::{accepted_pool, pool, small_pool};
use serde_json::json;

#[test]
fn a_pool_has_the_addresses_of_its_ranges_without_the_excluded_ones() {
    let accepted = accepted_pool(
        "rail0",
        &json!({
            "ranges": [
                { "subnet": "10.1.0.0/24", "exclude": ["10.1.0.16/28", "10.1.0.9"] },
                { "subnet": "fd00::/64", "gateway": "none", "start": "fd00::100", "end": "fd00::1ff" },
            ],
            "blockSize": { "v4": 16, "v6": 64 }, "reserved": ["10.1.0.200-10.1.0.209"],
        }),
    )
    .unwrap();
    // 254 hosts minus the gateway and 17 excluded addresses. The 10 reserved addresses are part of the pool.
    assert_eq!(
        accepted.layout(Family::V4).unwrap().addresses(),
        254 - 1 - 17 - 10
    );
    assert_eq!(accepted.layout(Family::V6).unwrap().addresses(), 256);
    assert_eq!(accepted.size(Family::V4), 254 - 1 - 17);
    assert_eq!(accepted.size(Family::V6), 256);
    let cidr = |cidr: &str| BlockCidr::of(cidr.parse().unwrap()).unwrap();
    assert!(accepted.has(cidr("10.1.0.0/28")));
    assert!(!accepted.has(cidr("10.1.0.16/28")), "nothing of it is left");
    assert!(!accepted.has(cidr("10.1.0.0/27")), "of another size");
    assert!(!accepted.has(cidr("10.2.0.0/28")));
    assert_eq!(
        accepted.block_of("10.1.0.77".parse().unwrap()),
        Some(cidr("10.1.0.64/28"))
    );
}

/// The API server refuses an address object without a block.
#[test]
fn an_address_of_a_family_that_an_edit_removed_is_a_block_of_one() {
    let spec = json!({ "ranges": [{ "subnet": "10.1.0.0/24" }], "blockSize": { "v4": 16 } });
    let accepted = accepted_pool("rail0", &spec).unwrap();
    let block = accepted.block_of("fd00:1::5".parse().unwrap()).unwrap();
    assert_eq!(block.network().to_string(), "fd00:1::5/128");
}

#[test]
fn the_error_of_an_invalid_pool_names_the_invalid_member() {
    for (spec, words) in [
        (
            json!({ "ranges": [{ "subnet": "10.1.0.0/40" }] }),
            "spec.ranges[0].subnet",
        ),
        (
            json!({ "ranges": [{ "subnet": "10.1.0.0/24" }, { "subnet": "10.2.0.0/24", "start": "x" }] }),
            "spec.ranges[1].start",
        ),
        (
            json!({ "ranges": [{ "subnet": "10.1.0.0/24" }], "routes": [{ "dst": "default" }] }),
            "spec.routes[0].dst",
        ),
        (
            json!({ "ranges": [{ "subnet": "10.1.0.0/24" }], "blockSize": { "v4": 48 } }),
            "spec.blockSize: 48",
        ),
        (
            json!({ "ranges": [{ "subnet": "10.1.0.0/24", "exclude": ["10.1.0.0/24"] }] }),
            "no address is left",
        ),
        (
            json!({ "ranges": [{ "subnet": "10.1.0.0/24", "end": "10.1.0.0" }] }),
            "spec.ranges[0]: the range is inverted: its start 10.1.0.1 comes after its end 10.1.0.0",
        ),
        (
            json!({ "ranges": [{ "subnet": "10.1.0.0/24" }], "reserved": ["ten"] }),
            "spec.reserved[0] \"ten\" is not an address",
        ),
    ] {
        let error = accepted_pool("rail0", &spec).unwrap_err();
        assert_eq!(error.code, Code::INVALID_CONFIG);
        assert!(error.msg.contains(words), "{} lacks {words}", error.msg);
        assert!(!error.msg.contains("remove the file"), "{}", error.msg);
    }
}

#[test]
fn only_the_accepted_spec_of_a_pool_is_in_force() {
    let mut edited = pool("rail0", &json!({ "ranges": [{ "subnet": "10.9.0.0/24" }] }));
    assert!(AcceptedPool::of(&edited).unwrap().is_none());
    let before = small_pool();
    edited.status = Some(crate::IpPoolStatus {
        accepted: Some(before.spec.clone()),
        accepted_generation: Some(2),
        observed_generation: Some(3),
        ..Default::default()
    });
    let in_force = AcceptedPool::of(&edited).unwrap().unwrap();
    assert_eq!((in_force.spec, in_force.generation), (before.spec, 2));
}

#[test]
fn two_accepted_specs_never_have_the_same_generation() {
    let other = pool("rail0", &json!({ "ranges": [{ "subnet": "10.9.0.0/24" }] })).spec;
    let first = small_pool().spec;
    let mut status = crate::IpPoolStatus::default();
    assert_eq!(
        status.number_of(&first, 5),
        5,
        "of the first one that is accepted"
    );
    // A status from a controller that stored only one generation: 6 was refused, and 5 is in force.
    status.accepted = Some(first.clone());
    status.observed_generation = Some(6);
    assert_eq!(status.number_in_force(), 6);
    assert_eq!(
        status.number_of(&other, 6),
        1006,
        "the refused spec, once it is accepted"
    );
    assert_eq!(status.number_of(&first, 7), 6, "the spec is already in force");
    status.accepted_generation = Some(5);
    assert_eq!(status.number_of(&other, 6), 1006, "nodes may have reported 6");
    assert_eq!(status.number_of(&other, 7), 7, "an edit that was not refused");
    assert_eq!(status.number_of(&first, 7), 5);
    status.accepted = None;
    assert_eq!(status.number_in_force(), 0);
    assert_eq!(status.number_of(&other, 6), 6, "no node applies a spec");
}

#[test]
fn the_number_of_a_spec_in_force_equals_no_generation_of_a_later_edit() {
    let specs = ["10.8.0.0/24", "10.9.0.0/24"]
        .map(|subnet| pool("rail0", &json!({ "ranges": [{ "subnet": subnet }] })).spec);
    let mut status = crate::IpPoolStatus {
        accepted: Some(specs[0].clone()),
        accepted_generation: Some(1),
        observed_generation: Some(2),
        ..Default::default()
    };
    for generation in 2..20 {
        let spec = &specs[usize::from(generation % 2 == 1)];
        let other = &specs[usize::from(generation % 2 == 0)];
        let number = status.number_of(other, generation);
        assert!(
            number > status.number_in_force() && number > generation + 500,
            "{number} of {generation}"
        );
        status.accepted = Some(other.clone());
        status.accepted_generation = Some(number);
        status.observed_generation = Some(generation);
        assert_eq!(status.number_of(other, generation), number);
        assert_ne!(status.number_of(spec, generation + 1), generation + 1);
    }
}

#[test]
fn a_node_keeps_half_a_block_of_free_addresses_for_each_warm_block() {
    let wanted = |size: i64, warm: i64| {
        let spec = json!({
            "ranges": [{ "subnet": "10.1.0.0/16" }], "blockSize": { "v4": size }, "warmBlocks": warm,
        });
        accepted_pool("rail0", &spec).unwrap().free_target(Family::V4)
    };
    assert_eq!(
        (wanted(64, 1), wanted(64, 3), wanted(1, 1), wanted(64, 0)),
        (32, 96, 1, 0)
    );
    assert_eq!(
        small_pool().free_target(Family::V6),
        1,
        "of a family that it does not have"
    );
}

#[test]
fn the_pool_file_contains_the_settings_for_the_plugin() {
    let accepted = accepted_pool(
        "rail0",
        &json!({
            "ranges": [{ "subnet": "10.1.0.0/24" }, { "subnet": "10.2.0.0/24", "gateway": "none" }],
            "routes": [{ "dst": "10.8.0.0/16", "gw": "10.1.0.1" }],
            "priority": 4, "fallback": ["other"], "reserved": ["10.1.0.9"], "cooldownSeconds": 5, "allocation": "PerAddress",
        }),
    )
    .unwrap();
    let writer = Writer {
        owner: Owner {
            node: "a".into(),
            uid: "uid-a".into(),
        },
        boot_id: "boot".to_owned(),
        quarantine: Duration::from_secs(600),
    };
    let file = accepted.file(&writer, Some(vec!["ml".to_owned()]), Counters::default());
    assert_eq!(
        (
            file.node.as_str(),
            file.node_uid.as_str(),
            file.quarantine_seconds
        ),
        ("a", "uid-a", 600)
    );
    assert_eq!((file.generation, file.cooldown_seconds, file.priority), (3, 5, 4));
    assert_eq!(file.allocation, Allocation::Agent);
    assert_eq!(file.ranges[0].gateway, Some("10.1.0.1".parse().unwrap()));
    assert_eq!(file.ranges[1].gateway, None);
    assert_eq!(file.fallback, ["other".parse().unwrap()]);
    assert_eq!(
        (file.reserved.len(), file.routes.len(), file.blocks.len()),
        (1, 1, 0)
    );
    assert!(file.admits(Some("ml")) && !file.admits(Some("default")));
    let text = file.to_bytes().unwrap();
    assert_eq!(serde_json::from_slice::<PoolFile>(&text).unwrap(), file);
}
