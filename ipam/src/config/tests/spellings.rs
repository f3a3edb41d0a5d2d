// SPDX-License-Identifier: Apache-2.0
//! The meaning of each spelling.

use super::*;
use crate::interval::WORK;

#[test]
fn host_local_configurations_keep_their_meaning() {
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
fn whereabouts_configurations_keep_their_meaning() {
    let cluster = json!({
        "type": "rdma-ipam", "perNode": true, "datastore": "kubernetes", "kubernetes": {"kubeconfig": "/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig"},
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
        range.membership(ip("192.168.2.228")),
        Membership::Reserved("excluded"),
        "the /30 begins at .228"
    );
    assert_eq!(range.membership(ip("192.168.2.232")), Membership::Usable);
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
fn a_subnet_with_host_bits_is_noted() {
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

/// whereabouts stores its allocations in the cluster; with rdma-ipam two nodes would allocate the same addresses.
#[test]
fn cluster_wide_uniqueness_is_refused_unless_per_node_is_set() {
    for promise in [
        json!({"datastore": "kubernetes"}),
        json!({"kubernetes": {"kubeconfig": "/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig"}}),
        json!({"kubernetes": {}}),
        json!({"datastore": "etcd"}),
        json!({"datastore": "kubernetes", "perNode": false}),
    ] {
        let mut ipam = promise;
        ipam["range"] = json!("10.0.0.0/24");
        let error = read(&ipam).unwrap_err();
        assert_eq!(error.code, Code::UNSUPPORTED_FIELD, "{error}");
        for part in ["unique in the cluster", "ipam.pool", "\"perNode\": true"] {
            assert!(error.msg.contains(part), "{error} lacks {part}");
        }
        ipam["perNode"] = json!(true);
        assert!(read(&ipam).unwrap().notes.is_empty());
    }
}

/// A value of each key of whereabouts' `ipam`. Source: `IPAMConfigAlias` in `pkg/types/types.go` of v0.9.4.
fn keys_of_whereabouts() -> Value {
    json!({
        "type": "whereabouts", "routes": [], "datastore": "etcd", "addresses": [], "ipRanges": [], "node_slice_size": "/26",
        "exclude": [], "dns": {}, "range": "10.0.0.0/24", "range_start": "10.0.0.9", "range_end": "10.0.0.99",
        "gateway": "10.0.0.1", "etcd_host": "10.1.0.1:2379", "etcd_username": "u", "etcd_password": "secret",
        "etcd_key_file": "/k", "etcd_cert_file": "/c", "etcd_ca_cert_file": "/ca", "leader_lease_duration": 1500,
        "leader_renew_deadline": 1000, "leader_retry_period": 500, "log_file": "/tmp/log", "log_level": "debug",
        "reconciler_cron_expression": "30 4 * * *", "enable_overlapping_ranges": true, "sleep_for_race": 1,
        "kubernetes": {}, "configuration_path": "/etc/w.conf", "network_name": "shared",
    })
}

#[test]
fn every_key_of_whereabouts_is_read_or_refused_with_a_remedy() {
    for (key, value) in keys_of_whereabouts().as_object().unwrap() {
        let mut ipam = json!({"range": "10.0.0.0/24"});
        ipam[key] = value.clone();
        match read(&ipam) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.code, Code::UNSUPPORTED_FIELD, "{key}: {error}");
                assert!(error.msg.contains(&format!("ipam.{key} ")), "{key}: {error}");
            }
        }
    }
}

#[test]
fn keys_of_whereabouts_for_etcd_are_refused_as_its_other_stores_are() {
    let all = keys_of_whereabouts();
    let etcd: Vec<_> = all
        .as_object()
        .unwrap()
        .iter()
        .filter(|(key, _)| key.starts_with("etcd_"))
        .collect();
    assert_eq!(etcd.len(), 6);
    for (key, value) in etcd {
        let mut ipam = json!({"range": "10.0.0.0/24"});
        ipam[key] = value.clone();
        let error = read(&ipam).expect_err(key);
        let key = format!("ipam.{key} ");
        let parts = [&key, "unique in the cluster", "\"perNode\": true"];
        assert_error(&error, Code::UNSUPPORTED_FIELD, &parts);
        ipam["perNode"] = json!(true);
        assert!(read(&ipam).unwrap().notes.is_empty());
    }
}

/// The text of an error reaches the Events of the pod.
#[test]
fn no_error_shows_the_password_of_etcd() {
    let of_ranges = read(&json!({"range": "10.0.0.0/24", "etcd_password": "secret"})).unwrap_err();
    let call = call(&json!({"pool": "rail0", "etcd_password": "secret"}), &json!({}));
    let place = PoolPlace::read(&call.conf).unwrap().unwrap();
    let of_a_pool = PoolConfig::read(&call, place).unwrap_err();
    for error in [of_ranges, of_a_pool] {
        assert!(error.msg.contains("ipam.etcd_password"), "{error}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
}

/// whereabouts usually has its datastore in a file of its own. On a machine without Kubernetes there is one node.
#[test]
fn a_range_in_the_spelling_of_whereabouts_is_refused_in_a_pod_without_per_node() {
    let read = |ipam: &Value, args: &str| {
        let mut call = call(ipam, &json!({}));
        call.args = Args::parse(args).unwrap();
        Config::read(&call)
    };
    let pod = "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=a";
    for (key, theirs) in [
        ("range", json!({"range": "10.0.0.0/24"})),
        ("range", json!({"range": "10.0.0.0/24", "perNode": false})),
        ("ipRanges", json!({"ipRanges": [{"range": "10.0.0.0/24"}]})),
    ] {
        let error = read(&theirs, pod).unwrap_err();
        let key = format!("ipam.{key} ");
        let parts = [&key, "unique in the cluster", "ipam.pool", "\"perNode\": true"];
        assert_error(&error, Code::UNSUPPORTED_FIELD, &parts);
        assert!(read(&theirs, "").unwrap().notes.is_empty());
        let mut own = theirs.clone();
        own["perNode"] = json!(true);
        assert!(read(&own, pod).unwrap().notes.is_empty());
    }
    assert!(
        read(&json!({"subnet": "10.0.0.0/24"}), pod)
            .unwrap()
            .notes
            .is_empty()
    );
}

#[test]
fn an_exclusion_that_excludes_nothing_is_noted() {
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
            range.membership(ip(excluded)),
            Membership::Reserved("excluded"),
            "{excluded}"
        );
    }
    assert_eq!(range.free().count(), 254 - 15 - 1 - 10 - 1);
}

/// A loop over the addresses of the last configuration would never end.
#[test]
fn a_million_excluded_addresses_cost_no_more_than_their_entries() {
    let free = |ipam: &Value, most: usize| {
        WORK.set(0);
        let config = read(ipam).unwrap();
        assert!(WORK.get() <= most, "{} intervals for {most}", WORK.get());
        config.sets[0][0].free().clone()
    };
    let of_subnet = free(&json!({"subnet": "10.0.0.0/8", "exclude": ["10.0.0.0/12"]}), 100);
    assert_eq!(of_subnet.first_from(0), Some(0x0a10_0000));
    let single: Vec<String> = (0..60_000_u32)
        .map(|n| std::net::Ipv4Addr::from(0x0a00_0000 + 2 * n).to_string())
        .collect();
    let of_many = free(&json!({"subnet": "10.0.0.0/8", "exclude": single}), 10 * 60_000);
    assert_eq!(of_many.count(), (1 << 24) - 2 - 60_000);
    let wide = json!({"ranges": [[{"subnet": "fd00::/64", "exclude": ["fd00::/65"]}]]});
    assert_eq!(free(&wide, 100).count(), 1 << 63);
}

#[test]
fn a_gateway_belongs_to_its_subnet_and_none_disables_it() {
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
