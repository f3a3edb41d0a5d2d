// SPDX-License-Identifier: Apache-2.0
use super::*;
use serde_json::json;

fn full() -> CniResult {
    let mut route = Route::new("10.9.0.0/16".parse().unwrap(), Some("10.0.0.1".parse().unwrap()));
    route.mtu = Some(2044);
    route.table = Some(100);
    CniResult {
        interfaces: vec![Interface {
            name: "net1".into(),
            mac: "02:00:00:00:00:01".into(),
            mtu: Some(2044),
            sandbox: "/run/netns/a".into(),
            socket_path: String::new(),
            pci_id: "0000:3b:00.0".into(),
        }],
        ips: vec![
            IpConfig {
                address: "10.0.0.5/24".parse().unwrap(),
                gateway: Some("10.0.0.1".parse().unwrap()),
                interface: Some(0),
                probe: false,
            },
            IpConfig {
                address: "fd00::5/64".parse().unwrap(),
                gateway: None,
                interface: Some(0),
                probe: false,
            },
        ],
        routes: vec![
            route,
            Route::new("::/0".parse().unwrap(), Some("fd00::1".parse().unwrap())),
        ],
        dns: Dns {
            nameservers: vec!["10.0.0.53".into()],
            ..Dns::default()
        },
        ..CniResult::default()
    }
}

#[test]
fn the_newest_shape_has_everything() {
    assert_eq!(
        full().to_json(Version::V1_1_0),
        json!({
            "cniVersion": "1.1.0",
            "interfaces": [{"name": "net1", "mac": "02:00:00:00:00:01", "mtu": 2044, "sandbox": "/run/netns/a", "pciID": "0000:3b:00.0"}],
            "ips": [
                {"address": "10.0.0.5/24", "gateway": "10.0.0.1", "interface": 0},
                {"address": "fd00::5/64", "interface": 0}
            ],
            "routes": [
                {"dst": "10.9.0.0/16", "gw": "10.0.0.1", "mtu": 2044, "table": 100},
                {"dst": "::/0", "gw": "fd00::1"}
            ],
            "dns": {"nameservers": ["10.0.0.53"]}
        })
    );
}

#[test]
fn version_1_0_0_has_no_mtu_no_pci_id_and_no_route_attributes() {
    let document = full().to_json(Version::V1_0_0);
    assert_eq!(
        document["interfaces"],
        json!([{"name": "net1", "mac": "02:00:00:00:00:01", "sandbox": "/run/netns/a"}])
    );
    assert_eq!(
        document["routes"][0],
        json!({"dst": "10.9.0.0/16", "gw": "10.0.0.1"})
    );
    assert_eq!(document["ips"][0].get("version"), None);
}

#[test]
fn versions_before_1_0_0_name_the_family_of_each_address() {
    for version in [Version::V0_3_0, Version::V0_3_1, Version::V0_4_0] {
        let document = full().to_json(version);
        assert_eq!(document["cniVersion"], version.as_str());
        assert_eq!(document["ips"][0]["version"], "4");
        assert_eq!(document["ips"][1]["version"], "6");
        assert_eq!(document["interfaces"][0].get("mtu"), None);
    }
}

#[test]
fn versions_before_0_3_0_have_one_address_per_family_and_its_routes() {
    for version in [Version::V0_1_0, Version::V0_2_0] {
        assert_eq!(
            full().to_json(version),
            json!({
                "cniVersion": version.as_str(),
                "ip4": {"ip": "10.0.0.5/24", "gateway": "10.0.0.1", "routes": [{"dst": "10.9.0.0/16", "gw": "10.0.0.1"}]},
                "ip6": {"ip": "fd00::5/64", "routes": [{"dst": "::/0", "gw": "fd00::1"}]},
                "dns": {"nameservers": ["10.0.0.53"]}
            })
        );
    }
}

