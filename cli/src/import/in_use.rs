// SPDX-License-Identifier: Apache-2.0
//! Finds which addresses of the old plugin are still in use.
//!
//! Invariant: an address is in use if the old plugin or a pod reports it. It has ended only if the pod that the old
//! plugin names does not exist and no running pod reports the address.

use super::source::SourceAllocation;
use crate::cluster::pods::PodFacts;
use ipam::interval::IntervalSet;
use ipam::range::{Family, bits};
use ipnetwork::IpNetwork;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The prefix of `reported_by` for an allocation that a pod's own status reports.
pub const NETWORK_STATUS: &str = "network-status of";

/// The addresses that the old plugin allocated in a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocations {
    /// The allocations in use.
    pub in_use: Vec<SourceAllocation>,
    /// The allocations whose pods are gone.
    pub ended: Vec<SourceAllocation>,
}

/// Separates the allocations in `subnets` that are in use from those that have ended. If the pool is open, only addresses
/// that were `known` when it was opened count: our own plugin allocates all others.
pub fn classify(
    allocations: &[SourceAllocation],
    pods: &[PodFacts],
    subnets: &[IpNetwork],
    at_opening: Option<&BTreeMap<Family, IntervalSet>>,
) -> Allocations {
    let is_relevant = |ip: IpAddr| {
        let old = at_opening.is_none_or(|known| {
            known
                .get(&Family::of(ip))
                .is_some_and(|set| set.contains(bits(ip)))
        });
        old && subnets.iter().any(|subnet| subnet.contains(ip))
    };
    let mut in_use: BTreeMap<IpAddr, SourceAllocation> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod.is_running) {
        for interface in &pod.interfaces {
            for address in interface.addresses().filter(|ip| is_relevant(*ip)) {
                in_use.insert(
                    address,
                    SourceAllocation {
                        address,
                        pod: Some(pod.name.clone()),
                        reported_by: format!("{NETWORK_STATUS} {}", interface.name),
                    },
                );
            }
        }
    }
    // An ended pod may keep its namespace for a moment. The DEL of the old plugin removes its allocation.
    let exists = |name: &str| pods.iter().any(|pod| pod.name == name);
    let mut ended = Vec::new();
    for one in allocations.iter().filter(|one| is_relevant(one.address)) {
        if in_use.contains_key(&one.address) {
            continue;
        }
        if one.pod.as_deref().is_none_or(exists) {
            in_use.insert(one.address, one.clone());
        } else {
            ended.push(one.clone());
        }
    }
    ended.retain(|one| !in_use.contains_key(&one.address));
    ended.sort_by_key(|one| one.address);
    ended.dedup_by_key(|one| one.address);
    Allocations {
        in_use: in_use.into_values().collect(),
        ended,
    }
}
