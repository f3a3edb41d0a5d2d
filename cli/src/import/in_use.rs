// SPDX-License-Identifier: Apache-2.0
//! Finds which addresses of the old plugin are still in use.
//!
//! Invariant: an address is in use if the old plugin or a pod reports it. It has ended only if the pod that the old
//! plugin names does not exist and no running pod reports the address.
//!
//! Invariant: an allocation that the old plugin made after the pool was opened is reported, and is in use from then on.

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
    /// Those in use that the old plugin made after the pool was opened.
    pub late: Vec<SourceAllocation>,
    /// The allocations whose pods are gone.
    pub ended: Vec<SourceAllocation>,
}

/// Separates the allocations in `subnets` that are in use from those that have ended. If the pool is open, an address that
/// was not known when it was opened is an address of our own plugin, unless the old plugin has an allocation of it for a
/// living pod.
pub fn classify(
    allocations: &[SourceAllocation],
    pods: &[PodFacts],
    subnets: &[IpNetwork],
    at_opening: Option<&BTreeMap<Family, IntervalSet>>,
) -> Allocations {
    let is_known = |ip: IpAddr| {
        at_opening.is_none_or(|known| {
            known
                .get(&Family::of(ip))
                .is_some_and(|set| set.contains(bits(ip)))
        })
    };
    let is_inside = |ip: IpAddr| subnets.iter().any(|subnet| subnet.contains(ip));
    let mut in_use: BTreeMap<IpAddr, SourceAllocation> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod.is_running) {
        for interface in &pod.interfaces {
            for address in interface.addresses().filter(|ip| is_inside(*ip) && is_known(*ip)) {
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
    let (mut late, mut ended) = (Vec::new(), Vec::new());
    for one in allocations.iter().filter(|one| is_inside(one.address)) {
        if in_use.contains_key(&one.address) {
            continue;
        }
        if !is_known(one.address) {
            if may_live(one, pods) {
                in_use.insert(one.address, one.clone());
                late.push(one.clone());
            }
        } else if one.pod.as_deref().is_none_or(exists) {
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
        late,
        ended,
    }
}

/// Whether the pod of an allocation may have its address. A pod that reports other addresses only has its name from an
/// earlier pod, as in a `StatefulSet`.
fn may_live(one: &SourceAllocation, pods: &[PodFacts]) -> bool {
    let Some(name) = &one.pod else { return true };
    pods.iter()
        .filter(|pod| pod.name == *name)
        .any(|pod| pod.interfaces.is_empty() || pod.interface_with(one.address).is_some())
}
