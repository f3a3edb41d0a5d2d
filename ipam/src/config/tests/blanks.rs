// SPDX-License-Identifier: Apache-2.0
//! Values that a template left empty, and values of types that Go plugins reject.

use super::*;

const SUBNET: &str = "10.1.0.2 of 10.1.0.1-10.1.0.254 in 10.1.0.0/24 via 10.1.0.1";

#[test]
fn null_and_empty_values_count_as_unset() {
    let blank = [
        json!({"routes": [{"dst": "10.9.0.0/16", "gw": ""}]}),
        json!({"routes": [{"dst": "10.9.0.0/16", "gw": null, "mtu": null}]}),
        json!({"rangeStart": "", "rangeEnd": null}),
        json!({"range": "", "range_start": "", "range_end": "", "ipRanges": null}),
        json!({"dns": {"nameservers": null, "domain": "", "search": [""]}}),
        json!({"exclude": [""], "gateway": ""}),
        json!({"ranges": null, "dataDir": "", "resolvConf": "", "network_name": "", "cooldown": null}),
        json!({"datastore": "", "kubernetes": null}),
    ];
    for more in blank {
        let mut ipam = json!({"subnet": "10.1.0.0/24"});
        ipam.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        means(&ipam, &[&[SUBNET]]);
        let config = read(&ipam).unwrap();
        assert!(config.routes.iter().all(|route| route.gw.is_none()), "{ipam}");
        assert!(config.dns.nameservers.is_empty(), "{ipam}");
    }
    means(
        &json!({"range": "10.0.0.0/29", "range_start": "", "exclude": [""]}),
        &[&["10.0.0.1 of 10.0.0.1-10.0.0.6 in 10.0.0.0/29"]],
    );
    let asked =
        json!({"runtimeConfig": {"ips": [""], "ipRanges": null}, "args": {"cni": {"ips": ["", "10.1.0.9"]}}});
    let config = Config::read(&call(&json!({"subnet": "10.1.0.0/24"}), &asked)).unwrap();
    let requests: Vec<_> = config.requests.iter().map(|request| request.ip).collect();
    assert_eq!(requests, [ip("10.1.0.9")]);
}

/// If a template left the pool's name empty, each node would allocate the same addresses.
#[test]
fn an_empty_pool_name_is_refused() {
    for ipam in [
        json!({"pool": "", "subnet": "10.1.0.0/24"}),
        json!({"pools": [""]}),
        json!({"pools": []}),
    ] {
        let call = call(&ipam, &json!({}));
        let place = PoolPlace::read(&call.conf).unwrap().expect("it names a pool");
        assert_eq!(
            PoolConfig::read(&call, place).unwrap_err().code,
            Code::INVALID_CONFIG,
            "{ipam}"
        );
    }
}

#[test]
fn a_null_pool_name_is_refused() {
    for (ipam, key) in [
        (json!({"pool": null, "subnet": "10.1.0.0/24"}), "ipam.pool"),
        (json!({"pools": null, "subnet": "10.1.0.0/24"}), "ipam.pools"),
        (json!({"pool": null}), "ipam.pool"),
    ] {
        assert_error(
            &read(&ipam).unwrap_err(),
            Code::INVALID_CONFIG,
            &[&format!("{key} is null"), "name an IPPool, or remove the key"],
        );
    }
    for ipam in [
        json!({"pool": "rail0", "pools": null}),
        json!({"pool": null, "pools": ["rail0"]}),
    ] {
        let call = call(&ipam, &json!({}));
        let place = PoolPlace::read(&call.conf).unwrap().expect("it names a pool");
        let error = PoolConfig::read(&call, place).unwrap_err();
        assert_error(&error, Code::INVALID_CONFIG, &["is null"]);
    }
}

