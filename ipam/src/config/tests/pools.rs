// SPDX-License-Identifier: Apache-2.0
//! Configurations with pools.

use super::*;
use std::path::Path;

fn read_pools(ipam: &Value, more: &Value) -> Result<PoolConfig, Error> {
    let call = call(ipam, more);
    let place = PoolPlace::read(&call.conf)?.expect("the configuration names no pool");
    PoolConfig::read(&call, place)
}

fn names(config: &PoolConfig) -> Vec<&str> {
    config.place.pools.iter().map(PoolName::as_str).collect()
}

#[test]
fn a_configuration_names_one_pool_or_several_in_order() {
    let one = read_pools(&json!({"type": "rdma-ipam", "pool": "rail0"}), &json!({})).unwrap();
    assert_eq!(names(&one), ["rail0"]);
    assert!(one.routes.is_none() && one.dns.is_none());
    let more = json!({"runtimeConfig": {"ips": ["10.0.0.5"], "ipRanges": []}});
    let ipam = json!({"pools": ["b", "a"], "dataDir": "/run/x", "routes": [{"dst": "10.9.0.0/16"}], "dns": {"search": ["x"]}});
    let several = read_pools(&ipam, &more).unwrap();
    assert_eq!(names(&several), ["b", "a"]);
    assert_eq!(several.requests.iter().count(), 1);
    assert_eq!(several.routes.unwrap().len(), 1);
    assert_eq!(several.dns.unwrap().search, ["x"]);
    let place = several.place.of(&"a".parse().unwrap());
    assert_eq!(
        (place.name.as_str(), place.dir.as_path()),
        ("ibnet", Path::new("/run/x/pools/a"))
    );
}

#[test]
fn a_configuration_with_ranges_names_no_pool() {
    let ranges = call(&json!({"subnet": "10.0.0.0/24"}), &json!({}));
    assert_eq!(PoolPlace::read(&ranges.conf).unwrap(), None);
}

/// Asserts that each configuration, with the additional keys, is refused as invalid with a message that contains the
/// text.
fn assert_refused(cases: &[(Value, Value, &str)]) {
    for (ipam, more, expected) in cases {
        let error = read_pools(ipam, more).expect_err(&ipam.to_string());
        assert_eq!(error.code, Code::INVALID_CONFIG, "{ipam}: {error}");
        assert!(
            error.msg.contains(expected),
            "{ipam}: {:?} lacks {expected:?}",
            error.msg
        );
    }
}

#[test]
fn keys_that_a_pool_defines_itself_are_refused_beside_it() {
    let cases = [
        (
            json!({"pool": "a", "pools": ["b"]}),
            json!({}),
            "ipam.pools (value [\"b\"]) cannot be combined with ipam.pool (value \"a\")",
        ),
        (
            json!({"pool": "a", "subnet": "10.0.0.0/24"}),
            json!({}),
            "ipam.subnet (value \"10.0.0.0/24\")",
        ),
        (
            json!({"pool": "a", "range": "10.0.0.0/24"}),
            json!({}),
            "ipam.range (value",
        ),
        (
            json!({"pools": ["a"], "exclude": []}),
            json!({}),
            "cannot be combined with ipam.pools",
        ),
        (
            json!({"pool": "a", "cooldown": 5}),
            json!({}),
            "ipam.cooldown (value 5)",
        ),
        (
            json!({"pool": "a", "network_name": "x"}),
            json!({}),
            "ipam.network_name",
        ),
        (
            json!({"pool": "a", "datastore": "kubernetes"}),
            json!({}),
            "ipam.datastore",
        ),
        (
            json!({"pool": "a"}),
            json!({"runtimeConfig": {"ipRanges": [[{"subnet": "10.0.0.0/24"}]]}}),
            "runtimeConfig.ipRanges",
        ),
    ];
    assert_refused(&cases);
}

#[test]
fn invalid_pool_names_are_refused() {
    let cases = [
        (
            json!({"pool": "Rail_0"}),
            json!({}),
            "ipam.pool: \"Rail_0\" cannot be the name of an IPPool",
        ),
        (
            json!({"pools": ["a", "../b"]}),
            json!({}),
            "ipam.pools[1]: \"../b\" cannot be",
        ),
        (
            json!({"pools": ["a", "a"]}),
            json!({}),
            "ipam.pools[1] names pool a once more",
        ),
        (json!({"pools": []}), json!({}), "ipam.pools is empty"),
        (
            json!({"pool": "a", "pol": "b"}),
            json!({}),
            "unknown key ipam.pol (value \"b\"); did you mean ipam.pool?",
        ),
    ];
    assert_refused(&cases);
    let error = read_pools(&json!({"pool": 7}), &json!({})).unwrap_err();
    assert_error(&error, Code::DECODE, &["ipam.pool"]);
}

#[test]
fn del_needs_only_the_names_of_pools() {
    let broken = json!({"pools": ["a", 7, "../b"], "pool": {"x": 1}, "routes": 7, "unknown": true});
    let place = PoolPlace::read(&call(&broken, &json!({})).conf).unwrap().unwrap();
    assert_eq!(place.pools, ["a".parse().unwrap()]);
    assert_eq!(place.dir(), Path::new("/var/lib/cni/rdma-ipam/pools"));
}

#[test]
fn a_network_of_ranges_cannot_be_named_pools() {
    let error = read(&json!({"subnet": "10.0.0.0/24", "network_name": "pools"})).unwrap_err();
    assert_error(
        &error,
        Code::INVALID_CONFIG,
        &["set ipam.network_name to another name"],
    );
}
