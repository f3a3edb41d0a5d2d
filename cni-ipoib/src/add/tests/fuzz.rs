// SPDX-License-Identifier: Apache-2.0
//! Network configurations changed at random. `docs/design/fuzz.md` has the figures.

use super::*;
use common::cni::{Env, Reader, Streams, dispatch};
use common::mutate::{self, Random};
use serde_json::Value;
use std::io;

/// Networks of this plugin and of the plugins whose names it answers to, with the program's name.
fn networks(fixture: &Fixture) -> Vec<(&'static str, Value)> {
    let info = json!({"CNIDeviceInfoFile": fixture.info_file(), "mac": "02:00:00:00:00:07", "deviceID": "0000:3b:00.0"});
    vec![
        (
            "cni-ipoib",
            json!({"master": "ib0", "mtu": 2000, "ipam": {"type": "ranges"}, "runtimeConfig": info,
            "capabilities": {"mac": true, "CNIDeviceInfoFile": true}}),
        ),
        (
            "cni-ipoib",
            json!({"master": "ib0", "mode": "ipoib", "pkey": "0x8001", "ipoibMode": "datagram", "umcast": true,
            "policyRouting": "off", "keepLast": false, "delegateTimeout": 30, "dns": {"nameservers": ["10.0.0.53"]}}),
        ),
        (
            "cni-ipoib",
            json!({"master": ["ib9", {"linkLayer": "InfiniBand", "state": "any", "rateMin": 0, "rdmaDevice": "mlx5_*",
            "pciAddress": "0000:3?:00.[01]", "ifName": "ib*", "numaNode": 0}], "rdma": {"netns": "auto"}}),
        ),
        (
            "cni-ipoib",
            json!({"master": "ib0", "mode": "device", "hostAddresses": "restore", "guid": "00:11:22:33:44:55:66:77"}),
        ),
        (
            "ipoib",
            json!({"master": "ib0", "mtu": 2044, "logLevel": "debug", "unknown": 1}),
        ),
        (
            "macvlan",
            json!({"master": "ib0", "mode": "private", "mtu": 1400, "mac": "c2:11:22:33:44:55", "bcqueuelen": 1000,
            "args": {"cni": {"mac": "c2:11:22:33:44:77"}}, "promisc": true}),
        ),
        (
            "host-device",
            json!({"device": "ib0", "hwaddr": "02:00:00:00:0a:0b", "kernelpath": "/sys/devices/x", "pciBusID": "0000:3b:00.0"}),
        ),
    ]
}

/// A network of some kind, most often changed, as it comes on stdin.
fn changed(random: &mut Random, fixture: &Fixture) -> (&'static str, Vec<u8>) {
    let (program, keys) = random.pick(&networks(fixture)).clone();
    let mut conf = json!({"cniVersion": "1.1.0", "name": "fabric", "type": program});
    conf.as_object_mut()
        .unwrap()
        .extend(keys.as_object().unwrap().clone());
    for _ in 0..random.below(3) {
        mutate::json(random, &mut conf);
    }
    let mut stdin = conf.to_string().into_bytes();
    if random.one_in(6) {
        mutate::bytes(random, &mut stdin);
    }
    (program, stdin)
}

/// Serves a call as a runtime makes it, with these `CNI_ARGS`. Returns whether it succeeded, and the document.
fn call(
    fixture: &Fixture,
    case: &str,
    verb: &str,
    (program, args): (&str, &str),
    stdin: &[u8],
) -> (bool, Value) {
    let env: Env = [
        ("CNI_ARGS", args.to_owned()),
        ("CNI_COMMAND", verb.to_owned()),
        ("CNI_CONTAINERID", "c1".to_owned()),
        ("CNI_IFNAME", "net1".to_owned()),
        ("CNI_NETNS", fixture.pod.path().display().to_string()),
        ("CNI_PATH", fixture.ipam.dir().display().to_string()),
    ]
    .into_iter()
    .collect();
    let mut stdout = Vec::new();
    let streams = Streams {
        stdin,
        stdout: &mut stdout,
        stderr: io::sink(),
        reader: Reader::PRESENT,
    };
    let status = dispatch(&fixture.plugin(), program, &env, streams);
    if stdout.is_empty() {
        assert_eq!(status, 0, "{case}: {verb} failed without a document");
        return (true, Value::Null);
    }
    let document: Value = serde_json::from_slice(&stdout).unwrap_or_else(|e| panic!("{case}: {verb}: {e}"));
    let msg = document["msg"].as_str().unwrap_or_default();
    assert!(!msg.starts_with("bug in"), "{case}: {verb}: {document}");
    assert_eq!(
        status == 0,
        document.get("code").is_none(),
        "{case}: {verb}: {document}"
    );
    (status == 0, document)
}

/// A failed ADD leaves nothing, and DEL with the same configuration removes what a successful ADD made.
#[test]
fn add_and_del_of_any_configuration_leave_the_node_unchanged() {
    let (mut added, mut refused) = (0_u32, 0_u32);
    mutate::cases("networks", 400, |case, random| {
        let fixture = Fixture::new();
        let before = fixture.kernel.state();
        let (program, stdin) = changed(random, &fixture);
        let args = random.text("IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=b;MAC=c2:11:22:33:44:66");
        let program = (program, args.as_str());
        let (succeeded, _) = call(&fixture, case, "ADD", program, &stdin);
        added += u32::from(succeeded);
        refused += u32::from(!succeeded);
        if succeeded {
            for verb in ["CHECK", "STATUS", "GC"] {
                call(&fixture, case, verb, program, &stdin);
            }
            let (removed, answer) = call(&fixture, case, "DEL", program, &stdin);
            assert!(removed, "{case}: DEL: {answer}");
        }
        assert_clean(&fixture, &before, case);
        call(&fixture, case, "DEL", program, &stdin);
        assert_eq!(
            fixture.kernel.state(),
            before,
            "{case}: DEL without an attachment"
        );
    });
    // A single seed may lack either.
    assert!(
        added + refused <= 3 || (added > 0 && refused > 0),
        "{added} ADDs succeeded, {refused} did not"
    );
}
