// SPDX-License-Identifier: Apache-2.0
//! A snapshot of everything in the cluster about addresses. All questions about the snapshot are pure.
//!
//! The lists are read one after the other while pods come and go. So `check` reads a second snapshot before it reports a
//! contradiction.

use super::full_name;
use super::pods::PodFacts;
use super::{list, list_if_known};
use crate::output::CommandError;
use api::accepted_pool::AcceptedPool;
use api::links::kind::LINKS_READY;
use api::requests::{NodeCondition, conditions};
use api::{IpAddress, IpBlock, IpPool, IpPoolSpec, Range, condition};
use ipnetwork::IpNetwork;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client, ResourceExt};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};

/// A snapshot of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Pools, by name.
    pub pools: Vec<Pool>,
    /// Blocks, by family and first address.
    blocks: Objects<Block>,
    /// The prefix lengths of the blocks, by family: whether it is IPv6, and the length in bits.
    prefixes: BTreeSet<(bool, u8)>,
    /// Address objects, by address.
    pub addresses: Objects<(IpAddr, IpAddress)>,
    /// The UID of each node, by name.
    pub nodes: BTreeMap<String, String>,
    /// The condition about links that the agent of each node wrote, by node. Nodes without such links are missing.
    pub links: BTreeMap<String, NodeCondition>,
    /// The nodes with a pod of the agent, found by the label in our manifests, and whether it is ready.
    pub agents: BTreeMap<String, bool>,
    /// All pods, with or without networks. A pod that is missing here does not exist.
    pub pods: Objects<PodFacts>,
    /// The pools that each network (`namespace/name`) allocates from.
    pub networks: BTreeMap<String, Vec<String>>,
}

/// Objects of one kind. A unit test counts each access as a visit of all of them.
#[derive(Clone, Debug)]
pub struct Objects<T>(Vec<T>);

/// A pool.
#[derive(Clone, Debug)]
pub struct Pool {
    /// The object.
    pub object: IpPool,
    /// Its ranges and blocks according to the spec, or a sentence if the spec is wrong.
    pub accepted: Result<AcceptedPool, String>,
    /// The whole subnets of its ranges. Until the current spec is accepted, those of the accepted spec count too: nodes
    /// allocate from these.
    subnets: Vec<IpNetwork>,
}

/// A block.
#[derive(Clone, Debug)]
pub struct Block {
    /// The object.
    pub object: IpBlock,
    /// Its addresses.
    pub cidr: IpNetwork,
}

impl<T> Default for Objects<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> FromIterator<T> for Objects<T> {
    fn from_iter<I: IntoIterator<Item = T>>(objects: I) -> Self {
        Self(objects.into_iter().collect())
    }
}

impl<T> Deref for Objects<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        work(self.0.len());
        &self.0
    }
}

impl<T> DerefMut for Objects<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.0
    }
}

