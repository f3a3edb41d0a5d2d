// SPDX-License-Identifier: Apache-2.0
use super::*;

/// The configurations in NVIDIA's network operator and its documentation.
#[test]
fn a_configuration_of_ipoib_cni_is_accepted_unchanged() {
    let conf = json!({
        "master": "ibs1f0", "mtu": 2044, "logLevel": "debug", "unknown": 1,
        "ipam": {"type": "whereabouts", "datastore": "kubernetes", "range": "192.168.5.225/28", "log_level": "info"},
    });
    let config = Config::read(&call_with("ipoib", conf, "")).unwrap();
    assert_eq!((config.mode, config.mtu), (Some(Mode::Ipoib), Some(2044)));
    assert_eq!(config.umcast, Some(true), "ipoib-cni sets it on every child");
    assert_eq!(
        (config.master, config.ipam.as_deref()),
        (
            Master::Resolved(ResolvedMaster::Named("ibs1f0".to_owned())),
            Some("whereabouts")
        )
    );
    let bare = Config::read(&call_with("ipoib", json!({}), "")).unwrap();
    assert_eq!(
        bare.master,
        Master::Resolved(ResolvedMaster::Unset),
        "its documentation promises the default route, its code refuses"
    );
}

/// The configurations in the reference plugin's documentation, with another IPAM plugin.
#[test]
fn a_configuration_of_macvlan_is_accepted_unchanged() {
    let conf = json!({
        "master": "eth0", "mode": "private", "mtu": 1400, "mac": "c2:11:22:33:44:55", "linkInContainer": false,
        "bcqueuelen": 1000, "unknown": {"a": 1}, "ipam": {"type": "host-local"}, "dns": {}, "promisc": true,
        "args": {"cni": {"mac": "c2:11:22:33:44:77"}},
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
    let keys = json!({"args": {"cni": {"mac": "c2:11:22:33:44:77"}}});
    let of_pod = Config::read(&call_with("macvlan", keys, "")).unwrap();
    assert_eq!(of_pod.mac, None, "that plugin reads no args.cni");
    let bare = Config::read(&call_with("macvlan", json!({}), "")).unwrap();
    assert_eq!(
        (bare.master, bare.macvlan_mode),
        (
            Master::Resolved(ResolvedMaster::DefaultRoute),
            MacvlanMode::Bridge
        )
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
fn ip_masq_is_ignored_under_the_names_of_other_plugins() {
    for (name, key) in [
        ("macvlan", "master"),
        ("ipoib", "master"),
        ("host-device", "device"),
    ] {
        let keys = json!({key: "ib0", "ipMasq": true});
        assert!(Config::read(&call_with(name, keys, "")).is_ok(), "{name}");
    }
}

/// `pkg/types/types.go` of both plugins, and docs/migrate-interfaces.md.
#[test]
fn keys_of_sriov_and_ib_sriov_without_a_counterpart_are_refused_by_name() {
    for (key, value) in [
        ("vlan", json!(100)),
        ("vlanQoS", json!(4)),
        ("vlanProto", json!("802.1ad")),
        ("min_tx_rate", json!(100)),
        ("max_tx_rate", json!(200)),
        ("spoofchk", json!("off")),
        ("trust", json!("on")),
        ("link_state", json!("enable")),
        ("logLevel", json!("debug")),
        ("logFile", json!("/tmp/sriov.log")),
        ("rdmaIsolation", json!(true)),
        ("ibKubernetesEnabled", json!(true)),
        ("vfioPciMode", json!(true)),
    ] {
        let (code, text) = refused(json!({"mode": "device", key: value}));
        assert_eq!(code, 7, "{key}");
        assert!(text.starts_with(&format!("unknown key {key} (value ")), "{text}");
        // `rdma` is what takes the place of `rdmaIsolation`. The other keys have no counterpart.
        let suggested = text.contains("did you mean ");
        assert_eq!(suggested, key == "rdmaIsolation", "{text}");
    }
    let (code, text) = refused(json!({"mode": "device", "pkey": "0x8001"}));
    assert_eq!(code, 7);
    assert!(text.starts_with("pkey is for mode ipoib, "), "{text}");
}

/// `getLink` and `loadConf` of the reference plugin.
#[test]
fn a_configuration_of_host_device_is_accepted_unchanged() {
    let read = |keys: Value| Config::read(&call_with("host-device", keys, "IgnoreUnknown=1")).unwrap();
    let master = |keys: Value| read(keys).master;
    let device = |id: &str| Master::Resolved(ResolvedMaster::Device(id.to_owned()));
    let (pci, other) = ("0000:3b:00.1", "0000:5e:00.0");
    let all = json!({
        "device": "eth3", "hwaddr": "b8:3f:d2:00:00:01", "kernelpath": "/sys/devices/pci0000:3a/0000:3b:00.1",
        "pciBusID": other, "runtimeConfig": {"deviceID": pci}, "ipam": {"type": "static"}, "unknown": 1,
    });
    let config = read(all.clone());
    assert_eq!((config.mode, config.keep_last), (Some(Mode::Device), false));
    assert_eq!(config.ipam.as_deref(), Some("static"));
    let mut keys = all;
    let mut without = |key: &str| {
        let found = master(keys.clone());
        keys.as_object_mut().unwrap().remove(key);
        found
    };
    assert_eq!(
        without("device"),
        Master::Resolved(ResolvedMaster::Named("eth3".to_owned()))
    );
    assert_eq!(
        without("hwaddr"),
        Master::Resolved(ResolvedMaster::Address("b8:3f:d2:00:00:01".parse().unwrap()))
    );
    let path = PathBuf::from("/sys/devices/pci0000:3a/0000:3b:00.1");
    assert_eq!(
        without("kernelpath"),
        Master::Resolved(ResolvedMaster::KernelPath(path))
    );
    assert_eq!(
        without("runtimeConfig"),
        device(pci),
        "a device plugin goes before pciBusID"
    );
    assert_eq!(without("pciBusID"), device(other));
    assert_eq!(
        master(json!({"device": "", "pciBusID": "mlx5_core.sf.4"})),
        device("mlx5_core.sf.4")
    );
    assert!(read(json!({"device": "eth3", "keepLast": true})).keep_last);
    let (code, text) = refused_as("host-device", json!({"deviceID": pci}), "");
    assert!(
        code == 7 && text.contains("set device, hwaddr, kernelpath or pciBusID"),
        "{text}"
    );
    for path in [
        "sys/devices/x",
        "/sys/class/net/eth0",
        "/sys/devices/../class/net/eth0",
    ] {
        let (code, text) = refused_as("host-device", json!({"kernelpath": path}), "");
        assert!(
            code == 7 && text.starts_with(&format!("kernelpath is {path}, want")),
            "{text}"
        );
    }
}
