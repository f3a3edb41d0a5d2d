// SPDX-License-Identifier: Apache-2.0
//! Finds the holder of each address. There are three sources: the leases of this node, the address objects of the
//! cluster, and the status that Multus wrote to each pod. An address in a node's block has no object, so for other nodes
//! the pod is the only source.

use crate::cluster::snapshot::{Pool, Snapshot};
use crate::leases::Held;
use api::AddressState;
use ipam::pool::AddressPlace;
use serde::Serialize;
use std::collections::HashMap;
use std::net::IpAddr;

/// The holder of an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// The address.
    pub address: IpAddr,
    /// The pool of the address; `None` for a network with its own ranges, or if no pool has the address.
    pub pool: Option<String>,
    /// The node.
    pub node: Option<String>,
    /// `namespace/name` of the pod, if a source names it.
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
    /// The sources that report this holder.
    pub told_by: Vec<Witness>,
}

/// A source that reports the holder of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Witness {
    /// A lease of this node.
    Lease,
    /// An `IPAddress`.
    Object,
    /// The pod's annotation.
    NetworkStatus,
}

impl Witness {
    /// The name of the source for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::Object => "IPAddress",
            Self::NetworkStatus => "network-status",
        }
    }
}

/// The holders of all pool addresses, sorted by address. `here` is the node that has the `leases`.
pub fn holders(snapshot: &Snapshot, leases: &[Held], here: Option<&str>) -> Vec<Holder> {
    let mut by_address: HashMap<IpAddr, Vec<Holder>> = HashMap::new();
    let leases = leases.iter().flat_map(|held| of_lease(held, here));
    for one in objects(snapshot).chain(leases).chain(of_pods(snapshot)) {
        merge(by_address.entry(one.address).or_default(), one);
    }
    let mut all: Vec<Holder> = by_address.into_values().flatten().collect();
    all.sort_by(|a, b| (a.address, &a.pool, &a.pod).cmp(&(b.address, &b.pool, &b.pod)));
    all
}

fn objects(snapshot: &Snapshot) -> impl Iterator<Item = Holder> {
    snapshot.addresses.iter().map(|(ip, object)| {
        let spec = &object.spec;
        let pod = spec
            .pod
            .as_ref()
            .map(|pod| format!("{}/{}", pod.namespace, pod.name));
        let waits_for = spec
            .holder
            .as_ref()
            .map(|holder| format!("{}/{}", holder.namespace, holder.pod));
        let attachment = spec.attachment.as_ref();
        Holder {
            address: *ip,
            pool: Some(spec.pool.clone()),
            node: Some(spec.node.node.clone()),
            pod: pod.or(waits_for),
            interface: attachment.map(|attachment| attachment.ifname.clone()),
            network: attachment.map(|attachment| attachment.network.clone()),
            container_id: attachment.map(|attachment| attachment.container_id.clone()),
            since: spec.since.as_ref().map(|time| time.0.to_string()),
            kept: spec.state == AddressState::Kept,
            told_by: vec![Witness::Object],
        }
    })
}

fn of_lease(held: &Held, here: Option<&str>) -> Vec<Holder> {
    let lease = &held.lease;
    let one = |address: IpAddr| Holder {
        address,
        pool: held.pool.as_ref().map(ToString::to_string),
        node: here.map(str::to_owned),
        pod: lease.sandbox.pod.clone(),
        interface: Some(lease.owner.ifname.to_string()),
        network: Some(lease.network.clone()),
        container_id: Some(lease.owner.container_id.to_string()),
        since: Some(lease.since.clone()),
        kept: false,
        told_by: vec![Witness::Lease],
    };
    lease.addresses().map(one).collect()
}

/// The holders according to the status of pods, for addresses of pools.
fn of_pods(snapshot: &Snapshot) -> Vec<Holder> {
    let mut all = Vec::new();
    for pod in snapshot.pods.iter().filter(|pod| pod.lives) {
        for interface in &pod.interfaces {
            let ours = snapshot.networks.contains_key(&interface.name);
            for address in interface.addresses() {
                let pool = snapshot.pool_of(address, &interface.name, pod.node.as_deref());
                if pool.is_none() && !ours {
                    continue;
                }
                all.push(Holder {
                    address,
                    pool: pool.map(|pool| pool.name().to_owned()),
                    node: pod.node.clone(),
                    pod: Some(pod.name.clone()),
                    interface: Some(interface.interface.clone()),
                    network: Some(interface.name.clone()),
                    container_id: None,
                    since: pod.since.clone(),
                    kept: false,
                    told_by: vec![Witness::NetworkStatus],
                });
            }
        }
    }
    all
}

/// Adds a holder to those of the same address. Two reports of one holder become one entry. Contradicting reports both
/// stay.
fn merge(all: &mut Vec<Holder>, new: Holder) {
    let same = |known: &&mut Holder| {
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
    if new.told_by == [Witness::Lease] {
        known.since = new.since.or_else(|| known.since.take());
    }
    known.pool = known.pool.take().or(new.pool);
    known.pod = known.pod.take().or(new.pod);
    known.node = known.node.take().or(new.node);
    known.interface = known.interface.take().or(new.interface);
    known.container_id = known.container_id.take().or(new.container_id);
    known.told_by.extend(new.told_by);
    known.told_by.sort_unstable();
}

/// Describes an address without a holder: excluded, reserved or free, and in which node's block.
pub fn standing(snapshot: &Snapshot, ip: IpAddr) -> String {
    let covering: Vec<&Pool> = snapshot.pools.iter().filter(|pool| pool.covers(ip)).collect();
    if covering.is_empty() {
        return format!("{ip} is in no pool");
    }
    let sentences: Vec<String> = covering
        .iter()
        .map(|pool| standing_in(snapshot, pool, ip))
        .collect();
    sentences.join("\n")
}

fn standing_in(snapshot: &Snapshot, pool: &Pool, ip: IpAddr) -> String {
    let name = pool.name();
    let accepted = match &pool.accepted {
        Ok(accepted) => accepted,
        Err(why) => return format!("{ip} is in a subnet of pool {name}, which cannot be used: {why}"),
    };
    match accepted.ranges.place(ip) {
        AddressPlace::Outside => {
            format!("{ip} is in a subnet of pool {name} and outside its ranges: never given")
        }
        AddressPlace::Kept(what) => format!("{ip} is never given by pool {name}: it is {what}"),
        _ if accepted
            .ranges
            .reserved(ipam::range::Family::of(ip))
            .contains(ipam::range::bits(ip)) =>
        {
            format!(
                "{ip} is free; pool {name} gives it only to a pod that asks for it by name (spec.reserved)"
            )
        }
        _ => {
            let block = snapshot
                .blocks_with(ip)
                .find(|block| block.space() == pool.space());
            match block {
                Some(block) => format!(
                    "{ip} is free as far as the cluster tells: node {} gives it to its pods (pool {}, block {}). An attachment without a pod, such as cnitool's, is told on that node only: rdmanet addresses {ip}",
                    block.object.spec.owner.node, block.object.spec.pool, block.cidr
                ),
                None => format!("{ip} is free in pool {name}: no node has claimed a block with it"),
            }
        }
    }
}

#[cfg(test)]
mod tests;
