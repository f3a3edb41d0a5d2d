// SPDX-License-Identifier: Apache-2.0
#![expect(
    clippy::needless_pass_by_value,
    reason = "a table reads better without a reference before each value"
)]
#![expect(clippy::too_many_lines, reason = "tables")]

use super::*;
use crate::model::{call, call_with};
use serde_json::json;

fn read(keys: Value) -> Config {
    Config::read(&call(keys.clone())).unwrap_or_else(|e| panic!("{keys}: {}", e.msg))
}

fn refused(keys: Value) -> (u32, String) {
    refused_as("cni-ipoib", keys, "")
}

fn refused_as(program: &str, keys: Value, args: &str) -> (u32, String) {
    let error = Config::read(&call_with(program, keys.clone(), args)).expect_err(&keys.to_string());
    assert_eq!(error.details, "", "{}", error.msg);
    (error.code.0, error.msg)
}

/// Each configuration with the code and the whole message that answers it.
fn assert_refused<const N: usize>(cases: [(Value, u32, &str); N]) {
    for (keys, code, text) in cases {
        assert_eq!(refused(keys.clone()), (code, text.to_owned()), "{keys}");
    }
}

#[test]
fn an_empty_configuration_has_these_defaults() {
    let expected = Config {
        master: Master::Unset,
        mode: None,
        pkey: None,
        ipoib_mode: None,
        umcast: None,
        macvlan_mode: MacvlanMode::Bridge,
        bc_queue_len: None,
        ipvlan_mode: IpvlanMode::L2,
        link_in_container: false,
        mtu: None,
        mac: None,
        guid: None,
        ipam: None,
        dns: Dns::default(),
        device_info_file: None,
        delegate_timeout: Duration::from_secs(60),
        only_for: Vec::new(),
    };
    assert_eq!(read(json!({})), expected);
}

#[test]
fn empty_values_and_zeros_are_as_good_as_none() {
    let empty = json!({
        "master": "", "mode": "", "ipoibMode": "", "macvlanMode": "", "ipvlanMode": "",
        "mtu": 0, "mac": "", "bcqueuelen": 0, "linkInContainer": false, "delegateTimeout": 0, "deviceID": "",
        "ipam": {}, "dns": {}, "args": {"cni": {"mac": "", "guid": ""}}, "ipMasq": false,
        "runtimeConfig": {"mac": "", "deviceID": "", "infinibandGUID": "", "CNIDeviceInfoFile": ""},
    });
    let config = Config {
        only_for: Vec::new(),
        ..read(empty)
    };
    assert_eq!(config, read(json!({})));
}

#[test]
fn null_is_as_good_as_none_at_any_depth() {
    let mut nulls = serde_json::Map::new();
    for key in KEYS.iter().chain(&[
        "deviceID",
        "pciBusID",
        "ipam",
        "dns",
        "args",
        "runtimeConfig",
        "ipMasq",
        "prevResult",
    ]) {
        nulls.insert((*key).to_owned(), Value::Null);
    }
    assert_eq!(read(Value::Object(nulls)), read(json!({})));
    let deep = json!({
        "args": {"cni": null}, "ipam": {"type": null}, "dns": {"nameservers": null},
        "runtimeConfig": {"mac": null, "deviceID": null, "infinibandGUID": null, "CNIDeviceInfoFile": null},
    });
    assert_eq!(read(deep), read(json!({})));
}

