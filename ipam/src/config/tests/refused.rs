// SPDX-License-Identifier: Apache-2.0
//! Configurations that are refused, each with the name of its key.

use super::*;

/// Asserts that each configuration is refused as invalid with a message that contains the text.
fn assert_refused(cases: &[(Value, &str)]) {
    for (ipam, expected) in cases {
        let error = read(ipam).expect_err(&ipam.to_string());
        assert_eq!(error.code, Code::INVALID_CONFIG, "{ipam}: {error}");
        assert!(
            error.msg.contains(expected),
            "{ipam}: {:?} lacks {expected:?}",
            error.msg
        );
    }
}

#[test]
fn missing_and_unreadable_keys_are_refused_by_name() {
    let cases = [
        (json!({}), "no range is set"),
        (json!({"ranges": []}), "no range is set"),
        (json!({"ranges": [[]]}), "ipam.ranges[0] is an empty range set"),
        (json!({"ranges": [[{}]]}), "ipam.ranges[0][0].subnet is missing"),
        (json!({"range_start": "10.0.0.1"}), "ipam.range is missing"),
        (
            json!({"ipRanges": [{"exclude": []}]}),
            "ipam.ipRanges[0].range is missing",
        ),
        (
            json!({"rangeStart": "10.0.0.1"}),
            "ipam.rangeStart (10.0.0.1) is set without ipam.subnet",
        ),
        (
            json!({"subnet": "10.0.0.0"}),
            "ipam.subnet \"10.0.0.0\" is not a subnet with a prefix length",
        ),
        (
            json!({"subnet": "10.0.0.0/33"}),
            "ipam.subnet \"10.0.0.0/33\" is not a subnet",
        ),
        (
            json!({"subnet": "::ffff:10.0.0.0/120"}),
            "is IPv4 written as IPv6",
        ),
        (
            json!({"range": "192.168.x.152/27"}),
            "ipam.range \"192.168.x.152/27\" is not a subnet",
        ),
        (
            json!({"range": "10.0.0.1-10.0.0.9"}),
            "lacks a prefix length; write first-last/length",
        ),
        (
            json!({"range": "10.0.0.1-10.0.0.9/24", "range_end": "10.0.0.9"}),
            "and ipam.range_end set the same limit",
        ),
    ];
    assert_refused(&cases);
}