#[test]
fn a_result_survives_writing_and_reading_in_each_version() {
    for version in Version::ALL {
        let once = CniResult::from_json(&full().to_json(version)).unwrap();
        let twice = CniResult::from_json(&once.to_json(version)).unwrap();
        assert_eq!(once, twice, "{version}");
    }
    assert_eq!(
        CniResult::from_json(&full().to_json(Version::V1_1_0)).unwrap(),
        full()
    );
}

#[test]
fn empty_lists_are_left_out_for_multus() {
    assert_eq!(
        CniResult::default().to_json(Version::V1_1_0),
        json!({"cniVersion": "1.1.0", "dns": {}})
    );
    assert_eq!(
        CniResult::default().to_json(Version::V0_2_0),
        json!({"cniVersion": "0.2.0", "dns": {}})
    );
}

#[test]
fn null_lists_are_read_as_empty_ones() {
    let read =
        CniResult::from_json(&json!({"interfaces": null, "ips": null, "routes": null, "dns": null})).unwrap();
    assert_eq!(read, CniResult::default());
}

#[test]
fn an_address_of_a_missing_interface_is_refused() {
    let mut document = full().to_json(Version::V1_1_0);
    document["ips"][1]["interface"] = json!(3);
    let error = CniResult::from_json(&document).unwrap_err();
    assert_eq!(error.msg, "address fd00::5/64 names interface 3, but there are 1");
}

#[test]
fn the_error_for_a_bad_address_names_its_path() {
    let error = CniResult::from_json(&json!({"ips": [{"address": "10.0.0.300/24"}]})).unwrap_err();
    assert!(error.msg.contains("ips[0].address"), "{}", error.msg);
}

#[test]
fn an_empty_gateway_is_read_as_no_gateway() {
    let read = CniResult::from_json(&json!({
        "ips": [{"address": "10.0.0.5/24", "gateway": ""}], "routes": [{"dst": "10.9.0.0/16", "gw": ""}],
    }))
    .unwrap();
    assert_eq!((read.ips[0].gateway, read.routes[0].gw), (None, None));
}

#[test]
fn a_chained_plugin_passes_on_every_member() {
    let before = json!({
        "cniVersion": "1.1.0", "vendorKey": {"a": null},
        "interfaces": [{"name": "eth0", "sandbox": "/n", "extra": 7}],
        "ips": [{"address": "10.1.0.5/24", "interface": 0, "x": [1]}],
        "routes": [{"dst": "0.0.0.0/0", "realm": 9}],
        "dns": {"nameservers": ["10.0.0.1"], "ndots": 5},
    });
    let mut result = CniResult::chained(&before).unwrap();
    assert_eq!(result.to_json(Version::V1_1_0), before, "nothing is appended");
    let ours = full();
    result.interfaces.extend(ours.interfaces);
    result.ips.extend(ours.ips.into_iter().map(|ip| IpConfig {
        interface: Some(1),
        ..ip
    }));
    let document = result.to_json(Version::V1_1_0);
    for place in ["/vendorKey", "/interfaces/0", "/ips/0", "/routes", "/dns"] {
        assert_eq!(document.pointer(place), before.pointer(place), "{place}");
    }
    assert_eq!(document["interfaces"][1]["name"], "net1");
    assert_eq!(
        document["ips"][2],
        json!({"address": "fd00::5/64", "interface": 1})
    );
}

#[test]
fn dns_of_a_chain_comes_from_the_plugin_that_sets_it() {
    let before = json!({"dns": {"nameservers": ["10.0.0.1"]}, "interfaces": null, "ips": []});
    let mut result = CniResult::chained(&before).unwrap();
    result.dns.domain = "cluster.local".to_owned();
    let document = result.to_json(Version::V1_0_0);
    let dns = json!({"nameservers": ["10.0.0.1"], "domain": "cluster.local"});
    assert_eq!(document, json!({"cniVersion": "1.0.0", "dns": dns}));
}
