// SPDX-License-Identifier: Apache-2.0
use super::*;

#[test]
fn every_key_is_read() {
    let ib = read(json!({
        "master": "ib0", "mode": "ipoib", "pkey": "0x8001", "ipoibMode": "connected", "umcast": true,
        "linkInContainer": true, "mtu": 2044, "delegateTimeout": 5, "ipam": {"type": "rdma-ipam"},
        "dns": {"nameservers": ["192.0.2.1"]},
        "runtimeConfig": {"infinibandGUID": "02:00:00:00:00:00:00:07", "CNIDeviceInfoFile": "/run/k8s.cni.cncf.io/x.json"},
    }));
    assert_eq!(
        (ib.master, ib.mode, ib.pkey),
        (
            Master::Resolved(ResolvedMaster::Named("ib0".to_owned())),
            Some(Mode::Ipoib),
            Some(Pkey(0x8001))
        )
    );
    assert_eq!(
        (ib.ipoib_mode, ib.umcast, ib.link_in_container),
        (Some(IpoibMode::Connected), Some(true), true)
    );
    assert_eq!(
        (ib.mtu, ib.delegate_timeout, ib.ipam.as_deref()),
        (Some(2044), Duration::from_secs(5), Some("rdma-ipam"))
    );
    assert_eq!(
        (ib.dns.nameservers, ib.guid),
        (vec!["192.0.2.1".to_owned()], Some(Guid(0x0200_0000_0000_0007)))
    );
    assert_eq!(
        ib.device_info_file,
        Some(PathBuf::from("/run/k8s.cni.cncf.io/x.json"))
    );
    let ethernet = read(
        json!({"mode": "macvlan", "macvlanMode": "vepa", "bcqueuelen": 500, "mac": "02:00:00:00:00:05"}),
    );
    assert_eq!(
        (ethernet.macvlan_mode, ethernet.bc_queue_len),
        (MacvlanMode::Vepa, Some(500))
    );
    assert_eq!(ethernet.mac.unwrap().to_string(), "02:00:00:00:00:05");
    assert_eq!(
        read(json!({"mode": "ipvlan", "ipvlanMode": "l3s"})).ipvlan_mode,
        IpvlanMode::L3s
    );
}

#[test]
fn every_word_of_every_key_is_accepted() {
    for (word, mode) in [
        ("ipoib", Mode::Ipoib),
        ("macvlan", Mode::Macvlan),
        ("ipvlan", Mode::Ipvlan),
    ] {
        assert_eq!(read(json!({"mode": word})).mode, Some(mode));
        assert_eq!(mode.to_string(), word);
    }
    for mode in IpoibMode::ALL {
        assert_eq!(read(json!({"ipoibMode": mode.as_str()})).ipoib_mode, Some(*mode));
    }
    for mode in MacvlanMode::ALL
        .iter()
        .filter(|mode| **mode != MacvlanMode::Source)
    {
        assert_eq!(read(json!({"macvlanMode": mode.as_str()})).macvlan_mode, *mode);
        let peer = Config::read(&call_with("macvlan", json!({"mode": mode.as_str()}), "")).unwrap();
        assert_eq!((peer.mode, peer.macvlan_mode), (Some(Mode::Macvlan), *mode));
    }
    for mode in IpvlanMode::ALL {
        assert_eq!(read(json!({"ipvlanMode": mode.as_str()})).ipvlan_mode, *mode);
    }
    for bond in [BondUse::InPod, BondUse::Active, BondUse::Refuse] {
        assert_eq!(read(json!({"bond": bond.to_string()})).bond, bond);
    }
    for umcast in [true, false] {
        assert_eq!(read(json!({"umcast": umcast})).umcast, Some(umcast));
    }
}

#[test]
fn unknown_words_are_refused_with_the_known_ones() {
    assert_refused([
        (
            json!({"mode": "bridge"}),
            7,
            "mode is \"bridge\", want ipoib, macvlan, ipvlan or device (macvlanMode and ipvlanMode choose within their modes)",
        ),
        (
            json!({"mode": "IPoIB"}),
            7,
            "mode is \"IPoIB\", want ipoib, macvlan, ipvlan or device (macvlanMode and ipvlanMode choose within their modes)",
        ),
        (
            json!({"ipoibMode": "rc"}),
            7,
            "ipoibMode: \"rc\" is not one of datagram, connected",
        ),
        (
            json!({"macvlanMode": "hub"}),
            7,
            "macvlanMode: \"hub\" is not one of private, vepa, bridge, passthru, source",
        ),
        (
            json!({"bond": "inpod"}),
            7,
            "bond: \"inpod\" is not one of inPod, active, refuse",
        ),
        (
            json!({"ipvlanMode": "l4"}),
            7,
            "ipvlanMode: \"l4\" is not one of l2, l3, l3s",
        ),
        (
            json!({"macvlanMode": "source"}),
            2,
            "macvlanMode source is not supported: a child in source mode receives nothing without a list of sources, for which CNI has no key",
        ),
        (
            json!({"ipMasq": true}),
            2,
            "ipMasq true is not supported: an RDMA network is not masqueraded; remove it",
        ),
    ]);
}