impl Pool {
    /// The pool of `object`, with the accepted spec if there is one, otherwise with the current spec.
    pub fn of(object: IpPool) -> Self {
        let accepted = AcceptedPool::of(&object).ok().flatten();
        let accepted = accepted.map_or_else(
            || AcceptedPool::new(&object, &object.spec, 0).map_err(|e| e.msg),
            Ok,
        );
        let mut all = subnets(&object.spec.ranges);
        if let Ok(accepted) = &accepted {
            all.extend(subnets(&accepted.spec.ranges));
        }
        Self {
            subnets: all,
            object,
            accepted,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// The spec that nodes obey: the accepted one, or the current one if none is accepted.
    pub fn spec_in_force(&self) -> &IpPoolSpec {
        let accepted = self.accepted.as_ref();
        accepted.map_or(&self.object.spec, |accepted| &accepted.spec)
    }

    /// The address space.
    pub fn space(&self) -> &str {
        &self.object.spec.address_space
    }

    /// Whether `ip` lies in one of its subnets, usable or not.
    pub fn covers(&self, ip: IpAddr) -> bool {
        self.subnets.iter().any(|subnet| subnet.contains(ip))
    }
}

impl Block {
    /// The sort key of blocks: whether the block is IPv6, and its first address.
    fn start(&self) -> (bool, IpAddr) {
        (self.cidr.is_ipv6(), self.cidr.network())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// The address space, from the beginning of its name.
    pub fn space(&self) -> &str {
        self.name().rsplitn(4, '-').nth(3).unwrap_or_default()
    }
}

/// `namespace/name` of the pod that an address is bound to.
pub fn bound_pod(address: &IpAddress) -> Option<String> {
    let pod = address.spec.pod.as_ref()?;
    Some(format!("{}/{}", pod.namespace, pod.name))
}

/// `namespace/name` of the pod that an address is kept for.
pub fn kept_for(address: &IpAddress) -> Option<String> {
    let holder = address.spec.holder.as_ref()?;
    Some(format!("{}/{}", holder.namespace, holder.pod))
}

/// Whether the controller has not read the current spec of `pool`. The conditions then describe an earlier one. A deletion
/// has a generation of its own, which only the conditions have.
pub fn is_unread(pool: &IpPool) -> bool {
    let of_spec = pool.status.as_ref().and_then(|status| status.observed_generation);
    let of_ready = condition_of(pool, condition::READY).and_then(|ready| ready.observed_generation);
    of_spec.max(of_ready).unwrap_or_default() < pool.metadata.generation.unwrap_or_default()
}

/// The condition `kind` of `pool`.
pub fn condition_of<'p>(pool: &'p IpPool, kind: &str) -> Option<&'p Condition> {
    let mut conditions = pool.status.iter().flat_map(|status| &status.conditions);
    conditions.find(|one| one.type_ == kind)
}

/// Why the controller has not accepted the current spec of `pool`; `None` if it has.
pub fn unready(pool: &IpPool) -> Option<String> {
    match condition_of(pool, condition::READY).filter(|_| !is_unread(pool)) {
        Some(ready) if ready.status == "True" => None,
        Some(ready) => Some(format!(
            "its condition Ready is {} ({}): {}",
            ready.status, ready.reason, ready.message
        )),
        None => Some("the controller has not read its spec yet".to_owned()),
    }
}

/// The configuration of a definition, as text.
pub fn config_of(definition: &DynamicObject) -> Option<&str> {
    definition.data.pointer("/spec/config")?.as_str()
}

/// The subnets of `ranges`, without those that cannot be parsed. A stored range always can.
pub fn subnets(ranges: &[Range]) -> Vec<IpNetwork> {
    let parsed = ranges.iter().filter_map(|range| range.subnet.parse().ok());
    parsed.collect()
}

/// The API resource of Multus' network attachment definitions.
pub fn definition() -> ApiResource {
    let kind = GroupVersionKind::gvk("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition");
    ApiResource::from_gvk_with_plural(&kind, "network-attachment-definitions")
}

/// The network attachment definitions of the whole cluster.
pub fn definitions(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &definition())
}

/// The `ipam` section of a definition's configuration, which is one plugin or a list. In a list, it is that of the first
/// plugin that has one.
pub fn ipam_of(definition: &DynamicObject) -> Option<serde_json::Value> {
    let config: serde_json::Value = serde_json::from_str(config_of(definition)?).ok()?;
    let own = config.get("ipam").filter(|ipam| ipam.is_object()).cloned();
    own.or_else(|| {
        let plugins = config.get("plugins")?.as_array()?.iter();
        plugins
            .filter_map(|plugin| plugin.get("ipam"))
            .find(|ipam| ipam.is_object())
            .cloned()
    })
}

/// The pools that an `ipam` section of `rdma-ipam` names.
pub fn pools_of(ipam: &serde_json::Value) -> Vec<String> {
    if ipam["type"] != "rdma-ipam" {
        return Vec::new();
    }
    let many = ipam["pools"].as_array().into_iter().flatten();
    let one = ipam.get("pool").into_iter();
    let names = one.chain(many).filter_map(serde_json::Value::as_str);
    names.map(str::to_owned).collect()
}

impl Snapshot {
    /// Reads pools, blocks, addresses, nodes, networks and pods.
    ///
    /// # Errors
    /// As [`super::explain`].
    pub async fn read(client: &Client) -> Result<Self, CommandError> {
        let mut snapshot = Self::of_pools(client).await?;
        snapshot.read_pods(client, &ListParams::default()).await?;
        Ok(snapshot)
    }

