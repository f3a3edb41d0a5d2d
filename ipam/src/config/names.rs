// SPDX-License-Identifier: Apache-2.0
//! Key names: unknown keys are refused, and so are two spellings of the same setting.

use super::invalid;
use common::cni::Error;
use common::cni::keys;
use serde_json::{Map, Value};

/// Keys of `ipam`, in this plugin's and host-local's spelling.
const OWN: [&str; 15] = [
    "cooldown",
    "dataDir",
    "dns",
    "exclude",
    "gateway",
    "perNode",
    "pool",
    "pools",
    "rangeEnd",
    "rangeStart",
    "ranges",
    "resolvConf",
    "routes",
    "subnet",
    "type",
];

/// Keys that only whereabouts has. Source: `IPAMConfigAlias` in `pkg/types/types.go` of its v0.9.4.
const WHEREABOUTS: [&str; 24] = [
    "addresses",
    "configuration_path",
    "datastore",
    "enable_overlapping_ranges",
    "etcd_ca_cert_file",
    "etcd_cert_file",
    "etcd_host",
    "etcd_key_file",
    "etcd_password",
    "etcd_username",
    "ipRanges",
    "kubernetes",
    "leader_lease_duration",
    "leader_renew_deadline",
    "leader_retry_period",
    "log_file",
    "log_level",
    "network_name",
    "node_slice_size",
    "range",
    "range_end",
    "range_start",
    "reconciler_cron_expression",
    "sleep_for_race",
];

/// Keys that may accompany `pool` and `pools`. The pool itself defines everything else.
const WITH_POOL: [&str; 7] = ["dataDir", "dns", "pool", "pools", "resolvConf", "routes", "type"];

const RANGE: [&str; 5] = ["exclude", "gateway", "rangeEnd", "rangeStart", "subnet"];
const IP_RANGE: [&str; 5] = ["exclude", "gateway", "range", "range_end", "range_start"];
const ROUTE: [&str; 7] = ["advmss", "dst", "gw", "mtu", "priority", "scope", "table"];

/// Keys that define addresses. The two spellings cannot be mixed.
const SPELLINGS: [&[&str]; 2] = [
    &["subnet", "rangeStart", "rangeEnd", "ranges"],
    &["range", "range_start", "range_end", "ipRanges"],
];

/// Refuses keys that are unknown.
///
/// # Errors
/// `INVALID_CONFIG`, naming the key and the nearest known one.
pub(super) fn require_known(conf: &Map<String, Value>) -> Result<(), Error> {
    let ipam = match conf.get("ipam") {
        Some(Value::Object(ipam)) => ipam,
        // A value of a wrong type is reported with its JSON path when it is decoded.
        Some(other) if !other.is_null() => return Ok(()),
        _ => {
            return Err(invalid(
                "ipam is missing: set ipam.type to \"rdma-ipam\", and ipam.ranges or ipam.pool".to_owned(),
            ));
        }
    };
    keys::require_known(ipam, &[&OWN[..], &WHEREABOUTS].concat(), "ipam.")?;
    lists(ipam.get("ranges"), &RANGE, "ipam.ranges")?;
    lists(ipam.get("ipRanges"), &IP_RANGE, "ipam.ipRanges")?;
    lists(ipam.get("routes"), &ROUTE, "ipam.routes")?;
    let runtime = conf
        .get("runtimeConfig")
        .and_then(|runtime| runtime.get("ipRanges"));
    lists(runtime, &RANGE, "runtimeConfig.ipRanges")
}

/// Refuses mixed spellings, ranges beside a pool, and a pool that is `null`. `conf` has no other blank
/// members.
///
/// # Errors
/// `INVALID_CONFIG`, naming both keys.
pub(super) fn require_one_meaning(conf: &Map<String, Value>) -> Result<(), Error> {
    let Some(Value::Object(ipam)) = conf.get("ipam") else {
        return Ok(());
    };
    alone(conf, ipam)?;
    let used = |spelling: &[&'static str]| spelling.iter().copied().find(|key| ipam.contains_key(*key));
    match (used(SPELLINGS[0]), used(SPELLINGS[1])) {
        (Some(ours), Some(theirs)) => Err(invalid(format!(
            "ipam.{ours} (value {}) and ipam.{theirs} (value {}) are two spellings of one thing; keep one of them",
            ipam[ours], ipam[theirs]
        ))),
        _ => Ok(()),
    }
}

/// ` (value ...)`, for an error about a key. The text of an error reaches the Events of the pod, so a password is left out.
pub(super) fn shown(key: &str, value: &Value) -> String {
    match key {
        "etcd_password" => String::new(),
        _ => format!(" (value {value})"),
    }
}

/// Refuses keys that repeat or contradict what a pool defines, and a pool that is `null`.
fn alone(conf: &Map<String, Value>, ipam: &Map<String, Value>) -> Result<(), Error> {
    let pools = ["pool", "pools"];
    // Without the key, each node would allocate from ranges of its own, or from other pools.
    if let Some(null) = pools.iter().find(|key| ipam.get(**key) == Some(&Value::Null)) {
        return Err(invalid(format!(
            "ipam.{null} is null, as if a template left it empty: name an IPPool, or remove the key"
        )));
    }
    let set = |key: &&str| ipam.get(*key).is_some_and(|value| !value.is_null());
    let Some(pool) = pools.iter().find(|key| set(key)) else {
        return Ok(());
    };
    let refuse = |place: &str, key: &str, value: &Value| {
        Err(invalid(format!(
            "{place}{key}{} cannot be combined with ipam.{pool} (value {}): the pool defines the addresses; remove one of them",
            shown(key, value),
            ipam[*pool]
        )))
    };
    if set(&"pool") && set(&"pools") {
        return refuse("ipam.", "pools", &ipam["pools"]);
    }
    let all = OWN.iter().chain(&WHEREABOUTS);
    if let Some(key) = all.filter(|key| !WITH_POOL.contains(key)).find(|key| set(key)) {
        return refuse("ipam.", key, &ipam[*key]);
    }
    let ranges = conf
        .get("runtimeConfig")
        .and_then(|runtime| runtime.get("ipRanges"));
    match ranges.filter(|ranges| ranges.as_array().is_none_or(|list| !list.is_empty())) {
        Some(ranges) => refuse("runtimeConfig.", "ipRanges", ranges),
        None => Ok(()),
    }
}

/// Checks every object of a list, or of a list of lists.
fn lists(value: Option<&Value>, known: &[&str], place: &str) -> Result<(), Error> {
    match value {
        Some(Value::Array(list)) => list
            .iter()
            .enumerate()
            .try_for_each(|(i, item)| lists(Some(item), known, &format!("{place}[{i}]"))),
        Some(Value::Object(object)) => keys::require_known(object, known, &format!("{place}.")),
        _ => Ok(()),
    }
}