#[test]
fn a_pkey_is_a_number_or_a_text_in_hexadecimal() {
    for (value, pkey) in [
        (json!("0x8001"), 0x8001),
        (json!("0X7fff"), 0x7fff),
        (json!("0x1"), 1),
        (json!("0xFFFF"), 0xffff),
        (json!(32769), 0x8001),
        (json!(1), 1),
    ] {
        assert_eq!(read(json!({"pkey": value})).pkey, Some(Pkey(pkey)));
    }
    for value in [
        json!("8001"),
        json!("0x"),
        json!("0x18001"),
        json!("0x0"),
        json!("0x0000"),
        json!("0x8000"),
        json!("red"),
        json!(""),
        json!("0x+1"),
        json!(0),
        json!(0x8000),
        json!(65536),
        json!(-1),
        json!(1.5),
        json!(true),
        json!(["0x8001"]),
    ] {
        let text = format!("pkey is {value}, want a partition key such as \"0x8001\", neither 0 nor 0x8000");
        assert_eq!(refused(json!({"pkey": value})), (7, text));
    }
}

#[test]
fn an_mtu_carries_at_least_an_ipv4_header() {
    for (mtu, expected) in [
        (0, None),
        (68, Some(68)),
        (65520, Some(65520)),
        (4_294_967_295_i64, Some(u32::MAX)),
    ] {
        assert_eq!(read(json!({"mtu": mtu})).mtu, expected);
    }
    for mtu in [67, 1, -1, i64::MIN, 4_294_967_296, i64::MAX] {
        let text = format!("mtu is {mtu}, want 68 bytes or more, or 0 for the kernel's choice");
        assert_eq!(refused(json!({"mtu": mtu})), (7, text));
    }
}

#[test]
fn a_time_limit_is_sane() {
    assert_eq!(
        read(json!({"delegateTimeout": 3600})).delegate_timeout,
        Duration::from_secs(3600)
    );
    for seconds in [3601, u64::MAX] {
        let text = format!("delegateTimeout is {seconds}, want seconds, up to 3600, or 0 for 60");
        assert_eq!(refused(json!({"delegateTimeout": seconds})), (7, text));
    }
}

#[test]
fn values_of_a_wrong_type_are_refused_by_their_path() {
    assert_refused([
        (
            json!({"mtu": "1500"}),
            6,
            "network configuration: mtu: invalid type: string \"1500\", expected i64",
        ),
        (
            json!({"mtu": 1500.5}),
            6,
            "network configuration: mtu: invalid type: floating point `1500.5`, expected i64",
        ),
        (
            json!({"umcast": 1}),
            6,
            "network configuration: umcast: invalid type: integer `1`, expected a boolean",
        ),
        (
            json!({"linkInContainer": "yes"}),
            6,
            "network configuration: linkInContainer: invalid type: string \"yes\", expected a boolean",
        ),
        (
            json!({"bcqueuelen": -1}),
            6,
            "network configuration: bcqueuelen: invalid value: integer `-1`, expected u32",
        ),
        (
            json!({"delegateTimeout": -1}),
            6,
            "network configuration: delegateTimeout: invalid value: integer `-1`, expected u64",
        ),
        (
            json!({"ipam": "host-local"}),
            6,
            "network configuration: ipam: invalid type: string \"host-local\", expected struct RawIpam",
        ),
        (
            json!({"ipam": {"type": 7}}),
            6,
            "network configuration: ipam.type: invalid type: integer `7`, expected a string",
        ),
        (
            json!({"runtimeConfig": {"mac": 7}}),
            6,
            "network configuration: runtimeConfig.mac: invalid type: integer `7`, expected a string",
        ),
        (
            json!({"args": {"cni": {"mac": []}}}),
            6,
            "network configuration: args.cni.mac: invalid type: sequence, expected a string",
        ),
        (
            json!({"dns": {"nameservers": "192.0.2.1"}}),
            6,
            "network configuration: dns.nameservers: invalid type: string \"192.0.2.1\", expected a sequence",
        ),
    ]);
}

#[test]
fn policy_routing_is_on_by_default() {
    assert!(read(json!({"policyRouting": "auto"})).policy_routing);
    assert!(!read(json!({"policyRouting": "off"})).policy_routing);
    assert_refused([(
        json!({"policyRouting": "on"}),
        7,
        "policyRouting is \"on\", want auto or off",
    )]);
}