    /// Reads pools, blocks, addresses and nodes, without pods and networks.
    ///
    /// # Errors
    /// As [`super::explain`].
    pub async fn of_pools(client: &Client) -> Result<Self, CommandError> {
        let all = ListParams::default();
        let pools: Vec<IpPool> = list(&Api::all(client.clone()), "IPPools", &all).await?;
        let blocks: Vec<IpBlock> = list(&Api::all(client.clone()), "IPBlocks", &all).await?;
        let addresses: Vec<IpAddress> = list(&Api::all(client.clone()), "IPAddresses", &all).await?;
        let nodes: Vec<Node> = list(&Api::all(client.clone()), "Nodes", &all).await?;
        let mut snapshot = Self::of(pools, blocks, addresses);
        let registered = nodes
            .iter()
            .map(|node| (node.name_any(), node.uid().unwrap_or_default()));
        snapshot.nodes = registered.collect();
        let links = nodes
            .iter()
            .filter_map(|node| Some((node.name_any(), conditions(node).remove(LINKS_READY)?)));
        snapshot.links = links.collect();
        Ok(snapshot)
    }

    /// A snapshot with these objects and no others.
    pub fn of(pools: Vec<IpPool>, blocks: Vec<IpBlock>, addresses: Vec<IpAddress>) -> Self {
        let mut snapshot = Self {
            pools: pools.into_iter().map(Pool::of).collect(),
            blocks: blocks
                .into_iter()
                .filter_map(|object| {
                    let cidr = object.spec.cidr.parse().ok()?;
                    Some(Block { object, cidr })
                })
                .collect(),
            addresses: addresses
                .into_iter()
                .filter_map(|object| Some((object.spec.address.parse().ok()?, object)))
                .collect(),
            ..Self::default()
        };
        snapshot.pools.sort_by(|a, b| a.name().cmp(b.name()));
        snapshot.blocks.sort_by_key(Block::start);
        let prefixes = snapshot.blocks.iter().map(|block| &block.cidr);
        snapshot.prefixes = prefixes.map(|cidr| (cidr.is_ipv6(), cidr.prefix())).collect();
        snapshot.addresses.sort_by_key(|(ip, _)| *ip);
        snapshot
    }

    /// Reads the networks, and the pods that `wanted` selects.
    ///
    /// # Errors
    /// As [`super::explain`].
    pub async fn read_pods(&mut self, client: &Client, wanted: &ListParams) -> Result<(), CommandError> {
        let definitions = list_if_known(&definitions(client), "NetworkAttachmentDefinitions").await?;
        for definition in definitions.unwrap_or_default() {
            let pools = ipam_of(&definition)
                .map(|ipam| pools_of(&ipam))
                .unwrap_or_default();
            if !pools.is_empty() {
                self.networks.insert(full_name(&definition), pools);
            }
        }
        let pods: Vec<Pod> = list(&Api::all(client.clone()), "Pods", wanted).await?;
        self.agents = agents(&pods);
        self.pods = pods.iter().map(PodFacts::of).collect();
        Ok(())
    }

    /// Whether the agent of some node is ready.
    pub fn has_any_agent(&self) -> bool {
        self.agents.values().any(|is_ready| *is_ready)
    }

    /// As [`Self::has_ready_agent`], and true if no agent is ready: such a cluster is reported once, not for each of its nodes.
    pub fn has_agent(&self, node: &str) -> bool {
        !self.has_any_agent() || self.has_ready_agent(node)
    }

    /// Whether the agent of `node` is ready.
    pub fn has_ready_agent(&self, node: &str) -> bool {
        self.agents.get(node).is_some_and(|is_ready| *is_ready)
    }

