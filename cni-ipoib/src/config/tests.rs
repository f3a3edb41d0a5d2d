// SPDX-License-Identifier: Apache-2.0
#![expect(
    clippy::needless_pass_by_value,
    reason = "a table reads better without a reference before each value"
)]
#![expect(clippy::too_many_lines, reason = "tables")]

mod identity;
mod master;
mod peers;
mod refusals;
mod sources;
mod values;

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

/// Asserts that each configuration is refused with this code and this whole message.
fn assert_refused<const N: usize>(cases: [(Value, u32, &str); N]) {
    for (keys, code, text) in cases {
        assert_eq!(refused(keys.clone()), (code, text.to_owned()), "{keys}");
    }
}

#[test]
fn an_empty_configuration_has_these_defaults() {
    let expected = Config {
        master: Master::Resolved(ResolvedMaster::Unset),
        mode: None,
        pkey: None,
        ipoib_mode: None,
        umcast: None,
        macvlan_mode: MacvlanMode::Bridge,
        bc_queue_len: None,
        ipvlan_mode: IpvlanMode::L2,
        bond: BondUse::InPod,
        link_in_container: false,
        mtu: None,
        mac: None,
        guid: None,
        rdma: None,
        policy_routing: true,
        ipam: None,
        dns: Dns::default(),
        device_info_file: None,
        delegate_timeout: Duration::from_secs(60),
        host_addresses: HostAddresses::Refuse,
        keep_last: true,
        only_for: Vec::new(),
    };
    assert_eq!(read(json!({})), expected);
}

#[test]
fn empty_values_and_zeros_count_as_unset() {
    let empty = json!({
        "master": "", "mode": "", "bond": "", "ipoibMode": "", "macvlanMode": "", "ipvlanMode": "", "policyRouting": "",
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
fn null_counts_as_unset_at_any_depth() {
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
