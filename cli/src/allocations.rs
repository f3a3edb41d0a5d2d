// SPDX-License-Identifier: Apache-2.0
//! Finds the allocation of each address. There are three kinds of evidence: the leases of this node, the address objects of the
//! cluster, and the status that Multus wrote to each pod. An address in a node's block has no object, so for other nodes
//! the status is the only evidence.

use crate::cluster::snapshot::{Block, Pool, Snapshot, bound_pod, kept_for, work};
use crate::leases::NodeLease;
use api::{AddressState, BlockState};
use ipam::pool::AddressPlace;
use serde::Serialize;
use std::collections::HashMap;
use std::net::IpAddr;

/// An allocated address, and the pod that has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Allocation {
    /// The address.
    pub address: IpAddr,
    /// The pool of the address; `None` for a network with its own ranges, or if no pool has the address.
    pub pool: Option<String>,
    /// The node.
    pub node: Option<String>,
    /// `namespace/name` of the pod, if known.
    pub pod: Option<String>,
    /// The name of the interface in the pod.
    pub interface: Option<String>,
    /// The network.
    pub network: Option<String>,
    /// `CNI_CONTAINERID`.
    #[serde(rename = "containerID")]
    pub container_id: Option<String>,
    /// Since when: the time of the lease or of the object, otherwise the start of the pod.
    pub since: Option<String>,
    /// No pod has the address, and it is kept for this pod.
    pub kept: bool,
    /// Where this allocation was found.
    pub reported_by: Vec<Evidence>,
}

/// Where an allocation was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// A lease of this node.
    Lease,
    /// An `IPAddress`.
    Object,
    /// The pod's annotation.
    NetworkStatus,
}

impl Allocation {
    /// Where it was found, with the names of tables.
    pub fn reporters(&self) -> Vec<&'static str> {
        self.reported_by
            .iter()
            .map(|evidence| evidence.as_str())
            .collect()
    }
}

impl Evidence {
    /// The name in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::Object => "IPAddress",
            Self::NetworkStatus => "network-status",
        }
    }
}

/// The allocations of all pools, sorted by address. `here` is the node that has the `leases`.
pub fn allocations(snapshot: &Snapshot, leases: &[NodeLease], here: Option<&str>) -> Vec<Allocation> {
    let mut by_address: HashMap<IpAddr, Vec<Allocation>> = HashMap::new();
    let leases = leases.iter().flat_map(|lease| from_lease(lease, here));
    for one in from_objects(snapshot).chain(leases).chain(from_pods(snapshot)) {
        merge(by_address.entry(one.address).or_default(), one);
    }
    let mut all: Vec<Allocation> = by_address.into_values().flatten().collect();
    all.sort_by(|a, b| (a.address, &a.pool, &a.pod).cmp(&(b.address, &b.pool, &b.pod)));
    all
}

fn from_objects(snapshot: &Snapshot) -> impl Iterator<Item = Allocation> {
    snapshot.addresses.iter().map(|(ip, object)| {
        let spec = &object.spec;
        let attachment = spec.attachment.as_ref();
        Allocation {
            address: *ip,
            pool: Some(spec.pool.clone()),
            node: Some(spec.node.node.clone()),
            pod: bound_pod(object).or_else(|| kept_for(object)),
            interface: attachment.map(|attachment| attachment.ifname.clone()),
            network: attachment.map(|attachment| attachment.network.clone()),
            container_id: attachment.map(|attachment| attachment.container_id.clone()),
            since: spec.since.as_ref().map(|time| time.0.to_string()),
            kept: spec.state == AddressState::Kept,
            reported_by: vec![Evidence::Object],
        }
    })
}

fn from_lease(of_node: &NodeLease, here: Option<&str>) -> Vec<Allocation> {
    let lease = &of_node.lease;
    let one = |address: IpAddr| Allocation {
        address,
        pool: of_node.pool.as_ref().map(ToString::to_string),
        node: here.map(str::to_owned),
        pod: lease.sandbox.pod.clone(),
        interface: Some(lease.owner.ifname.to_string()),
        network: Some(lease.network.clone()),
        container_id: Some(lease.owner.container_id.to_string()),
        since: Some(lease.since.clone()),
        kept: false,
        reported_by: vec![Evidence::Lease],
    };
    lease.addresses().map(one).collect()
}

/// The allocations of pools according to the status of pods.
fn from_pods(snapshot: &Snapshot) -> Vec<Allocation> {
    let mut all = Vec::new();
    for pod in snapshot.pods.iter().filter(|pod| pod.is_running) {
        for interface in &pod.interfaces {
            let is_ours = snapshot.networks.contains_key(&interface.name);
            for address in interface.addresses() {
                let pool = snapshot.pool_of(address, &interface.name, pod.node.as_deref());
                if pool.is_none() && !is_ours {
                    continue;
                }
                all.push(Allocation {
                    address,
                    pool: pool.map(|pool| pool.name().to_owned()),
                    node: pod.node.clone(),
                    pod: Some(pod.name.clone()),
                    interface: Some(interface.interface.clone()),
                    network: Some(interface.name.clone()),
                    container_id: None,
                    since: pod.since.clone(),
                    kept: false,
                    reported_by: vec![Evidence::NetworkStatus],
                });
            }
        }
    }
    all
}

