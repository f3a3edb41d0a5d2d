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
            },
            IpConfig {
                address: "fd00::5/64".parse().unwrap(),
                gateway: None,
                interface: Some(0),
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
fn one_0_0_knows_no_mtu_no_pci_id_and_no_route_attributes() {
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
fn what_a_version_can_say_survives_writing_and_reading() {
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
fn empty_lists_are_left_out_because_multus_takes_them_for_an_interface() {
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
fn an_address_must_point_at_an_interface_that_is_there() {
    let mut document = full().to_json(Version::V1_1_0);
    document["ips"][1]["interface"] = json!(3);
    let error = CniResult::from_json(&document).unwrap_err();
    assert_eq!(error.msg, "address fd00::5/64 names interface 3, but there are 1");
}

#[test]
fn a_bad_address_is_named_by_its_path() {
    let error = CniResult::from_json(&json!({"ips": [{"address": "10.0.0.300/24"}]})).unwrap_err();
    assert!(error.msg.contains("ips[0].address"), "{}", error.msg);
}
