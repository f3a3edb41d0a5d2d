// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::range::{Family, Verdict};
use common::cni::Args;
use serde_json::{Value, json};
use std::net::IpAddr;

/// A call whose `ipam` is `ipam`, with the keys of `more` beside it.
fn call(ipam: &Value, more: &Value) -> Call {
    let mut conf =
        json!({"cniVersion": "1.1.0", "name": "ibnet", "type": "cni-ipoib", "master": "ib0", "ipam": ipam});
    conf.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    Call {
        program: "rdma-ipam".to_owned(),
        conf: Conf::read(conf.to_string().as_bytes()).unwrap(),
        args: Args::default(),
        args_text: String::new(),
        path: Vec::new(),
        netns_override: false,
    }
}

fn read(ipam: &Value) -> Result<Config, Error> {
    Config::read(&call(ipam, &json!({})))
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Per set: its ranges with the first address each gives, and the gateway.
fn outline(config: &Config) -> Vec<Vec<String>> {
    let line = |range: &Range| {
        let first = range.family().address(range.free().first_from(0).unwrap());
        let gateway = range.gateway.map(|ip| format!(" via {ip}")).unwrap_or_default();
        format!("{first} of {range} in {}{gateway}", range.subnet)
    };
    config
        .sets
        .iter()
        .map(|set| set.iter().map(line).collect())
        .collect()
}

/// A configuration in some spelling, and what it means.
fn means(ipam: &Value, want: &[&[&str]]) {
    let config = read(ipam).unwrap_or_else(|e| panic!("{ipam}: {e}"));
    assert_eq!(outline(&config), want, "{ipam}");
}

#[test]
fn host_local_configurations_mean_what_they_mean_there() {
    means(
        &json!({"type": "rdma-ipam", "subnet": "10.1.0.0/16"}),
        &[&["10.1.0.2 of 10.1.0.1-10.1.255.254 in 10.1.0.0/16 via 10.1.0.1"]],
    );
    means(
        &json!({"subnet": "10.1.0.0/16", "rangeStart": "10.1.1.0", "rangeEnd": "10.1.1.9", "gateway": "10.1.255.1",
            "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "/run/leases", "resolvConf": ""}),
        &[&["10.1.1.0 of 10.1.1.0-10.1.1.9 in 10.1.0.0/16 via 10.1.255.1"]],
    );
    means(
        &json!({"ranges": [
            [{"subnet": "10.1.0.0/24"}, {"subnet": "10.2.0.0/24", "rangeStart": "10.2.0.9"}],
            [{"subnet": "fd01::/64", "gateway": "fd01::ff"}],
        ]}),
        &[
            &[
                "10.1.0.2 of 10.1.0.1-10.1.0.254 in 10.1.0.0/24 via 10.1.0.1",
                "10.2.0.9 of 10.2.0.9-10.2.0.254 in 10.2.0.0/24 via 10.2.0.1",
            ],
            &["fd01::1 of fd01::1-fd01::ffff:ffff:ffff:ffff in fd01::/64 via fd01::ff"],
        ],
    );
    means(
        &json!({"subnet": "10.1.0.0/24", "ranges": [[{"subnet": "fd01::/64"}]]}),
        &[
            &["10.1.0.2 of 10.1.0.1-10.1.0.254 in 10.1.0.0/24 via 10.1.0.1"],
            &["fd01::2 of fd01::1-fd01::ffff:ffff:ffff:ffff in fd01::/64 via fd01::1"],
        ],
    );
}

#[test]
fn whereabouts_configurations_mean_what_they_mean_there() {
    let cluster = json!({
        "type": "rdma-ipam", "datastore": "kubernetes", "kubernetes": {"kubeconfig": "/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig"},
        "range": "192.168.2.225/28", "exclude": ["192.168.2.229/30", "192.168.2.236/32"],
        "log_file": "/tmp/whereabouts.log", "log_level": "debug", "gateway": "192.168.2.226",
        "leader_lease_duration": 1500, "leader_renew_deadline": 1000, "leader_retry_period": 500,
        "reconciler_cron_expression": "30 4 * * *", "enable_overlapping_ranges": false,
    });
    means(
        &cluster,
        &[&["192.168.2.225 of 192.168.2.225-192.168.2.238 in 192.168.2.224/28 via 192.168.2.226"]],
    );
    let range = &read(&cluster).unwrap().sets[0][0];
    assert_eq!(
        range.verdict(ip("192.168.2.228")),
        Verdict::Reserved("excluded"),
        "the /30 begins at .228"
    );
    assert_eq!(range.verdict(ip("192.168.2.232")), Verdict::Usable);
    means(
        &json!({"range": "192.168.2.225-192.168.2.230/28"}),
        &[&["192.168.2.225 of 192.168.2.225-192.168.2.230 in 192.168.2.224/28"]],
    );
    means(
        &json!({"range": "10.0.0.0/8", "range_start": "10.5.0.7", "range_end": "10.5.0.9"}),
        &[&["10.5.0.7 of 10.5.0.7-10.5.0.9 in 10.0.0.0/8"]],
    );
    means(
        &json!({"ipRanges": [{"range": "192.168.10.0/24", "exclude": ["192.168.10.1"]}, {"range": "abcd::/64", "range_start": "abcd::10"}]}),
        &[
            &["192.168.10.2 of 192.168.10.1-192.168.10.254 in 192.168.10.0/24"],
            &["abcd::10 of abcd::10-abcd::ffff:ffff:ffff:ffff in abcd::/64"],
        ],
    );
    means(
        &json!({"range": "10.0.0.4/31"}),
        &[&["10.0.0.4 of 10.0.0.4-10.0.0.5 in 10.0.0.4/31"]],
    );
}

#[test]
fn a_subnet_written_by_one_of_its_addresses_is_told() {
    let config = read(&json!({"range": "192.168.5.152/27", "exclude": ["192.168.5.151/32"]})).unwrap();
    assert_eq!(
        outline(&config),
        [["192.168.5.129 of 192.168.5.129-192.168.5.158 in 192.168.5.128/27"]]
    );
    assert_eq!(config.notes.len(), 1, "{:?}", config.notes);
    for part in [
        "192.168.5.152/27",
        "192.168.5.128/27",
        "begin at 192.168.5.129, not at 192.168.5.152",
        "set ipam.range_start",
    ] {
        assert!(
            config.notes[0].contains(part),
            "{:?} lacks {part:?}",
            config.notes
        );
    }
    let explained = config.explain(Error::new(Code::EXHAUSTED, "no address is left"));
    assert_eq!(explained.msg, "network ibnet: no address is left");
    assert!(
        explained.details.contains("begin at 192.168.5.129"),
        "{explained:?}"
    );
    let meant = read(&json!({"range": "192.168.5.152/27", "range_start": "192.168.5.152"})).unwrap();
    assert!(meant.notes.is_empty(), "{:?}", meant.notes);
}

#[test]
fn addresses_that_are_unique_on_one_node_only_are_told() {
    let config = read(&json!({"range": "10.0.0.0/24", "datastore": "kubernetes"})).unwrap();
    assert!(
        config.notes[0].contains("unique on this node only"),
        "{:?}",
        config.notes
    );
}

#[test]
fn an_exclusion_that_excludes_nothing_is_told() {
    let config =
        read(&json!({"ranges": [[{"subnet": "10.0.0.0/24", "exclude": ["10.0.1.0/24", "10.0.0.7"]}]]}))
            .unwrap();
    assert_eq!(
        config.notes,
        ["the exclusion 10.0.1.0-10.0.1.255 lies outside every subnet and excludes nothing"]
    );
}

#[test]
fn exclusions_are_subnets_addresses_and_spans() {
    let exclude = json!([
        "10.0.0.0/28",
        "10.0.0.20",
        "10.0.0.30 - 10.0.0.39",
        "::ffff:10.0.0.50"
    ]);
    let config = read(&json!({"subnet": "10.0.0.0/24", "gateway": "none", "exclude": exclude})).unwrap();
    let range = &config.sets[0][0];
    for excluded in [
        "10.0.0.1",
        "10.0.0.15",
        "10.0.0.20",
        "10.0.0.30",
        "10.0.0.39",
        "10.0.0.50",
    ] {
        assert_eq!(
            range.verdict(ip(excluded)),
            Verdict::Reserved("excluded"),
            "{excluded}"
        );
    }
    assert_eq!(range.free().count(), 254 - 15 - 1 - 10 - 1);
}

#[test]
fn a_million_excluded_addresses_take_no_time() {
    let start = std::time::Instant::now();
    let config = read(&json!({"subnet": "10.0.0.0/8", "exclude": ["10.0.0.0/12"]})).unwrap();
    assert_eq!(config.sets[0][0].free().first_from(0), Some(0x0a10_0000));
    let single: Vec<String> = (0..60_000_u32)
        .map(|n| std::net::Ipv4Addr::from(0x0a00_0000 + 2 * n).to_string())
        .collect();
    let config = read(&json!({"subnet": "10.0.0.0/8", "exclude": single})).unwrap();
    assert_eq!(config.sets[0][0].free().count(), (1 << 24) - 2 - 60_000);
    let config = read(&json!({"ranges": [[{"subnet": "fd00::/64", "exclude": ["fd00::/65"]}]]})).unwrap();
    assert_eq!(config.sets[0][0].free().count(), 1 << 63);
    // Generous for a loaded machine without optimization; walking over the addresses would take hours.
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn a_gateway_goes_to_the_subnet_it_lies_in_and_none_means_none() {
    means(
        &json!({"gateway": "10.0.0.9", "ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "fd00::/64"}]]}),
        &[
            &["10.0.0.1 of 10.0.0.1-10.0.0.254 in 10.0.0.0/24 via 10.0.0.9"],
            &["fd00::2 of fd00::1-fd00::ffff:ffff:ffff:ffff in fd00::/64 via fd00::1"],
        ],
    );
    means(
        &json!({"gateway": "none", "subnet": "10.0.0.0/24"}),
        &[&["10.0.0.1 of 10.0.0.1-10.0.0.254 in 10.0.0.0/24"]],
    );
    means(
        &json!({"ranges": [[{"subnet": "10.0.0.0/24", "gateway": "none"}]]}),
        &[&["10.0.0.1 of 10.0.0.1-10.0.0.254 in 10.0.0.0/24"]],
    );
}

#[test]
fn what_cannot_be_meant_is_refused_by_name() {
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
            "already says what ipam.range_end says",
        ),
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
    for (ipam, want) in cases {
        let error = read(&ipam).expect_err(&ipam.to_string());
        assert_eq!(error.code, Code::INVALID_CONFIG, "{ipam}: {error}");
        assert!(error.msg.contains(want), "{ipam}: {:?} lacks {want:?}", error.msg);
    }
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
    for (ipam, want) in cases {
        let error = read(&ipam).expect_err(&ipam.to_string());
        assert_eq!(error.code, Code::INVALID_CONFIG, "{error}");
        assert!(error.msg.contains(want), "{:?} lacks {want:?}", error.msg);
    }
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
fn keys_that_would_change_who_gets_what_are_refused_not_ignored() {
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
        (
            json!({"range": "10.0.0.0/24", "enable_overlapping_ranges": true}),
            "one network_name",
        ),
    ];
    for (ipam, want) in cases {
        let error = read(&ipam).expect_err(&ipam.to_string());
        assert_eq!(error.code, Code::UNSUPPORTED_FIELD, "{error}");
        assert!(error.msg.contains(want), "{:?} lacks {want:?}", error.msg);
    }
    let shared = json!({"range": "10.0.0.0/24", "enable_overlapping_ranges": true, "network_name": "shared"});
    assert_eq!(
        read(&shared).unwrap().place.dir,
        PathBuf::from("/var/lib/cni/rdma-ipam/shared")
    );
}

#[test]
fn values_of_a_wrong_type_are_named_with_their_path() {
    let error = read(&json!({"subnet": 5})).unwrap_err();
    assert_eq!(error.code, Code::DECODE);
    assert!(error.msg.contains("ipam.subnet"), "{error}");
    let error = read(&json!({"ranges": [[{"subnet": "10.0.0.0/24", "exclude": "10.0.0.1"}]]})).unwrap_err();
    assert_eq!(
        (error.code, error.msg.contains("ipam.ranges[0][0].exclude")),
        (Code::DECODE, true),
        "{error}"
    );
    let error = Config::read(&call(&json!(null), &json!({}))).unwrap_err();
    assert_eq!(
        (error.code, error.msg.contains("ipam is missing")),
        (Code::INVALID_CONFIG, true),
        "{error}"
    );
}

#[test]
fn requests_come_from_the_first_source_that_has_any() {
    let ipam = json!({"subnet": "10.0.0.0/24"});
    let runtime =
        json!({"runtimeConfig": {"ips": ["10.0.0.5", "fd00::5/64"]}, "args": {"cni": {"ips": ["10.0.0.6"]}}});
    let of = |call: &Call| {
        Config::read(call)
            .unwrap()
            .requests
            .iter()
            .map(|r| (r.ip.to_string(), r.prefix))
            .collect::<Vec<_>>()
    };
    let mut call = call(&ipam, &runtime);
    call.args =
        Args::parse("IgnoreUnknown=1;IP=10.0.0.7,10.0.0.8;K8S_POD_NAME=a;MAC=02:00:00:00:00:01").unwrap();
    assert_eq!(
        of(&call),
        [("10.0.0.5".to_owned(), None), ("fd00::5".to_owned(), Some(64))]
    );
    call.conf.object.remove("runtimeConfig");
    assert_eq!(of(&call), [("10.0.0.6".to_owned(), None)]);
    call.conf.object.remove("args");
    assert_eq!(
        of(&call),
        [("10.0.0.7".to_owned(), None), ("10.0.0.8".to_owned(), None)]
    );
}

#[test]
fn a_request_made_twice_or_that_is_no_address_is_refused() {
    let ipam = json!({"ranges": [[{"subnet": "fd00::/64"}]]});
    for (ips, want) in [
        (json!(["fd00::1", "FD00:0::1"]), "asked for twice"),
        (json!(["fd00::x"]), "is not an address"),
    ] {
        let error = Config::read(&call(&ipam, &json!({"runtimeConfig": {"ips": ips}}))).unwrap_err();
        assert_eq!(error.code, Code::INVALID_CONFIG);
        assert!(
            error.msg.contains(want) && error.msg.contains("runtimeConfig.ips"),
            "{error}"
        );
    }
}

#[test]
fn ranges_of_the_runtime_replace_those_of_the_configuration() {
    let runtime =
        json!({"runtimeConfig": {"ipRanges": [[{"subnet": "10.9.0.0/24", "gateway": "10.9.0.1"}]]}});
    let config = Config::read(&call(
        &json!({"subnet": "10.0.0.0/24", "exclude": ["10.9.0.2"]}),
        &runtime,
    ))
    .unwrap();
    assert_eq!(
        outline(&config),
        [["10.9.0.3 of 10.9.0.1-10.9.0.254 in 10.9.0.0/24 via 10.9.0.1"]]
    );
}

#[test]
fn old_results_have_room_for_one_address_of_a_family() {
    let two = json!({"ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "10.1.0.0/24"}]]});
    let dual = json!({"ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "fd00::/64"}]]});
    for version in ["0.1.0", "0.2.0"] {
        let error = Config::read(&call(&two, &json!({"cniVersion": version}))).unwrap_err();
        assert_eq!(
            (error.code, error.msg.contains("0.3.0 or newer")),
            (Code::INVALID_CONFIG, true),
            "{error}"
        );
        Config::read(&call(&dual, &json!({"cniVersion": version}))).unwrap();
    }
    Config::read(&call(&two, &json!({"cniVersion": "0.3.0"}))).unwrap();
}

#[test]
fn a_place_needs_nothing_but_names() {
    let broken =
        json!({"subnet": 7, "ranges": "none", "excludes": true, "dataDir": "/run/x", "cooldown": "long"});
    let place = Place::read(&call(&broken, &json!({})).conf).unwrap();
    assert_eq!(
        place,
        Place {
            network: "ibnet".to_owned(),
            dir: "/run/x/ibnet".into(),
            cooldown: COOLDOWN
        }
    );
    let named = json!({"network_name": "space", "cooldown": 5});
    let place = Place::read(&call(&named, &json!({})).conf).unwrap();
    assert_eq!(
        place,
        Place {
            network: "space".to_owned(),
            dir: "/var/lib/cni/rdma-ipam/space".into(),
            cooldown: Duration::from_secs(5)
        }
    );
}

#[test]
fn name_resolution_comes_from_the_configuration_or_a_file() {
    let ipam = json!({"subnet": "10.0.0.0/24", "dns": {"nameservers": ["10.0.0.53"], "search": ["a.b"]}});
    assert_eq!(read(&ipam).unwrap().dns.nameservers, ["10.0.0.53"]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "# comment\nnameserver 10.0.0.1\nnameserver fd00::1\ndomain a\nsearch b c\noptions ndots:2 edns0\nsortlist x\n").unwrap();
    let dns = read(&json!({"subnet": "10.0.0.0/24", "resolvConf": file.path()}))
        .unwrap()
        .dns;
    assert_eq!(
        (dns.nameservers, dns.domain),
        (vec!["10.0.0.1".to_owned(), "fd00::1".to_owned()], "a".to_owned())
    );
    assert_eq!(
        (dns.search, dns.options),
        (
            vec!["b".to_owned(), "c".to_owned()],
            vec!["ndots:2".to_owned(), "edns0".to_owned()]
        )
    );
    let error = read(&json!({"subnet": "10.0.0.0/24", "resolvConf": "/nowhere/resolv.conf"})).unwrap_err();
    assert_eq!(
        (error.code, error.msg.contains("/nowhere/resolv.conf")),
        (Code::IO, true),
        "{error}"
    );
}

#[test]
fn families_of_sets_are_told() {
    let config = read(&json!({"ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "fd00::/64"}]]})).unwrap();
    assert_eq!(
        config.sets.iter().map(|set| set[0].family()).collect::<Vec<_>>(),
        [Family::V4, Family::V6]
    );
}
