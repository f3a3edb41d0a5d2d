// SPDX-License-Identifier: Apache-2.0
use super::*;

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
