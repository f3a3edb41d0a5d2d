// SPDX-License-Identifier: Apache-2.0
//! The configuration as it is written. Only its JSON types are checked here.

use common::cni::{Dns, Route};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
pub(super) struct RawPlaceConf {
    pub(super) ipam: Option<RawPlace>,
}

#[derive(Default, Deserialize)]
pub(super) struct RawPlace {
    pub(super) network_name: Option<String>,
    #[serde(rename = "dataDir")]
    pub(super) data_dir: Option<String>,
    /// Of any type: DEL must not fail for a value that only ADD refuses.
    pub(super) cooldown: Option<Value>,
    /// Likewise.
    pub(super) pool: Option<Value>,
    /// Likewise.
    pub(super) pools: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawConf {
    pub(super) ipam: Option<RawIpam>,
    pub(super) runtime_config: Option<RawRuntime>,
    pub(super) args: Option<RawArgs>,
}

/// `runtimeConfig` (CONVENTIONS.md, dynamic plugin-specific fields).
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawRuntime {
    pub(super) ips: Option<Vec<String>>,
    pub(super) ip_ranges: Option<Vec<Vec<RawRange>>>,
}

/// `args` (CONVENTIONS.md, "args" in network config).
#[derive(Deserialize)]
pub(super) struct RawArgs {
    pub(super) cni: Option<RawCniArgs>,
}

#[derive(Deserialize)]
pub(super) struct RawCniArgs {
    pub(super) ips: Option<Vec<String>>,
}

/// The `ipam` object: keys of this plugin and host-local in camel case, whereabouts' keys as whereabouts
/// spells them.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawIpam {
    pub(super) pool: Option<String>,
    pub(super) pools: Option<Vec<String>>,
    pub(super) ranges: Option<Vec<Vec<RawRange>>>,
    pub(super) subnet: Option<String>,
    pub(super) range_start: Option<String>,
    pub(super) range_end: Option<String>,
    pub(super) gateway: Option<String>,
    pub(super) exclude: Option<Vec<String>>,
    pub(super) routes: Option<Vec<Route>>,
    pub(super) dns: Option<Dns>,
    pub(super) resolv_conf: Option<String>,
    pub(super) data_dir: Option<String>,
    pub(super) cooldown: Option<u32>,
    pub(super) per_node: Option<bool>,

    pub(super) range: Option<String>,
    #[serde(rename = "range_start")]
    pub(super) snake_start: Option<String>,
    #[serde(rename = "range_end")]
    pub(super) snake_end: Option<String>,
    pub(super) ip_ranges: Option<Vec<RawIpRange>>,
    #[serde(rename = "network_name")]
    pub(super) network_name: Option<String>,
    #[serde(rename = "enable_overlapping_ranges")]
    pub(super) enable_overlapping_ranges: Option<bool>,
    #[serde(rename = "node_slice_size")]
    pub(super) node_slice_size: Option<Value>,
    #[serde(rename = "configuration_path")]
    pub(super) configuration_path: Option<Value>,
    pub(super) addresses: Option<Value>,
    datastore: Option<Value>,
    kubernetes: Option<Value>,
    #[serde(rename = "etcd_host")]
    etcd_host: Option<Value>,
    #[serde(rename = "etcd_username")]
    etcd_username: Option<Value>,
    #[serde(rename = "etcd_password")]
    etcd_password: Option<Value>,
    #[serde(rename = "etcd_key_file")]
    etcd_key_file: Option<Value>,
    #[serde(rename = "etcd_cert_file")]
    etcd_cert_file: Option<Value>,
    #[serde(rename = "etcd_ca_cert_file")]
    etcd_ca_cert_file: Option<Value>,
    #[serde(rename = "log_file")]
    log_file: Option<Value>,
    #[serde(rename = "log_level")]
    log_level: Option<Value>,
    #[serde(rename = "leader_lease_duration")]
    leader_lease_duration: Option<Value>,
    #[serde(rename = "leader_renew_deadline")]
    leader_renew_deadline: Option<Value>,
    #[serde(rename = "leader_retry_period")]
    leader_retry_period: Option<Value>,
    #[serde(rename = "reconciler_cron_expression")]
    reconciler_cron_expression: Option<Value>,
    #[serde(rename = "sleep_for_race")]
    sleep_for_race: Option<Value>,
}

impl RawIpam {
    /// Keys of whereabouts' datastores, which make addresses unique in the cluster.
    pub(super) fn datastores(&self) -> [(&'static str, &Option<Value>); 8] {
        [
            ("datastore", &self.datastore),
            ("kubernetes", &self.kubernetes),
            ("etcd_host", &self.etcd_host),
            ("etcd_username", &self.etcd_username),
            ("etcd_password", &self.etcd_password),
            ("etcd_key_file", &self.etcd_key_file),
            ("etcd_cert_file", &self.etcd_cert_file),
            ("etcd_ca_cert_file", &self.etcd_ca_cert_file),
        ]
    }

    /// Keys of whereabouts for parts that this plugin does not have: its log, its leader election, its
    /// reconciler, and the pause before its write, with which its developers test races.
    pub(super) fn ignored(&self) -> [(&'static str, &Option<Value>); 7] {
        [
            ("log_file", &self.log_file),
            ("log_level", &self.log_level),
            ("leader_lease_duration", &self.leader_lease_duration),
            ("leader_renew_deadline", &self.leader_renew_deadline),
            ("leader_retry_period", &self.leader_retry_period),
            ("reconciler_cron_expression", &self.reconciler_cron_expression),
            ("sleep_for_race", &self.sleep_for_race),
        ]
    }
}

/// An entry of `ranges` and of `runtimeConfig.ipRanges`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawRange {
    pub(super) subnet: Option<String>,
    pub(super) range_start: Option<String>,
    pub(super) range_end: Option<String>,
    pub(super) gateway: Option<String>,
    pub(super) exclude: Option<Vec<String>>,
}

/// An entry of whereabouts' `ipRanges`.
#[derive(Default, Deserialize)]
pub(super) struct RawIpRange {
    pub(super) range: Option<String>,
    pub(super) range_start: Option<String>,
    pub(super) range_end: Option<String>,
    pub(super) gateway: Option<String>,
    pub(super) exclude: Option<Vec<String>>,
}
