// SPDX-License-Identifier: Apache-2.0
//! Which addresses of the old system somebody still has.
//!
//! Holds always: an address counts as living if anybody says so, the old system or a pod; it ends only when the pod that the old
//! system names does not exist and no living pod says it has the address.

use super::group::Allocation;
use crate::cluster::pods::PodFacts;
use ipam::interval::IntervalSet;
use ipam::range::{Family, bits};
use ipnetwork::IpNetwork;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What an allocation that a pod itself tells of begins its witness with.
pub const NETWORK_STATUS: &str = "network-status of";

/// The addresses of a pool's old system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Those that somebody has.
    pub living: Vec<Allocation>,
    /// Those whose pods are gone.
    pub ended: Vec<Allocation>,
}

/// Tells the living from those that have ended, in `subnets`; if the pool is open, only of addresses that were `known` when it was
/// opened: every other one is given by ourselves.
pub fn held(
    allocations: &[Allocation],
    pods: &[PodFacts],
    subnets: &[IpNetwork],
    known: Option<&BTreeMap<Family, IntervalSet>>,
) -> Held {
    let meant = |ip: IpAddr| {
        let old = known.is_none_or(|known| {
            known
                .get(&Family::of(ip))
                .is_some_and(|set| set.contains(bits(ip)))
        });
        old && subnets.iter().any(|subnet| subnet.contains(ip))
    };
    let mut living: BTreeMap<IpAddr, Allocation> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod.lives) {
        for interface in &pod.interfaces {
            for address in interface.addresses().filter(|ip| meant(*ip)) {
                living.insert(
                    address,
                    Allocation {
                        address,
                        pod: Some(pod.name.clone()),
                        told_by: format!("{NETWORK_STATUS} {}", interface.name),
                    },
                );
            }
        }
    }
    // One that has ended may have its namespace for a moment yet; the old system's own DEL takes its word back.
    let exists = |name: &str| pods.iter().any(|pod| pod.name == name);
    let mut ended = Vec::new();
    for one in allocations.iter().filter(|one| meant(one.address)) {
        if living.contains_key(&one.address) {
            continue;
        }
        if one.pod.as_deref().is_none_or(exists) {
            living.insert(one.address, one.clone());
        } else {
            ended.push(one.clone());
        }
    }
    ended.retain(|one| !living.contains_key(&one.address));
    ended.sort_by_key(|one| one.address);
    ended.dedup_by_key(|one| one.address);
    Held {
        living: living.into_values().collect(),
        ended,
    }
}
