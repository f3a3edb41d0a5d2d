// SPDX-License-Identifier: Apache-2.0
//! The messages.

use super::LIMIT;
use crate::pool::PoolName;
use crate::range::Family;
use crate::store::Sandbox;
use common::cni::{Attachment, Code, Error};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;

/// The longest message in bytes, its newline included. An answer has few addresses and a sentence or two.
pub const MESSAGE_MAX: usize = 64 << 10;

/// What the agent is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verb {
    /// See to it that this node has a free address of each of `families`, by one more block if need be, and that
    /// `pool.json` says so. Answered by [`Reply::Local`], or [`Reply::Allocate`] where no block is to be had but shared
    /// addresses are.
    Claim,
    /// Make each of `ips`, or one address of each of `families`, this attachment's own in the cluster. Answered by
    /// [`Reply::Addresses`], or [`Reply::Local`] when the attachment may be served from this node's blocks.
    Allocate,
    /// Look at once for addresses that this attachment does not hold any more. Nobody waits for the answer.
    Release,
    /// Say whether [`Verb::Claim`] would succeed, and claim nothing.
    Status,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// What to do.
    pub verb: Verb,
    /// In which pool.
    pub pool: PoolName,
    /// For which attachment; none for [`Verb::Status`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment: Option<AskedBy>,
    /// Of which pod, as far as the runtime said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Pod>,
    /// Addresses that are asked for by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<IpAddr>,
    /// Families of which any address will do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<Family>,
    /// For how many milliseconds the answer is waited for; [`LIMIT`] if it does not say. Set by [`Client::ask`].
    ///
    /// [`Client::ask`]: super::Client::ask
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<u64>,
}

impl Request {
    /// For how long the answer is waited for.
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

/// A pod as the runtime named it.
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

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "camelCase")]
pub enum Reply {
    /// Read `pool.json` again and allocate from this node's blocks.
    Local,
    /// Ask for these families again, with [`Verb::Allocate`]; for all if there are none.
    Allocate {
        /// Those that no block of this node has an address of.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        families: Vec<Family>,
    },
    /// These are the attachment's in the cluster now.
    Addresses {
        /// In the order of `ips`, then of `families`.
        addresses: Vec<IpAddr>,
    },
    /// It is done, or noted to be done; the answer to [`Verb::Release`] and [`Verb::Status`].
    Done,
    /// It cannot be done.
    Refused {
        /// As for the runtime.
        code: u32,
        /// As for the runtime, which is told the name of the pool once, whether it is here or not.
        msg: String,
        /// As for the runtime.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        details: String,
    },
}

impl Reply {
    /// The refusal that a runtime gets to see as `error`.
    pub fn refused(error: Error) -> Self {
        Self::Refused {
            code: error.code.0,
            msg: error.msg,
            details: error.details,
        }
    }

    /// The answer, or the agent's refusal as an error of the call.
    ///
    /// # Errors
    /// What the agent refused with.
    pub fn accepted(self) -> Result<Self, Error> {
        match self {
            Self::Refused { code, msg, details } => Err(Error::new(Code(code), msg).with_details(details)),
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
