// SPDX-License-Identifier: Apache-2.0
use super::*;

#[test]
fn del_reads_every_configuration_that_add_accepts() {
    let identity = Identity::read(&call(json!({
        "ipam": {"type": "ranges"}, "delegateTimeout": 7, "runtimeConfig": {"CNIDeviceInfoFile": "/run/x.json"},
    })));
    let expected = Identity {
        ipam: Some("ranges".to_owned()),
        delegate_timeout: Duration::from_secs(7),
        is_peer: false,
    };
    assert_eq!(identity, expected);
}

#[test]
fn del_reads_any_configuration() {
    let none = Identity {
        ipam: None,
        delegate_timeout: Duration::from_secs(60),
        is_peer: false,
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
fn del_calls_the_dhcp_plugin_only_for_an_add_of_a_peer() {
    let conf = json!({"ipam": {"type": "dhcp"}});
    let of = |program| Identity::read(&call_with(program, conf.clone(), "")).ipam;
    assert_eq!(of("cni-ipoib"), None, "its ADD refuses dhcp");
    for peer in ["ipoib", "macvlan", "host-device"] {
        assert_eq!(of(peer).as_deref(), Some("dhcp"), "{peer}");
    }
}

#[test]
fn the_state_directory_can_be_changed() {
    let paths = |pairs: &[(&str, &str)]| Paths::of_node(&pairs.iter().copied().collect()).unwrap();
    assert_eq!(paths(&[]).state, PathBuf::from("/run/rdmanet"));
    assert_eq!(
        paths(&[("RDMANET_STATE", "/var/lib/x")]).state,
        PathBuf::from("/var/lib/x")
    );
    assert_eq!(paths(&[("RDMANET_STATE", "")]).sysfs, PathBuf::from("/sys"));
}
