// SPDX-License-Identifier: Apache-2.0
use super::*;

#[test]
fn dhcp_is_refused_in_every_mode_and_under_every_name() {
    let text = "ipam.type dhcp is not supported: it needs the interface, and the IPAM plugin is called before the interface exists; use rdma-ipam, host-local, static or whereabouts";
    for mode in ["", "ipoib", "macvlan", "ipvlan", "device"] {
        let conf = json!({"mode": mode, "ipam": {"type": "dhcp"}});
        assert_eq!(refused(conf), (2, text.to_owned()), "{mode}");
    }
    for program in ["ipoib", "macvlan", "host-device"] {
        let conf = json!({"device": "eth0", "ipam": {"type": "dhcp"}});
        assert_eq!(refused_as(program, conf, ""), (2, text.to_owned()), "{program}");
    }
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_known_one() {
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
fn unknown_cni_args_are_refused_unless_the_runtime_allows_them() {
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
            "evaluated when the parent is known"
        );
    }
}