#[test]
fn contradicting_keys_are_refused_by_name() {
    let cases = [
        (
            json!({"range": "10.0.0.9-10.0.0.1/24"}),
            "the range is inverted: its start 10.0.0.9 comes after its end 10.0.0.1",
        ),
        (
            json!({"subnet": "10.0.0.0/24", "rangeStart": "x"}),
            "ipam.rangeStart \"x\" is not an address",
        ),
        (
            json!({"subnet": "10.0.0.0/24", "rangeStart": "10.1.0.1"}),
            "range start 10.1.0.1 lies outside the subnet 10.0.0.0/24",
        ),
        (
            json!({"subnet": "10.0.0.0/24", "gateway": "10.1.0.1"}),
            "ipam.gateway 10.1.0.1 lies outside every subnet: 10.0.0.0/24",
        ),
        (
            json!({"ranges": [[{"subnet": "10.0.0.0/24", "gateway": "10.1.0.1"}]]}),
            "ipam.ranges[0][0]: gateway 10.1.0.1 lies outside the subnet 10.0.0.0/24",
        ),
        (
            json!({"subnet": "10.0.0.0/24", "exclude": ["10.0.0.0/24"]}),
            "no address is left in 10.0.0.1-10.0.0.254",
        ),
        (
            json!({"subnet": "10.0.0.0/24", "exclude": ["10.0.0.9-10.0.0.1"]}),
            "ipam.exclude[0] \"10.0.0.9-10.0.0.1\" is inverted",
        ),
        (
            json!({"subnet": "10.0.0.0/24", "exclude": ["ten"]}),
            "ipam.exclude[0] \"ten\" is not an address",
        ),
        (
            json!({"ranges": [[{"subnet": "10.0.0.0/24"}, {"subnet": "10.0.0.128/25"}]]}),
            "overlaps ipam.ranges[0][0] (10.0.0.1-10.0.0.254)",
        ),
        (
            json!({"ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "10.0.0.0/24"}]]}),
            "ipam.ranges[1][0] (10.0.0.1-10.0.0.254) overlaps",
        ),
        (
            json!({"ranges": [[{"subnet": "10.0.0.0/24"}, {"subnet": "fd00::/64"}]]}),
            "are of two families in one range set",
        ),
    ];
    assert_refused(&cases);
}

#[test]
fn contradictions_outside_the_ranges_are_refused_by_name() {
    let cases = [
        (
            json!({"subnet": "10.0.0.0/24", "routes": [{"dst": "fd00::/8", "gw": "10.0.0.1"}]}),
            "ipam.routes[0]: gw 10.0.0.1 is not of the family of dst fd00::/8",
        ),
        (
            json!({"subnet": "10.0.0.0/24", "dns": {"domain": "a"}, "resolvConf": "/etc/resolv.conf"}),
            "ipam.dns and ipam.resolvConf",
        ),
        (
            json!({"subnet": "10.0.0.0/24", "dataDir": "leases"}),
            "ipam.dataDir \"leases\" is relative",
        ),
        (
            json!({"subnet": "10.0.0.0/24", "network_name": "../x"}),
            "network name \"../x\" cannot name a directory",
        ),
    ];
    assert_refused(&cases);
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_one() {
    let cases = [
        (
            json!({"subnet": "10.0.0.0/24", "excludes": []}),
            "unknown key ipam.excludes (value []); did you mean ipam.exclude?",
        ),
        (
            json!({"subnet": "10.0.0.0/24", "coolDown": 5}),
            "did you mean ipam.cooldown?",
        ),
        (
            json!({"ranges": [[{"subnet": "10.0.0.0/24", "range_start": "10.0.0.9"}]]}),
            "did you mean ipam.ranges[0][0].rangeStart?",
        ),
        (
            json!({"ipRanges": [{"range": "10.0.0.0/24", "rangeStart": "10.0.0.9"}]}),
            "did you mean ipam.ipRanges[0].range_start?",
        ),
        (
            json!({"subnet": "10.0.0.0/24", "routes": [{"dst": "10.0.0.0/8", "gateway": "10.0.0.1"}]}),
            "unknown key ipam.routes[0].gateway",
        ),
    ];
    assert_refused(&cases);
}

#[test]
fn mixed_spellings_are_refused_with_both_names() {
    let cases = [
        (
            json!({"subnet": "10.0.0.0/24", "range": "10.0.0.0/24"}),
            ["ipam.subnet", "ipam.range "],
        ),
        (
            json!({"range": "10.0.0.0/24", "rangeStart": "10.0.0.9"}),
            ["ipam.rangeStart", "ipam.range "],
        ),
        (
            json!({"subnet": "10.0.0.0/24", "range_start": "10.0.0.9"}),
            ["ipam.subnet", "ipam.range_start"],
        ),
        (
            json!({"ranges": [[{"subnet": "10.0.0.0/24"}]], "ipRanges": [{"range": "10.1.0.0/24"}]}),
            ["ipam.ranges", "ipam.ipRanges"],
        ),
    ];
    for (ipam, names) in cases {
        let error = read(&ipam).expect_err(&ipam.to_string());
        assert_eq!(error.code, Code::INVALID_CONFIG);
        assert!(
            names.iter().all(|name| error.msg.contains(name)),
            "{:?} lacks one of {names:?}",
            error.msg
        );
    }
}

#[test]
fn keys_that_would_change_the_allocation_are_refused_not_ignored() {
    let cases = [
        (
            json!({"range": "10.0.0.0/24", "node_slice_size": "/26"}),
            "ipam.node_slice_size (value \"/26\")",
        ),
        (
            json!({"range": "10.0.0.0/24", "addresses": [{"address": "10.9.9.9/24"}]}),
            "ipam.addresses",
        ),
        (
            json!({"range": "10.0.0.0/24", "configuration_path": "/etc/w.conf"}),
            "ipam.configuration_path (value \"/etc/w.conf\")",
        ),
    ];
    for (ipam, expected) in cases {
        let error = read(&ipam).expect_err(&ipam.to_string());
        assert_error(&error, Code::UNSUPPORTED_FIELD, &[expected]);
    }
    let shared = json!({"range": "10.0.0.0/24", "enable_overlapping_ranges": true, "network_name": "shared"});
    assert_eq!(
        read(&shared).unwrap().place.dir,
        PathBuf::from("/var/lib/cni/rdma-ipam/shared")
    );
}

#[test]
fn errors_for_wrong_types_name_the_path() {
    let error = read(&json!({"subnet": 5})).unwrap_err();
    assert_error(&error, Code::DECODE, &["ipam.subnet"]);
    let error = read(&json!({"ranges": [[{"subnet": "10.0.0.0/24", "exclude": "10.0.0.1"}]]})).unwrap_err();
    assert_error(&error, Code::DECODE, &["ipam.ranges[0][0].exclude"]);
    let error = Config::read(&call(&json!(null), &json!({}))).unwrap_err();
    assert_error(&error, Code::INVALID_CONFIG, &["ipam is missing"]);
}

#[test]
fn repeated_and_invalid_address_requests_are_refused() {
    let ipam = json!({"ranges": [[{"subnet": "fd00::/64"}]]});
    for (ips, expected) in [
        (json!(["fd00::1", "FD00:0::1"]), "asked for twice"),
        (json!(["fd00::x"]), "is not an address"),
    ] {
        let error = Config::read(&call(&ipam, &json!({"runtimeConfig": {"ips": ips}}))).unwrap_err();
        assert_eq!(error.code, Code::INVALID_CONFIG);
        assert!(
            error.msg.contains(expected) && error.msg.contains("runtimeConfig.ips"),
            "{error}"
        );
    }
}

#[test]
fn old_versions_refuse_two_addresses_of_one_family() {
    let two = json!({"ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "10.1.0.0/24"}]]});
    let dual = json!({"ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "fd00::/64"}]]});
    for version in ["0.1.0", "0.2.0"] {
        let error = Config::read(&call(&two, &json!({"cniVersion": version}))).unwrap_err();
        assert_error(&error, Code::INVALID_CONFIG, &["0.3.0 or newer"]);
        Config::read(&call(&dual, &json!({"cniVersion": version}))).unwrap();
    }
    Config::read(&call(&two, &json!({"cniVersion": "0.3.0"}))).unwrap();
}
