// SPDX-License-Identifier: Apache-2.0
//! `pool.json`: a pool as the node's plugins need to know it.

use super::PoolName;
use common::cni::{Code, Dns, Error, Route};
use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// The format that this build writes, and the newest that it reads.
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
    /// The number of the accepted spec that the rest is from (`status.acceptedGeneration`).
    pub generation: i64,
    /// This node's name.
    pub node: String,
    /// `metadata.uid` of the Node: a node that joins again under its old name has none of the old one's blocks.
    #[serde(rename = "nodeUID")]
    pub node_uid: String,
    /// The boot (random(4), `boot_id`) during which the agent last knew the blocks to be this node's.
    #[serde(rename = "bootID")]
    pub boot_id: String,
    /// For how many seconds after this node is gone from the cluster its blocks are given to nobody.
    pub quarantine_seconds: u32,
    /// For how many seconds a released address rests.
    pub cooldown_seconds: u32,
    /// Who decides on addresses.
    #[serde(default)]
    pub allocation: Allocation,
    /// The ranges of the pool.
    pub ranges: Vec<PoolRange>,
    /// Addresses that are only given by name, each by way of the agent: addresses, subnets and `first-last`.
    #[serde(default)]
    pub reserved: Vec<String>,
    /// Routes for every attachment.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// Name resolution for every attachment.
    #[serde(default)]
    pub dns: Dns,
    /// The Kubernetes namespaces whose pods may have addresses; absent: all of them.
    #[serde(default)]
    pub namespaces: Option<Vec<String>>,
    /// The parts of the ranges that are this node's.
    pub blocks: Vec<Block>,
    /// Of several pools that a configuration names, those with the greater number are tried first.
    #[serde(default)]
    pub priority: i32,
    /// Pools to try when this one is exhausted, in this order.
    #[serde(default)]
    pub fallback: Vec<PoolName>,
    /// The pool in the whole cluster, as last seen by the agent; only ever shown to people.
    #[serde(default)]
    pub counters: Counters,
}

/// Who decides on the addresses of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Allocation {
    /// The plugin, within this node's blocks.
    #[default]
    Blocks,
    /// The agent, asked for every attachment: pools without blocks.
    Agent,
    /// The plugin, except for pods that may be of a `StatefulSet`, which keep their addresses: those by way of the agent.
    Sticky,
}

/// One range of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolRange {
    /// The subnet; its length becomes that of each address, and its edges are kept back.
    pub subnet: IpNetwork,
    /// The first address, if not the subnet's first host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<IpAddr>,
    /// The last address, if not the subnet's last host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<IpAddr>,
    /// The gateway to report and to keep back; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Never handed out: addresses, subnets and `first-last`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
}

/// A block of this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Block {
    /// The name of the `IPBlock`.
    pub name: String,
    /// Its addresses, of which those outside every range, excluded or kept back are never given.
    pub cidr: IpNetwork,
    /// How often it has changed hands.
    pub epoch: u64,
    /// What may be done with it.
    pub state: BlockState,
}

/// What may be done with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BlockState {
    /// Its addresses are given to pods.
    Active,
    /// It is to be returned: nothing new is given.
    Draining,
    /// It is about to be shared: nothing new is given.
    Sharing,
    /// Each of its addresses is an object of its own that any node's agent may make.
    Shared,
}

/// A pool in numbers of addresses; `u64::MAX` stands for more than that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// All that the pool could give.
    pub size: u64,
    /// Held by attachments.
    pub used: u64,
    /// Neither held nor in a block of any node.
    pub free: u64,
}

impl PoolFile {
    /// Reads the content of `path`.
    ///
    /// # Errors
    /// [`Code::UNSUPPORTED_FIELD`] for a newer format, [`Code::STORE_CORRUPT`] for anything that no agent writes.
    pub fn read(content: &[u8], path: &Path) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let corrupt = |what: &dyn std::fmt::Display| {
            Error::new(
                Code::STORE_CORRUPT,
                format!(
                    "{} is damaged or foreign: {what}; remove the file, and this node's agent writes it anew from the cluster",
                    path.display()
                ),
            )
        };
        let Format { format } = serde_json::from_slice(content).map_err(|e| corrupt(&e))?;
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
            .map_err(|e| corrupt(&format!("{}: {}", e.path(), e.inner())))
    }

    /// The content of the file.
    ///
    /// # Errors
    /// [`Code::INTERNAL`]: JSON can hold every value of these types.
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

    /// The blocks that addresses are given from.
    pub fn active(&self) -> impl Iterator<Item = &Block> {
        self.blocks
            .iter()
            .filter(|block| block.state == BlockState::Active)
    }

    /// Whether the agent decides on the addresses of `pod`, `namespace/name` if the runtime named it. A pod of a
    /// `StatefulSet` is called after it, with `-` and an ordinal; what else is called so is for the agent to tell.
    pub fn asks_agent(&self, pod: Option<&str>) -> bool {
        match self.allocation {
            Allocation::Blocks => false,
            Allocation::Agent => true,
            Allocation::Sticky => pod.is_some_and(has_ordinal),
        }
    }

    /// Whether pods of `namespace` may have addresses; a pod of no known namespace may only where all may.
    pub fn admits(&self, namespace: Option<&str>) -> bool {
        self.namespaces
            .as_ref()
            .is_none_or(|names| namespace.is_some_and(|namespace| names.iter().any(|name| name == namespace)))
    }
}

fn has_ordinal(pod: &str) -> bool {
    pod.rsplit_once('-')
        .is_some_and(|(_, ordinal)| !ordinal.is_empty() && ordinal.bytes().all(|b| b.is_ascii_digit()))
}
