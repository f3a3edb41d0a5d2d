// SPDX-License-Identifier: Apache-2.0
mod blanks;
mod pools;
mod refused;
mod size;
mod spellings;

use super::*;
use crate::range::{Family, Membership};
use crate::testing::assert_error;
use common::cni::{Args, Reader};
use serde_json::{Value, json};
use std::net::IpAddr;

/// A call with the IPAM section `ipam` and the additional keys `more`.
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
        reader: Reader::PRESENT,
    }
}

fn read(ipam: &Value) -> Result<Config, Error> {
    Config::read(&call(ipam, &json!({})))
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// For each set: its ranges with the first allocated address of each, and the gateway.
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

/// Asserts the meaning of a configuration.
fn means(ipam: &Value, expected: &[&[&str]]) {
    let config = read(ipam).unwrap_or_else(|e| panic!("{ipam}: {e}"));
    assert_eq!(outline(&config), expected, "{ipam}");
}

#[test]
fn requested_addresses_come_from_the_first_source_that_has_any() {
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
fn del_needs_only_the_names_of_a_configuration() {
    let broken =
        json!({"subnet": 7, "ranges": "none", "excludes": true, "dataDir": "/run/x", "cooldown": "long"});
    let place = Place::read(&call(&broken, &json!({})).conf).unwrap();
    assert_eq!(
        place,
        Place {
            name: "ibnet".to_owned(),
            network: "ibnet".to_owned(),
            dir: "/run/x/ibnet".into(),
            cooldown: COOLDOWN,
            is_pool: false,
        }
    );
    let named = json!({"network_name": "space", "cooldown": 5});
    let place = Place::read(&call(&named, &json!({})).conf).unwrap();
    assert_eq!(
        place,
        Place {
            name: "ibnet".to_owned(),
            network: "space".to_owned(),
            dir: "/var/lib/cni/rdma-ipam/space".into(),
            cooldown: Duration::from_secs(5),
            is_pool: false,
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
    assert_error(&error, Code::IO, &["/nowhere/resolv.conf"]);
}

#[test]
fn the_family_of_each_set_is_known() {
    let config = read(&json!({"ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "fd00::/64"}]]})).unwrap();
    assert_eq!(
        config.sets.iter().map(|set| set[0].family()).collect::<Vec<_>>(),
        [Family::V4, Family::V6]
    );
}
