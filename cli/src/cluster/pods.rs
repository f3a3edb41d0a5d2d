// SPDX-License-Identifier: Apache-2.0
//! The parts of pods that concern addresses: their nodes, and their addresses according to Multus
//! (`k8s.v1.cni.cncf.io/network-status`, written once ADD has succeeded; the specification of the Network Plumbing
//! Working Group, § 5).

use super::full_name;
use api::pods::{final_phase, uids};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde::Deserialize;
use std::net::IpAddr;

const STATUS: &str = "k8s.v1.cni.cncf.io/network-status";
const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// `namespace/name`.
    pub name: String,
    /// `metadata.uid` and, of a static pod, the UID by which the runtime knows it.
    pub uids: Vec<String>,
    /// Its node, if it has one.
    pub node: Option<String>,
    /// Whether it may hold addresses: a pod that has ended holds none, though its annotation stays.
    pub is_running: bool,
    /// When its node started it.
    pub since: Option<String>,
    /// The text of its `networks` annotation, not parsed.
    pub networks: Option<String>,
    /// Its interfaces, without those of the cluster's default network.
    pub interfaces: Vec<Interface>,
}

/// An interface of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Interface {
    /// The network, `namespace/name` as a rule.
    #[serde(default)]
    pub name: String,
    /// Its name in the pod.
    #[serde(default)]
    pub interface: String,
    /// Its addresses.
    #[serde(default)]
    pub ips: Vec<String>,
    /// Whether it belongs to the cluster's default network.
    #[serde(default)]
    pub default: bool,
}

impl Interface {
    /// Its addresses, without entries that cannot be parsed.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        // Some plugins append the prefix length.
        self.ips
            .iter()
            .filter_map(|ip| ip.split('/').next()?.parse().ok())
    }
}

impl PodFacts {
    /// The facts of `pod`.
    pub fn of(pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        let annotation = |key: &str| pod.annotations().get(key).map(String::as_str);
        let interfaces: Vec<Interface> = annotation(STATUS)
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        Self {
            name: full_name(pod),
            uids: uids(pod).map(str::to_owned).collect(),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            is_running: final_phase(pod).is_none(),
            since: status
                .and_then(|status| status.start_time.as_ref())
                .map(|time| time.0.to_string()),
            networks: annotation(NETWORKS).map(str::to_owned),
            interfaces: interfaces.into_iter().filter(|one| !one.default).collect(),
        }
    }

    /// Whether the pod has this UID.
    pub fn has_uid(&self, uid: &str) -> bool {
        self.uids.iter().any(|own| own == uid)
    }

    /// The interface that has `ip`.
    pub fn interface_with(&self, ip: IpAddr) -> Option<&Interface> {
        self.interfaces
            .iter()
            .find(|one| one.addresses().any(|its| its == ip))
    }
}

#[cfg(test)]
mod tests;
