// SPDX-License-Identifier: Apache-2.0
//! The requests to the agent and its answers.

use crate::pool::PoolName;
use crate::range::Family;
use crate::store::Sandbox;
use common::cni::{Attachment, Code, Error};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;

/// The longest message in bytes, with its newline. An answer has few addresses and a sentence or two.
pub const MESSAGE_MAX: usize = 64 << 10;

/// The time limit of a request. The agent sends one or two requests to the API server, of some milliseconds
/// each. kubelet allows minutes for a sandbox, and retries.
pub const LIMIT: Duration = Duration::from_secs(5);

/// The operation that the agent performs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verb {
    /// Makes sure that this node has a free address of each of `families`, with one more block if necessary,
    /// and that `pool.json` lists the block. Answer: [`Reply::Local`], or [`Reply::Allocate`] if no block is
    /// free but shared addresses are.
    Claim,
    /// Allocates each of `ips`, or one address of each of `families`, to this attachment in the cluster.
    /// Answer: [`Reply::Addresses`], or [`Reply::Local`] if this node's blocks can serve the attachment.
    Allocate,
    /// Looks at once for addresses that this attachment has released. The plugin does not wait for the
    /// answer.
    Release,
    /// Reports whether [`Verb::Claim`] would succeed, and claims nothing.
    Status,
}

/// A request to the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// The operation.
    pub verb: Verb,
    /// The pool.
    pub pool: PoolName,
    /// The attachment; `None` for [`Verb::Status`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment: Option<AskedBy>,
    /// The pod, if the runtime named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Pod>,
    /// The requested addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<IpAddr>,
    /// The families of which any address will do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<Family>,
    /// For [`Verb::Allocate`]: whether an address whose lease on this node has ended a moment ago will do. Set for a main
    /// plugin that probes, once no other address is left.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub early: bool,
    /// How many milliseconds the plugin waits for the answer; [`LIMIT`] if absent. Set by [`Client::ask`].
    ///
    /// [`Client::ask`]: super::Client::ask
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<u64>,
}

impl Request {
    /// A request without attachment, pod, addresses and families.
    pub fn new(verb: Verb, pool: PoolName) -> Self {
        Self {
            verb,
            pool,
            attachment: None,
            pod: None,
            ips: Vec::new(),
            families: Vec::new(),
            early: false,
            within_ms: None,
        }
    }

    /// How long the plugin waits for the answer.
    pub fn within(&self) -> Duration {
        self.within_ms
            .map_or(LIMIT, |millis| Duration::from_millis(millis).min(LIMIT))
    }
}

/// An attachment and the network it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedBy {
    /// Container and interface.
    #[serde(flatten)]
    pub owner: Attachment,
    /// The name of the network configuration.
    pub network: String,
}

/// A pod, as the runtime named it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// The agent's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "camelCase")]
pub enum Reply {
    /// The plugin reads `pool.json` again and allocates from this node's blocks.
    Local,
    /// The plugin sends [`Verb::Allocate`] for these families; for all families if the list is empty.
    Allocate {
        /// The families that no block of this node has an address of.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        families: Vec<Family>,
    },
    /// The attachment owns these addresses in the cluster now.
    Addresses {
        /// In the order of `ips`, then of `families`.
        addresses: Vec<IpAddr>,
    },
    /// Done, or recorded to be done: the answer to [`Verb::Release`] and [`Verb::Status`].
    Done,
    /// The agent refused the request.
    Refused {
        /// The CNI error code.
        code: u32,
        /// The CNI error message. The plugin adds the pool's name if the message lacks it.
        msg: String,
        /// The CNI error details.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        details: String,
        /// The fallback pools of the pool: the plugin of a node without `pool.json` cannot read them there.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fallback: Vec<PoolName>,
    },
}

impl Reply {
    /// The refusal with the code, message and details of `error`.
    pub fn refused(error: Error) -> Self {
        Self::Refused {
            code: error.code.0,
            msg: error.msg,
            details: error.details,
            fallback: Vec::new(),
        }
    }

    /// The refusal with the fallback pools of its pool.
    #[must_use]
    pub fn with_fallback(mut self, pools: &[PoolName]) -> Self {
        if let Self::Refused { fallback, .. } = &mut self {
            *fallback = pools.to_vec();
        }
        self
    }

    /// The fallback pools of a refusal.
    pub fn fallback(&self) -> &[PoolName] {
        match self {
            Self::Refused { fallback, .. } => fallback,
            _ => &[],
        }
    }

    /// The answer, or the agent's refusal as an error.
    ///
    /// # Errors
    /// The agent's refusal.
    pub fn accepted(self) -> Result<Self, Error> {
        match self {
            Self::Refused {
                code, msg, details, ..
            } => Err(Error::new(Code(code), msg).with_details(details)),
            other => Ok(other),
        }
    }
}

impl Pod {
    /// The pod of `sandbox`, if the runtime named it.
    pub fn of(sandbox: &Sandbox) -> Option<Self> {
        let (namespace, name) = sandbox.pod.as_ref()?.split_once('/')?;
        Some(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: sandbox.uid.clone(),
        })
    }
}

/// 4 or 6.
impl Serialize for Family {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(match self {
            Self::V4 => 4,
            Self::V6 => 6,
        })
    }
}

impl<'de> Deserialize<'de> for Family {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u8::deserialize(deserializer)? {
            4 => Ok(Self::V4),
            6 => Ok(Self::V6),
            other => Err(serde::de::Error::custom(format!(
                "IP family {other}, want 4 or 6"
            ))),
        }
    }
}
