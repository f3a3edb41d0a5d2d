// SPDX-License-Identifier: Apache-2.0
//! Compares the results of ADD with the records of addresses: stores on nodes, and objects of the API server.

use api::{BlockState, IpAddress, IpBlock};
use ipnetwork::IpNetwork;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// An address and the pod that has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Assignment {
    /// The address.
    pub address: IpAddr,
    /// The pod's name.
    pub pod: String,
}

/// The difference between results and records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Results without a record of the same address and pod.
    pub unrecorded: usize,
    /// Records without a result of the same address and pod: addresses that leaked.
    pub leaked: usize,
}

/// The number of addresses that the results give to more than one pod.
pub fn duplicates(results: &[Assignment]) -> usize {
    let mut pods: BTreeMap<IpAddr, BTreeSet<&str>> = BTreeMap::new();
    for assignment in results {
        pods.entry(assignment.address)
            .or_default()
            .insert(&assignment.pod);
    }
    pods.values().filter(|pods| pods.len() > 1).count()
}

/// Compares the results with the records of one witness.
pub fn compare(results: &[Assignment], records: &[Assignment]) -> Difference {
    let results: BTreeSet<&Assignment> = results.iter().collect();
    let recorded: BTreeSet<&Assignment> = records.iter().collect();
    Difference {
        unrecorded: results.difference(&recorded).count(),
        // A record that exists twice leaks once, even if one of them is right.
        leaked: records.len() - results.intersection(&recorded).count(),
    }
}

/// The number of results, each with its node, that no object covers: the node does not own the block of the address, and
/// the address has no object of the node in a shared block.
pub fn uncovered(results: &[(&str, IpAddr)], blocks: &[IpBlock], addresses: &[IpAddress]) -> usize {
    let shared: BTreeSet<(&str, &str)> = addresses
        .iter()
        .map(|object| (object.spec.node.node.as_str(), object.spec.address.as_str()))
        .collect();
    let covers = |block: &IpBlock, node: &str, address: IpAddr| {
        let cidr: IpNetwork = block.spec.cidr.parse().unwrap();
        cidr.contains(address)
            && if block.spec.state == BlockState::Shared {
                shared.contains(&(node, address.to_string().as_str()))
            } else {
                block.spec.owner.node == node
            }
    };
    let covered = |&&(node, address): &&(&str, IpAddr)| {
        blocks.iter().filter(|block| covers(block, node, address)).count() == 1
    };
    results.len() - results.iter().filter(covered).count()
}

#[cfg(test)]
mod tests;
