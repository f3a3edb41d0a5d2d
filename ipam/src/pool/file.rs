// SPDX-License-Identifier: Apache-2.0
//! `pool.json`: a pool, as the plugins of a node see it.

use super::PoolName;
use crate::text::exclusions;
use common::cni::{Code, Dns, Error, Route};
use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// The format that this version writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

/// A pool on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolFile {
    /// [`FORMAT`].
    pub format: u32,
    /// The name of the `IPPool`.
    pub pool: PoolName,
    /// Its `metadata.uid`.
    pub uid: String,
    /// The generation of the accepted spec (`status.acceptedGeneration`).
    pub generation: i64,
    /// This node's name.
    pub node: String,
    /// `metadata.uid` of the Node: a node that rejoins under its old name has none of the old node's blocks.
    #[serde(rename = "nodeUID")]
    pub node_uid: String,
    /// The boot (random(4), `boot_id`) in which the agent last confirmed that the blocks are this node's.
    #[serde(rename = "bootID")]
    pub boot_id: String,
    /// How many seconds after this node has left the cluster its blocks stay unclaimed.
    pub quarantine_seconds: u32,
    /// How many seconds a released address rests.
    pub cooldown_seconds: u32,
    /// Which component decides on addresses.
    #[serde(default)]
    pub allocation: Allocation,
    /// The ranges of the pool.
    pub ranges: Vec<PoolRange>,
    /// Addresses that are allocated only on request, by the agent: addresses, subnets and `first-last`.
    #[serde(default)]
    pub reserved: Vec<String>,
    /// Routes for every attachment.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// Name resolution for every attachment.
    #[serde(default)]
    pub dns: Dns,
    /// The Kubernetes namespaces whose pods may get addresses; absent: all.
    #[serde(default)]
    pub namespaces: Option<Vec<String>>,
    /// The blocks of this node.
    pub blocks: Vec<Block>,
    /// If a configuration names several pools, those with the greater number are tried first.
    #[serde(default)]
    pub priority: i32,
    /// Pools to try in this order when this one is exhausted.
    #[serde(default)]
    pub fallback: Vec<PoolName>,
    /// The pool in the whole cluster, as last counted by the agent; only for people.
    #[serde(default)]
    pub counters: Counters,
}

/// Which component decides on the addresses of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Allocation {
    /// The plugin, within this node's blocks.
    #[default]
    Blocks,
    /// The agent, for every attachment: pools without blocks.
    Agent,
    /// The plugin, and the agent for pods that may be of a `StatefulSet`, which keep their addresses.
    Sticky,
}

/// One range of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolRange {
    /// The subnet. Each address gets its prefix length, and its edges are never allocated.
    pub subnet: IpNetwork,
    /// The first address, if not the subnet's first host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<IpAddr>,
    /// The last address, if not the subnet's last host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<IpAddr>,
    /// The gateway, which is reported and never allocated; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Never allocated: addresses, subnets and `first-last`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
}

/// A block of this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Block {
    /// The name of the `IPBlock`.
    pub name: String,
    /// Its addresses. Those outside every range, excluded or reserved are never allocated.
    pub cidr: IpNetwork,
    /// How many times it has changed hands.
    pub epoch: u64,
    /// Its state.
    pub state: BlockState,
}

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BlockState {
    /// The plugin allocates its addresses.
    Active,
    /// It is about to be returned: nothing new is allocated.
    Draining,
    /// It is about to be shared: nothing new is allocated.
    Sharing,
    /// Each of its addresses is an object of its own, which the agent of any node may create.
    Shared,
}

/// The size and usage of a pool, in addresses; `u64::MAX` stands for more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// The addresses that the pool can allocate.
    pub size: u64,
    /// Held by attachments.
    pub used: u64,
    /// Neither held nor in a node's block.
    pub free: u64,
}

impl PoolFile {
    /// Parses the content of `path`.
    ///
    /// # Errors
    /// [`Code::UNSUPPORTED_FIELD`] for a newer format, [`Code::STORE_CORRUPT`] for content that no agent
    /// writes.
    pub fn read(content: &[u8], path: &Path) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let Format { format } = serde_json::from_slice(content).map_err(|e| corrupt(path, &e.to_string()))?;
        if !(1..=FORMAT).contains(&format) {
            return Err(Error::new(
                Code::UNSUPPORTED_FIELD,
                format!(
                    "{}: format {format} is not supported, this rdma-ipam reads up to {FORMAT}; install the plugin that came with this node's agent",
                    path.display()
                ),
            ));
        }
        let mut bytes = serde_json::Deserializer::from_slice(content);
        serde_path_to_error::deserialize(&mut bytes)
            .map_err(|e| corrupt(path, &format!("{}: {}", e.path(), e.inner())))
    }

    /// The content of the file.
    ///
    /// # Errors
    /// [`Code::INTERNAL`] only: JSON can represent every value of these types.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = serde_json::to_vec_pretty(self)
            .map_err(|e| Error::caused(Code::INTERNAL, "cannot write the pool as JSON", &e))?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// How long a released address rests.
    pub fn cooldown(&self) -> Duration {
        Duration::from_secs(self.cooldown_seconds.into())
    }

    /// The blocks from which the plugin allocates.
    pub fn active(&self) -> impl Iterator<Item = &Block> {
        self.blocks
            .iter()
            .filter(|block| block.state == BlockState::Active)
    }

    /// Whether `ip` is allocated only on request. A list that no agent writes reserves nothing.
    pub fn reserves(&self, ip: IpAddr) -> bool {
        let reserved = exclusions("reserved", Some(&self.reserved)).unwrap_or_default();
        reserved
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&ip))
    }

    /// Whether the agent decides on the addresses of `pod`, which is `namespace/name` if the runtime named
    /// it. The name of a `StatefulSet` pod ends with `-` and an ordinal. The agent decides whether a pod with
    /// such a name is of one.
    pub fn asks_agent(&self, pod: Option<&str>) -> bool {
        match self.allocation {
            Allocation::Blocks => false,
            Allocation::Agent => true,
            Allocation::Sticky => pod.is_some_and(has_ordinal),
        }
    }

    /// Whether pods of `namespace` may get addresses. A pod of unknown namespace may only if all may.
    pub fn admits(&self, namespace: Option<&str>) -> bool {
        self.namespaces
            .as_ref()
            .is_none_or(|names| namespace.is_some_and(|namespace| names.iter().any(|name| name == namespace)))
    }
}

/// The error of a file that no agent writes.
pub(super) fn corrupt(path: &Path, what: &str) -> Error {
    Error::new(
        Code::STORE_CORRUPT,
        format!(
            "{} is damaged or foreign: {what}; remove the file, and this node's agent writes it anew from the cluster",
            path.display()
        ),
    )
}

fn has_ordinal(pod: &str) -> bool {
    pod.rsplit_once('-')
        .is_some_and(|(_, ordinal)| !ordinal.is_empty() && ordinal.bytes().all(|b| b.is_ascii_digit()))
}