#[test]
fn a_list_in_place_of_an_object_is_refused() {
    let cases = [
        (
            json!({"subnet": "10.1.0.0/24", "dns": [["1.1.1.1"], "d", [], []]}),
            "ipam.dns",
        ),
        (
            json!({"ranges": [[["10.0.0.0/24", null, null, null, null]]]}),
            "ipam.ranges[0][0]",
        ),
        (
            json!({"ipRanges": [["10.0.0.0/24", null, null, null, null]]}),
            "ipam.ipRanges[0]",
        ),
        (
            json!({"subnet": "10.1.0.0/24", "routes": [["10.0.0.0/8", null, null, null, null, null, null]]}),
            "ipam.routes[0]",
        ),
    ];
    for (ipam, place) in cases {
        let error = read(&ipam).unwrap_err();
        assert_error(
            &error,
            Code::DECODE,
            &[&format!("{place} is a list, want an object")],
        );
    }
    for more in [
        json!({"runtimeConfig": [["10.1.0.9"], null]}),
        json!({"args": [[["10.1.0.9"]]]}),
    ] {
        let error = Config::read(&call(&json!({"subnet": "10.1.0.0/24"}), &more)).unwrap_err();
        assert_eq!(error.code, Code::DECODE, "{error}");
    }
    let list = call(&json!(["net", "/run/x", 5, null, null]), &json!({}));
    assert_eq!(Place::read(&list.conf).unwrap_err().code, Code::DECODE);
    assert_eq!(PoolPlace::read(&list.conf).unwrap_err().code, Code::DECODE);
    let error = read(&json!({"ranges": [[{"subnet": "10.0.0.0/24"}], null]})).unwrap_err();
    assert_eq!(
        error.code,
        Code::DECODE,
        "without the set, the result lacks an address: {error}"
    );
}

#[test]
fn ranges_of_addresses_that_are_not_for_hosts_are_refused() {
    let cases = [
        ("0.0.0.0/0", "0.0.0.0/8"),
        ("127.0.0.0/24", "127.0.0.0/8 (loopback)"),
        ("224.0.0.0/24", "224.0.0.0/4 (multicast)"),
        ("255.255.255.0/24", ""),
        ("255.255.255.254/31", "255.255.255.255"),
        ("::/64", ":: and ::1"),
        ("ff02::/64", "ff00::/8 (multicast)"),
    ];
    for (subnet, what) in cases {
        let read = read(&json!({"subnet": subnet, "gateway": "none"}));
        if what.is_empty() {
            read.expect("the broadcast address is reserved, as in each subnet");
            continue;
        }
        let error = read.unwrap_err();
        assert_eq!(error.code, Code::INVALID_CONFIG, "{subnet}: {error}");
        assert!(error.msg.contains(&format!("reaches into {what}")), "{error}");
    }
    read(&json!({"subnet": "::/64", "rangeStart": "::1:0", "gateway": "none"})).unwrap();
}

#[test]
fn a_prefix_length_must_be_in_cidr_notation() {
    for subnet in ["10.0.0.0/+24", "10.0.0.0/024", "10.0.0.0/ 24", "10.0.0.0/"] {
        let error = read(&json!({"subnet": subnet})).unwrap_err();
        assert!(
            error.msg.contains("is not a subnet with a prefix length"),
            "{error}"
        );
    }
}

#[test]
fn an_endless_or_silent_resolv_conf_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
    let large = dir.path().join("large");
    std::fs::write(&large, "#".repeat((64 << 10) + 1)).unwrap();
    for (file, expected) in [
        (fifo.to_str().unwrap(), "not a regular file"),
        ("/dev/zero", "not a regular file"),
        (dir.path().to_str().unwrap(), "not a regular file"),
        (large.to_str().unwrap(), "larger than 64 KiB"),
    ] {
        let error = read(&json!({"subnet": "10.1.0.0/24", "resolvConf": file})).unwrap_err();
        assert_eq!(error.code, Code::IO, "{error}");
        let text = format!("{} {}", error.msg, error.details);
        assert!(text.contains(expected) && text.contains(file), "{text}");
    }
    let whole = dir.path().join("whole");
    std::fs::write(
        &whole,
        format!("nameserver 10.0.0.1\n{}", "#".repeat((64 << 10) - 20)),
    )
    .unwrap();
    let config = read(&json!({"subnet": "10.1.0.0/24", "resolvConf": whole})).unwrap();
    assert_eq!(config.dns.nameservers, ["10.0.0.1"]);
}