#[test]
fn every_key_is_read() {
    let ib = read(json!({
        "master": "ib0", "mode": "ipoib", "pkey": "0x8001", "ipoibMode": "connected", "umcast": true,
        "linkInContainer": true, "mtu": 2044, "delegateTimeout": 5, "ipam": {"type": "rdma-ipam"},
        "dns": {"nameservers": ["192.0.2.1"]},
        "runtimeConfig": {"infinibandGUID": "02:00:00:00:00:00:00:07", "CNIDeviceInfoFile": "/run/x.json"},
    }));
    assert_eq!(
        (ib.master, ib.mode, ib.pkey),
        (
            Master::Named("ib0".to_owned()),
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
    assert_eq!(ib.device_info_file, Some(PathBuf::from("/run/x.json")));
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
fn every_word_of_every_key_is_known() {
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
    for umcast in [true, false] {
        assert_eq!(read(json!({"umcast": umcast})).umcast, Some(umcast));
    }
}

#[test]
fn words_that_no_key_knows_are_refused_with_those_it_knows() {
    assert_refused([
        (
            json!({"mode": "bridge"}),
            7,
            "mode is \"bridge\", want ipoib, macvlan or ipvlan (macvlanMode and ipvlanMode choose within the last two)",
        ),
        (
            json!({"mode": "IPoIB"}),
            7,
            "mode is \"IPoIB\", want ipoib, macvlan or ipvlan (macvlanMode and ipvlanMode choose within the last two)",
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
            json!({"ipvlanMode": "l4"}),
            7,
            "ipvlanMode: \"l4\" is not one of l2, l3, l3s",
        ),
        (
            json!({"macvlanMode": "source"}),
            2,
            "macvlanMode source is not supported: a child in source mode hears nobody until it is given a list, which CNI has no key for",
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
            json!({"master": 7}),
            6,
            "network configuration: master: invalid type: integer `7`, expected a string",
        ),
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
fn hardware_addresses_are_judged_by_their_form() {
    let address = "00:00:10:49:fe:80:00:00:00:00:00:00:24:8a:07:03:00:b4:0c:5e";
    assert_eq!(read(json!({"mac": address})).mac.unwrap().len(), 20);
    for mac in [
        "02:00:00:00:00",
        "01:00:5e:00:00:01",
        "ff:ff:ff:ff:ff:ff",
        "00:00:00:00:00:00",
        "02-00-00-00-00-05",
        "x",
        "02:00:00:00:00:00:00:05",
    ] {
        let text = format!("mac is {mac}, want 6 bytes such as \"02:42:ac:11:00:02\", not a group address");
        assert_eq!(refused(json!({"mac": mac})), (7, text));
    }
    let text = "runtimeConfig.infinibandGUID is 1:2, want 8 bytes such as \"00:02:c9:03:00:00:00:01\"";
    assert_eq!(
        refused(json!({"runtimeConfig": {"infinibandGUID": "1:2"}})),
        (7, text.to_owned())
    );
}

#[test]
fn the_address_that_came_latest_wins_and_is_named_when_it_is_wrong() {
    let sources = [
        (
            "runtimeConfig.mac",
            json!({"runtimeConfig": {"mac": "02:00:00:00:00:01"}}),
            "",
        ),
        (
            "args.cni.mac",
            json!({"args": {"cni": {"mac": "02:00:00:00:00:02"}}}),
            "",
        ),
        ("CNI_ARGS MAC", json!({}), "MAC=02:00:00:00:00:03"),
        ("mac", json!({"mac": "02:00:00:00:00:04"}), ""),
    ];
    for first in 0..sources.len() {
        let mut keys = serde_json::Map::new();
        let mut args = "";
        for (_, more, text) in &sources[first..] {
            keys.extend(more.as_object().unwrap().clone());
            args = if text.is_empty() { args } else { text };
        }
        let config = Config::read(&call_with("cni-ipoib", Value::Object(keys.clone()), args)).unwrap();
        assert_eq!(
            config.mac.unwrap().to_string(),
            format!("02:00:00:00:00:0{}", first + 1)
        );
        let (key, ..) = sources[first];
        let wrong = serde_json::to_string(&keys)
            .unwrap()
            .replace(&format!("00:0{}\"", first + 1), "00:zz\"");
        let args = args.replace(&format!("00:0{}", first + 1), "00:zz");
        let (code, text) = refused_as("cni-ipoib", serde_json::from_str(&wrong).unwrap(), &args);
        assert_eq!(code, 7);
        assert!(
            text.starts_with(&format!("{key} is 02:00:00:00:00:zz, want")),
            "{text}"
        );
    }
}

#[test]
fn a_guid_comes_from_the_runtime_a_person_or_the_environment() {
    let guid = |keys, args| {
        Config::read(&call_with("cni-ipoib", keys, args))
            .unwrap()
            .guid
            .map(|guid| guid.0)
    };
    let person = json!({"args": {"cni": {"guid": "0000:0000:0000:0002"}}});
    assert_eq!(guid(json!({}), "GUID=00:00:00:00:00:00:00:03"), Some(3));
    assert_eq!(guid(person.clone(), "GUID=00:00:00:00:00:00:00:03"), Some(2));
    let mut both = person;
    both["runtimeConfig"] = json!({"infinibandGUID": "00:00:00:00:00:00:00:01"});
    assert_eq!(guid(both, ""), Some(1));
}

#[test]
fn a_device_of_a_device_plugin_goes_before_a_name() {
    let master = |keys| read(keys).master;
    let device = |id: &str| Master::Device(id.to_owned());
    let named = Master::Named("ib0".to_owned());
    let pci = "0000:3b:00.1";
    assert_eq!(master(json!({"master": "ib0"})), named);
    assert_eq!(master(json!({"master": "ib0", "deviceID": pci})), device(pci));
    assert_eq!(master(json!({"pciBusID": pci})), device(pci));
    assert_eq!(
        master(json!({"deviceID": "0000:00:00.0", "runtimeConfig": {"deviceID": pci}})),
        device(pci)
    );
    assert_eq!(
        master(json!({"pciBusID": "0000:00:00.0", "deviceID": pci})),
        device(pci)
    );
    assert_eq!(
        master(json!({"master": "ib0", "deviceID": "mlx5_core.sf.4"})),
        device("mlx5_core.sf.4")
    );
    assert_eq!(
        master(json!({"master": "ib0", "deviceID": "17"})),
        named,
        "an id of shared devices names none"
    );
    assert_eq!(master(json!({"deviceID": "17"})), device("17"));
    assert_eq!(master(json!({})), Master::Unset);
}

#[test]
fn keys_nobody_knows_are_refused_with_the_nearest() {
    assert_refused([
        (
            json!({"pkye": "0x8001"}),
            7,
            "unknown key pkye (value \"0x8001\"); did you mean pkey?",
        ),
        (
            json!({"Master": "ib0"}),
            7,
            "unknown key Master (value \"ib0\"); did you mean master?",
        ),
        (
            json!({"ipoib_mode": "connected"}),
            7,
            "unknown key ipoib_mode (value \"connected\"); did you mean ipoibMode?",
        ),
        (
            json!({"bcQueueLen": 5}),
            7,
            "unknown key bcQueueLen (value 5); did you mean bcqueuelen?",
        ),
    ]);
    let (code, text) = refused(json!({"zzz": {"a": "b".repeat(200)}}));
    assert_eq!(code, 7);
    assert!(
        text.starts_with("unknown key zzz (value {\"a\":\"bbb") && text.len() < 600,
        "{text}"
    );
    assert!(text.contains("…); known keys: master, mode, pkey, "), "{text}");
    assert_eq!(
        read(json!({"cni.dev/anything": 1, "capabilities": {"mac": true}, "disableCheck": true})),
        read(json!({}))
    );
}

#[test]
fn arguments_nobody_knows_are_refused_unless_the_runtime_says_otherwise() {
    let text = "CNI_ARGS holds the unknown key \"COLOUR\"; remove it or add IgnoreUnknown=1";
    assert_eq!(
        refused_as("cni-ipoib", json!({}), "COLOUR=red"),
        (4, text.to_owned())
    );
    for args in [
        "COLOUR=red;IgnoreUnknown=1",
        "K8S_POD_NAME=a;K8S_POD_UID=b",
        "IP=192.0.2.7;GATEWAY=192.0.2.1",
    ] {
        assert!(
            Config::read(&call_with("cni-ipoib", json!({}), args)).is_ok(),
            "{args}"
        );
    }
}

#[test]
fn keys_of_another_mode_are_refused() {
    let keys = [
        ("pkey", json!("0x8001"), "ipoib"),
        ("ipoibMode", json!("connected"), "ipoib"),
        ("umcast", json!(false), "ipoib"),
        ("macvlanMode", json!("bridge"), "macvlan"),
        ("bcqueuelen", json!(5), "macvlan"),
        ("ipvlanMode", json!("l2"), "ipvlan"),
    ];
    for (key, value, its) in keys {
        for mode in ["ipoib", "macvlan", "ipvlan"] {
            let conf = json!({"mode": mode, key: value});
            if mode == its {
                read(conf);
            } else {
                let text = format!(
                    "{key} is for mode {its}, but the mode is {mode}; remove {key} or change the mode"
                );
                assert_eq!(refused(conf), (7, text));
            }
        }
        let undecided = read(json!({key: value})).only_for;
        let undecided: Vec<(&str, String)> = undecided
            .into_iter()
            .map(|(key, its)| (key, its.to_string()))
            .collect();
        assert_eq!(
            undecided,
            [(key, its.to_owned())],
            "judged when the parent is known"
        );
    }
}

/// The forms in which NVIDIA's network operator and its documentation write this plugin's configuration.
#[test]
fn a_configuration_of_ipoib_is_read_as_it_is() {
    let conf = json!({
        "master": "ibs1f0", "mtu": 2044, "logLevel": "debug", "unknown": 1,
        "ipam": {"type": "whereabouts", "datastore": "kubernetes", "range": "192.168.5.225/28", "log_level": "info"},
    });
    let config = Config::read(&call_with("ipoib", conf, "")).unwrap();
    assert_eq!((config.mode, config.mtu), (Some(Mode::Ipoib), Some(2044)));
    assert_eq!(
        (config.master, config.ipam.as_deref()),
        (Master::Named("ibs1f0".to_owned()), Some("whereabouts"))
    );
    let bare = Config::read(&call_with("ipoib", json!({}), "")).unwrap();
    assert_eq!(
        bare.master,
        Master::Unset,
        "its documentation promises the default route, its code refuses"
    );
}

/// The forms that the reference plugin's documentation has.
#[test]
fn a_configuration_of_macvlan_is_read_as_it_is() {
    let conf = json!({
        "master": "eth0", "mode": "private", "mtu": 1400, "mac": "c2:11:22:33:44:55", "linkInContainer": false,
        "bcqueuelen": 1000, "unknown": {"a": 1}, "ipam": {"type": "dhcp"}, "dns": {}, "promisc": true,
    });
    let config = Config::read(&call_with(
        "macvlan",
        conf,
        "IgnoreUnknown=1;MAC=c2:11:22:33:44:66",
    ))
    .unwrap();
    assert_eq!(
        (config.mode, config.macvlan_mode),
        (Some(Mode::Macvlan), MacvlanMode::Private)
    );
    assert_eq!((config.mtu, config.bc_queue_len), (Some(1400), Some(1000)));
    assert_eq!(config.mac.unwrap().to_string(), "c2:11:22:33:44:66");
    let bare = Config::read(&call_with("macvlan", json!({}), "")).unwrap();
    assert_eq!(
        (bare.master, bare.macvlan_mode),
        (Master::DefaultRoute, MacvlanMode::Bridge)
    );
    let (code, text) = refused_as("macvlan", json!({"mode": "hub"}), "");
    assert_eq!(
        (code, text.as_str()),
        (
            7,
            "mode: \"hub\" is not one of private, vepa, bridge, passthru, source"
        )
    );
    let (code, text) = refused_as("macvlan", json!({"mode": "source"}), "");
    assert_eq!(code, 2);
    assert!(text.starts_with("mode source is not supported: "), "{text}");
}

#[test]
fn identity_is_read_from_what_add_accepts() {
    let identity = Identity::read(&call(json!({
        "ipam": {"type": "ranges"}, "delegateTimeout": 7, "runtimeConfig": {"CNIDeviceInfoFile": "/run/x.json"},
    })));
    let expected = Identity {
        ipam: Some("ranges".to_owned()),
        delegate_timeout: Duration::from_secs(7),
    };
    assert_eq!(identity, expected);
}

#[test]
fn identity_takes_anything() {
    let none = Identity {
        ipam: None,
        delegate_timeout: Duration::from_secs(60),
    };
    let values = [
        Value::Null,
        json!(true),
        json!(-1),
        json!(u64::MAX),
        json!(1.5),
        json!(""),
        json!("../x"),
        json!([]),
        json!({}),
        json!({"type": {"type": 7}}),
        json!({"type": ""}),
        json!({"type": ".."}),
        json!({"type": "a/b"}),
        json!({"CNIDeviceInfoFile": 7}),
    ];
    for key in KEYS
        .iter()
        .chain(&["ipam", "runtimeConfig", "args", "dns", "prevResult", "nonsense"])
    {
        for value in &values {
            assert_eq!(
                Identity::read(&call(json!({*key: value}))),
                none,
                "{key}: {value}"
            );
        }
    }
}

#[test]
fn the_state_may_be_moved() {
    let places = |pairs: &[(&str, &str)]| Places::of_node(&pairs.iter().copied().collect()).unwrap();
    assert_eq!(places(&[]).state, PathBuf::from("/run/rdmanet"));
    assert_eq!(
        places(&[("RDMANET_STATE", "/var/lib/x")]).state,
        PathBuf::from("/var/lib/x")
    );
    assert_eq!(places(&[("RDMANET_STATE", "")]).sysfs, PathBuf::from("/sys"));
}
