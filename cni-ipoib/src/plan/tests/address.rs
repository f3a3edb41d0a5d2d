// SPDX-License-Identifier: Apache-2.0
use super::*;

#[test]
fn a_macvlan_gets_the_requested_address() {
    let mac = |keys| planned(keys, &lan()).address.map(|mac| mac.to_string());
    assert_eq!(mac(json!({})), None);
    assert_eq!(
        mac(json!({"mac": "02:00:00:00:00:05"})).as_deref(),
        Some("02:00:00:00:00:05")
    );
    assert_refused([
        (
            json!({"mode": "ipvlan", "mac": "02:00:00:00:00:05"}),
            lan(),
            7,
            "mac is for mode macvlan, but the mode is ipvlan; remove mac or change the mode",
        ),
        (
            json!({"mac": IB_ADDRESS}),
            lan(),
            7,
            "mac is 00:00:10:49:fe:80:00:00:00:00:00:00:24:8a:07:03:00:b4:0c:5e, want 6 bytes for an Ethernet master",
        ),
        (
            json!({"runtimeConfig": {"infinibandGUID": GUID}}),
            lan(),
            7,
            "infinibandGUID is for mode ipoib, but the mode is macvlan; remove infinibandGUID or change the mode",
        ),
    ]);
}

/// The kernel gives it the parent's address, whatever address the request has.
#[test]
fn a_passthru_child_has_its_parents_address_and_no_other() {
    let keys = |mac: &str| json!({"macvlanMode": "passthru", "mac": mac});
    planned(json!({"macvlanMode": "passthru"}), &lan());
    planned(keys("02:00:00:00:0a:0b"), &lan());
    let text = "mac is 02:00:00:00:00:05, want 02:00:00:00:0a:0b, the address of eth0, which the kernel gives to a macvlan child in mode passthru; remove mac, or use another macvlan mode";
    assert_eq!(refused(keys("02:00:00:00:00:05"), &lan()), (7, text.to_owned()));
}

#[test]
fn an_ipoib_child_answers_at_its_ports_guid_and_no_other() {
    for keys in [
        json!({"mac": IB_ADDRESS}),
        json!({"mac": IB_ADDRESS.replace("00:00:10:49", "80:00:00:01")}),
        json!({"runtimeConfig": {"infinibandGUID": GUID}}),
        json!({"args": {"cni": {"guid": "248a:0703:00b4:0c5e"}}, "capabilities": {"infinibandGUID": true}}),
    ] {
        assert_eq!(planned(keys, &infiniband()).address, None, "the kernel makes it");
    }
    let reason = "cannot be given to a child of ib0: its children answer at the port's GUID 248a:0703:00b4:0c5e; remove";
    let other = IB_ADDRESS.replace("5e", "5f");
    let guid = json!({"infinibandGUID": "00:00:00:00:00:00:00:07"});
    for (key, value, keys) in [
        ("mac", "02:00:00:00:00:05", json!({"mac": "02:00:00:00:00:05"})),
        ("mac", other.as_str(), json!({"mac": other})),
        (
            "infinibandGUID",
            "0000:0000:0000:0007",
            json!({"runtimeConfig": guid}),
        ),
    ] {
        let text = format!("{key} {value} {reason} {key}, or use a virtual function");
        assert_eq!(refused(keys, &infiniband()), (7, text));
    }
}

#[test]
fn ipvlan_and_macvlan_carry_their_own_settings() {
    let child = planned(json!({"mode": "ipvlan", "ipvlanMode": "l3"}), &lan());
    assert!(matches!(child.kind, NewLinkKind::Ipvlan { mode: IpvlanMode::L3 }));
    let child = planned(json!({"macvlanMode": "passthru", "bcqueuelen": 7}), &lan());
    assert!(matches!(
        child.kind,
        NewLinkKind::Macvlan {
            mode: MacvlanMode::Passthru,
            bc_queue_len: Some(7)
        }
    ));
}

#[test]
fn a_peers_configuration_on_the_wrong_layer_gets_a_remedy() {
    let config = Config::read(&call_with(
        "macvlan",
        json!({"master": "ib0", "mode": "bridge"}),
        "",
    ))
    .unwrap();
    let text = child(&config, &infiniband()).unwrap_err().to_string();
    assert_eq!(text, "ib0 is InfiniBand: macvlan needs Ethernet; use mode ipoib");
}

#[test]
fn a_parent_in_the_pod_stays_there() {
    let inside = Host {
        side: Side::Pod,
        ..lan()
    };
    assert_eq!(planned(json!({"linkInContainer": true}), &inside).side, Side::Pod);
}
