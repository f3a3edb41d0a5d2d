// SPDX-License-Identifier: Apache-2.0
use super::*;

#[test]
fn hardware_addresses_are_validated() {
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
    let text = "runtimeConfig.infinibandGUID is 1:2, want 8 bytes such as \"00:02:c9:03:00:00:00:01\", neither all 0 nor all ff";
    assert_eq!(
        refused(json!({"runtimeConfig": {"infinibandGUID": "1:2"}})),
        (7, text.to_owned())
    );
}

#[test]
fn the_last_source_of_an_address_wins_and_errors_name_it() {
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
        keys.insert("capabilities".to_owned(), json!({"mac": true}));
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
fn a_guid_comes_from_the_runtime_the_network_or_the_environment() {
    let guid = |mut keys: Value, args| {
        keys["capabilities"] = json!({"infinibandGUID": true});
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
    let written = json!({"guid": "0000:0000:0000:0004"});
    assert_eq!(guid(written.clone(), ""), Some(4));
    assert_eq!(guid(written, "GUID=00:00:00:00:00:00:00:03"), Some(3));
}

#[test]
fn an_unusable_guid_is_refused() {
    for wrong in [
        "0000:0000:0000:0000",
        "ff:ff:ff:ff:ff:ff:ff:ff",
        "02:00:00:00:00:00:21",
        "21",
    ] {
        let (code, text) = refused_as("cni-ipoib", json!({"guid": wrong}), "");
        assert_eq!(code, 7, "{wrong}");
        assert!(text.contains(&format!("guid is {wrong}, want")), "{text}");
    }
}

#[test]
fn a_device_plugins_choice_precedes_a_name() {
    let master = |keys| read(keys).master;
    let device = |id: &str| Master::Resolved(ResolvedMaster::Device(id.to_owned()));
    let named = Master::Resolved(ResolvedMaster::Named("ib0".to_owned()));
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
    assert_eq!(master(json!({})), Master::Resolved(ResolvedMaster::Unset));
}

/// A runtime other than Multus: CNI's CONVENTIONS.md has no key of the configuration for the device.
#[test]
fn a_runtime_may_pass_the_device_in_its_capability_alone() {
    for program in ["cni-ipoib", "host-device"] {
        let keys = json!({"runtimeConfig": {"deviceID": "0000:3b:00.1"}});
        let config = Config::read(&call_with(program, keys, "")).unwrap();
        let device = ResolvedMaster::Device("0000:3b:00.1".to_owned());
        assert_eq!(config.master, Master::Resolved(device), "{program}");
    }
}

#[test]
fn a_pod_cannot_choose_an_address_unless_the_network_allows_it() {
    let cases = [
        (
            "mac",
            json!({"args": {"cni": {"mac": "02:00:00:00:00:98"}}}),
            "",
            "args.cni.mac",
        ),
        ("mac", json!({}), "MAC=02:00:00:00:00:98", "CNI_ARGS MAC"),
        (
            "infinibandGUID",
            json!({"args": {"cni": {"guid": "00:00:00:00:00:00:00:02"}}}),
            "",
            "args.cni.guid",
        ),
        (
            "infinibandGUID",
            json!({}),
            "GUID=00:00:00:00:00:00:00:03",
            "CNI_ARGS GUID",
        ),
    ];
    for (capability, keys, args, key) in cases {
        for capabilities in [json!({}), json!({"ips": true}), json!({capability: false})] {
            let mut keys = keys.clone();
            keys["capabilities"] = capabilities;
            let (code, text) = refused_as("cni-ipoib", keys, args);
            assert_eq!(code, 7);
            let remedy = format!("add \"capabilities\": {{\"{capability}\": true}} to the network");
            assert!(
                text.starts_with(&format!("{key} asks for ")) && text.contains(&remedy),
                "{text}"
            );
        }
        let mut keys = keys.clone();
        keys["capabilities"] = json!({capability: true});
        let config = Config::read(&call_with("cni-ipoib", keys, args)).unwrap();
        assert_ne!((config.mac, config.guid), (None, None), "{key}");
    }
}

/// If the annotation contains a `mac`, Multus sends it in both places.
#[test]
fn a_runtime_that_passes_no_capabilities_is_supported() {
    let keys = json!({"runtimeConfig": {"mac": "02:00:00:00:00:01"}});
    let config = Config::read(&call_with("cni-ipoib", keys, "MAC=02:00:00:00:00:01")).unwrap();
    assert_eq!(config.mac.unwrap().to_string(), "02:00:00:00:00:01");
}

#[test]
fn the_networks_own_settings_need_no_capability() {
    let config = read(json!({"mac": "02:00:00:00:00:05", "guid": "00:00:00:00:00:00:00:04"}));
    assert!(config.mac.is_some() && config.guid.is_some());
    let empty = json!({"args": {"cni": {"mac": "", "guid": ""}}});
    assert_eq!(read(empty), read(json!({})));
}