/// Adds an allocation to those of the same address. Two reports of one allocation become one entry. Contradicting
/// reports both stay.
fn merge(all: &mut Vec<Allocation>, new: Allocation) {
    work(all.len());
    let same = |known: &&mut Allocation| {
        (known.pool == new.pool || known.pool.is_none() || new.pool.is_none())
            && (known.pod == new.pod || known.pod.is_none() || new.pod.is_none())
            && (known.interface == new.interface || known.interface.is_none() || new.interface.is_none())
            && (known.container_id == new.container_id
                || known.container_id.is_none()
                || new.container_id.is_none())
    };
    let Some(known) = all.iter_mut().find(same) else {
        all.push(new);
        return;
    };
    // The time of a lease is that of the attachment. The time of a pod is only when its node started it.
    if new.reported_by == [Evidence::Lease] {
        known.since = new.since.or_else(|| known.since.take());
    }
    known.pool = known.pool.take().or(new.pool);
    known.pod = known.pod.take().or(new.pod);
    known.node = known.node.take().or(new.node);
    known.interface = known.interface.take().or(new.interface);
    known.container_id = known.container_id.take().or(new.container_id);
    known.reported_by.extend(new.reported_by);
    known.reported_by.sort_unstable();
}

/// Describes an address without an allocation: excluded, reserved or free, and in which node's block.
pub fn describe_unallocated(snapshot: &Snapshot, ip: IpAddr) -> String {
    let covering: Vec<&Pool> = snapshot.pools.iter().filter(|pool| pool.covers(ip)).collect();
    if covering.is_empty() {
        return format!("{ip} is in no pool");
    }
    let sentences: Vec<String> = covering
        .iter()
        .map(|pool| describe_in_pool(snapshot, pool, ip))
        .collect();
    sentences.join("\n")
}

fn describe_in_pool(snapshot: &Snapshot, pool: &Pool, ip: IpAddr) -> String {
    let name = pool.name();
    let accepted = match &pool.accepted {
        Ok(accepted) => accepted,
        Err(why) => return format!("{ip} is in a subnet of pool {name}, whose spec is invalid: {why}"),
    };
    match accepted.ranges.place(ip) {
        AddressPlace::Outside => {
            format!("{ip} is in a subnet of pool {name} but outside its ranges: it is never allocated")
        }
        AddressPlace::Kept(reason) => format!("pool {name} never allocates {ip}: it is {reason}"),
        _ if accepted
            .ranges
            .reserved(ipam::range::Family::of(ip))
            .contains(ipam::range::bits(ip)) =>
        {
            let of_set = if accepted.is_sticky() && accepted.has_blocks() {
                ", and to pods of StatefulSets"
            } else {
                ""
            };
            format!(
                "{ip} is free; pool {name} allocates it only to a pod that requests it (spec.reserved){of_set}"
            )
        }
        _ => {
            let block = snapshot
                .blocks_with(ip)
                .find(|block| block.space() == pool.space());
            match block {
                Some(block) => describe_in_block(block, ip),
                None => format!("{ip} is free in pool {name}: no node has claimed a block with it"),
            }
        }
    }
}

/// Describes an address of a block that no pod is known to have.
fn describe_in_block(block: &Block, ip: IpAddr) -> String {
    let spec = &block.object.spec;
    let (node, at) = (
        &spec.owner.node,
        format!("pool {}, block {}", spec.pool, block.cidr),
    );
    let unseen = format!(
        "An attachment without a pod, such as one of cnitool, is visible on that node only: rdmanet addresses {ip}"
    );
    match spec.state {
        BlockState::Active => format!(
            "{ip} is free according to the cluster: node {node} allocates it to its pods ({at}). {unseen}"
        ),
        BlockState::Draining => format!(
            "{ip} is free according to the cluster, and not allocated now: node {node} returns its block when no pod has an address of it ({at}). {unseen}"
        ),
        BlockState::Shared => format!(
            "{ip} is free according to the cluster: every node allocates it, because its block is shared ({at})"
        ),
        BlockState::Orphaned => format!(
            "{ip} is not allocated now: node {node}, which had its block, is gone, and a container of that machine may still use the address ({at}). The block is freed after the quarantine unless its last report has addresses in use; if the machine is off: rdmanet release --node {node}"
        ),
    }
}

#[cfg(test)]
mod tests;