    /// The pool of this name.
    pub fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools
            .iter()
            .inspect(|_| work(1))
            .find(|pool| pool.name() == name)
    }

    /// The blocks of this pool.
    pub fn blocks_of<'s>(&'s self, pool: &'s str) -> impl Iterator<Item = &'s Block> {
        self.blocks
            .iter()
            .filter(move |block| block.object.spec.pool == pool)
    }

    /// All blocks, by family and first address.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The blocks that contain `ip`, at most one for each address space, the largest first. Costs one binary search for
    /// each block size in use.
    pub fn blocks_with(&self, ip: IpAddr) -> impl Iterator<Item = &Block> {
        let sizes = self.prefixes.iter().filter(move |(v6, _)| *v6 == ip.is_ipv6());
        sizes.flat_map(move |(v6, prefix)| {
            let cidr = IpNetwork::new(ip, *prefix);
            let first = (*v6, cidr.map_or(ip, |cidr| cidr.network()));
            let at = self.blocks.0.partition_point(|block| {
                work(1);
                block.start() < first
            });
            let same = self.blocks.0.get(at..).unwrap_or_default().iter();
            same.inspect(|_| work(1))
                .take_while(move |block| block.start() == first)
                .filter(|block| block.cidr.prefix() == *prefix)
        })
    }

    /// The pools that a network with these pools allocates from: these and, behind each, its fallback pools. The plugin tries
    /// them in this order.
    fn with_fallback(&self, named: &[String]) -> Vec<&Pool> {
        let mut all: Vec<&Pool> = Vec::new();
        let mut waiting: Vec<&String> = named.iter().rev().collect();
        while let Some(name) = waiting.pop() {
            let is_new = !all.iter().any(|pool| pool.name() == name);
            if let Some(pool) = self.pool(name).filter(|_| is_new) {
                all.push(pool);
                waiting.extend(pool.spec_in_force().fallback.iter().rev());
            }
        }
        all
    }

    /// The pool of an address on an interface of `network` on `node`. It is one of those that the network's definition allocates
    /// from: the pool of the node's block, or else of an object of this address, or else the first one with such an address.
    /// Without a definition it is the pool of the node's block, or else the only pool with such an address.
    pub fn pool_of(&self, ip: IpAddr, network: &str, node: Option<&str>) -> Option<&Pool> {
        let mut blocks = self
            .blocks_with(ip)
            .filter(|block| Some(block.object.spec.owner.node.as_str()) == node);
        if let Some(named) = self.networks.get(network) {
            let pools = self.with_fallback(named);
            let of_block = |block: &Block| pools.iter().find(|pool| pool.name() == block.object.spec.pool);
            let own = blocks.find_map(of_block);
            let of_object = || pools.iter().find(|pool| self.has_object(ip, pool.name()));
            let covering = || pools.iter().find(|pool| pool.covers(ip));
            return own.or_else(of_object).or_else(covering).copied();
        }
        if let Some(pool) = blocks.next().and_then(|block| self.pool(&block.object.spec.pool)) {
            return Some(pool);
        }
        let mut covering = self.pools.iter().filter(|pool| pool.covers(ip));
        covering.next().filter(|_| covering.next().is_none())
    }

    /// Whether an object of `pool` has the address. Costs one binary search.
    fn has_object(&self, ip: IpAddr, pool: &str) -> bool {
        let at = self.addresses.0.partition_point(|(address, _)| *address < ip);
        let same = self.addresses.0.get(at..).unwrap_or_default().iter();
        same.inspect(|_| work(1))
            .take_while(|(address, _)| *address == ip)
            .any(|(_, object)| object.spec.pool == pool)
    }

    /// The names of the address spaces.
    pub fn spaces(&self) -> BTreeSet<&str> {
        self.pools.iter().map(Pool::space).collect()
    }
}

/// The nodes of the pods of the agent, and whether one of these is ready. While a pod is replaced, a node has two.
fn agents(pods: &[Pod]) -> BTreeMap<String, bool> {
    let mut all = BTreeMap::new();
    for pod in pods {
        let label = pod.labels().get("app.kubernetes.io/name");
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        if let (Some("rdmanet-agent"), Some(node)) = (label.map(String::as_str), node) {
            *all.entry(node).or_default() |= is_ready(pod);
        }
    }
    all
}

/// Whether the kubelet reports the pod as ready, and no client has deleted it.
fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|one| one.type_ == "Ready" && one.status == "True");
    pod.metadata.deletion_timestamp.is_none() && ready.next().is_some()
}

#[cfg(test)]
thread_local! {
    /// How many objects this thread has visited, for tests of an algorithm's cost.
    pub(crate) static WORK: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts visited objects, in tests.
pub(crate) fn work(objects: usize) {
    #[cfg(test)]
    WORK.set(WORK.get() + objects);
    #[cfg(not(test))]
    let _ = objects;
}

#[cfg(test)]
mod tests;
