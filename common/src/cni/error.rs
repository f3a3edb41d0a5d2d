// SPDX-License-Identifier: Apache-2.0
//! The error that a runtime reads on stdout: a code for the program, a message for a person, details for a
//! log.

use super::version::Version;
use serde_json::{Value, json};

/// An error code of the CNI specification (§ Error), or one of our own from 100 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Code(pub u32);

impl Code {
    /// 1: the configuration's `cniVersion` is not supported.
    pub const INCOMPATIBLE_VERSION: Self = Self(1);
    /// 2: a field is known but its value is not supported; the message names both.
    pub const UNSUPPORTED_FIELD: Self = Self(2);
    /// 3: the container (its namespace) does not exist, so nothing needs to be removed.
    pub const UNKNOWN_CONTAINER: Self = Self(3);
    /// 4: an environment variable is missing or malformed.
    pub const INVALID_ENVIRONMENT: Self = Self(4);
    /// 5: reading or writing a file failed.
    pub const IO: Self = Self(5);
    /// 6: content could not be decoded.
    pub const DECODE: Self = Self(6);
    /// 7: the configuration decodes but is not valid on this node.
    pub const INVALID_CONFIG: Self = Self(7);
    /// 11: a passing condition; the runtime should try again later.
    pub const TRY_AGAIN: Self = Self(11);
    /// 50: STATUS: the plugin cannot serve ADD now.
    pub const NOT_AVAILABLE: Self = Self(50);
    /// 51: STATUS: the plugin cannot serve ADD, and containers already attached may have limited connectivity.
    pub const LIMITED: Self = Self(51);
    /// 100: the kernel refused a step.
    pub const KERNEL: Self = Self(100);
    /// 101: the pod already has an interface of the requested name, or a lease of another network for it.
    pub const IFNAME_IN_USE: Self = Self(101);
    /// 102: the master exists but carries no traffic: it is down, without carrier, or not joined to its
    /// fabric.
    pub const NO_CARRIER: Self = Self(102);
    /// 103: a delegated plugin could not be run, timed out, or gave an answer that is not valid CNI.
    pub const DELEGATE: Self = Self(103);
    /// 104: CHECK found the attachment changed or missing.
    pub const CHECK_FAILED: Self = Self(104);
    /// 105: another host uses the address that the pod got.
    pub const ADDRESS_ANSWERED: Self = Self(105);
    /// 110: no address is left that the attachment may get; the message names the limit.
    pub const EXHAUSTED: Self = Self(110);
    /// 111: a requested address belongs to another attachment.
    pub const ADDRESS_IN_USE: Self = Self(111);
    /// 112: a requested address lies outside every range.
    pub const ADDRESS_OUTSIDE: Self = Self(112);
    /// 113: a requested address is excluded, a gateway, or a network or broadcast address.
    pub const ADDRESS_EXCLUDED: Self = Self(113);
    /// 114: the address store holds content that this plugin did not write.
    pub const STORE_CORRUPT: Self = Self(114);
    /// 115: no pool of that name exists in the cluster.
    pub const POOL_UNKNOWN: Self = Self(115);
    /// 116: the pool is not for this node, or the node has no file of the pool.
    pub const POOL_NOT_HERE: Self = Self(116);
    /// 117: the pool's namespace selector excludes the pod's namespace.
    pub const POOL_NOT_FOR_NAMESPACE: Self = Self(117);
    /// 118: each free address is in its cooldown after a release.
    pub const RESTING: Self = Self(118);
    /// 119: ADD needs the API server, and it does not answer the agent.
    pub const API_UNREACHABLE: Self = Self(119);
    /// 999: a bug in the plugin (libcni's `ErrInternal`).
    pub const INTERNAL: Self = Self(999);

    /// Whether the specification reserves this code. Codes from 100 on have a meaning of their own in each plugin.
    pub(super) fn is_of_specification(self) -> bool {
        self.0 < 100
    }

    /// The text at the end of the details of an error of this product.
    pub(super) fn mark(self) -> String {
        format!("{MARK}{}", self.0)
    }
}

/// What stands before the code at the end of an error's details. Multus keeps message and details of a network's error and
/// answers with a code of its own (999), so that ours would be lost; `rdmanet explain` looks for this.
pub const MARK: &str = "rdmanet error ";

/// A failed call, as the runtime sees it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{msg}")]
pub struct Error {
    /// The kind of failure.
    pub code: Code,
    /// One sentence: the thing, its value, the cause and the remedy.
    pub msg: String,
    /// The chain of causes, or further findings; may be empty.
    pub details: String,
}

impl Error {
    /// An error without details.
    pub fn new(code: Code, msg: impl Into<String>) -> Self {
        Self {
            code,
            msg: msg.into(),
            details: String::new(),
        }
    }

    /// The same error with `details`.
    #[must_use]
    pub fn with_details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// The same error, whose message begins with `place`.
    #[must_use]
    pub fn within(self, place: &str) -> Self {
        Self {
            msg: format!("{place}: {}", self.msg),
            ..self
        }
    }

    /// An error whose details are the causes of `source`, outermost first.
    pub fn caused(code: Code, msg: impl Into<String>, source: &dyn std::error::Error) -> Self {
        Self::new(code, msg).with_details(causes(source))
    }

    /// The JSON document for stdout. Its details end with [`MARK`] and the code exactly once: the details of
    /// an IPAM plugin's error end with the mark already.
    pub fn to_json(&self, version: Version) -> Value {
        let mark = self.code.mark();
        let details = match self.details.as_str() {
            "" => mark,
            details if details.ends_with(&mark) => details.to_owned(),
            details => format!("{details}; {mark}"),
        };
        json!({
            "cniVersion": version.as_str(),
            "code": self.code.0,
            "msg": self.msg,
            "details": details,
        })
    }
}

/// The messages of `error` and of all its sources, joined by `: `. A message that the text ends with already is left out: many errors
/// print their source themselves.
pub fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let message = cause.to_string();
        if !text.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;
