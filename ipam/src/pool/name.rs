// SPDX-License-Identifier: Apache-2.0
//! The name of a pool, which is also the name of its directory on every node.

use common::cni::{Code, Error};
use serde::{Deserialize, Serialize};

/// The name of an `IPPool`: a DNS subdomain by the rules of Kubernetes (RFC 1123), which is also a safe file
/// name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PoolName(String);

impl TryFrom<String> for PoolName {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let label = |label: &str| {
            label.starts_with(alphanumeric)
                && label.ends_with(alphanumeric)
                && label.chars().all(|c| alphanumeric(c) || c == '-')
        };
        if text.len() <= 253 && text.split('.').all(label) {
            return Ok(Self(text));
        }
        Err(Error::new(
            Code::INVALID_CONFIG,
            format!(
                "{text:?} cannot be the name of an IPPool: want up to 253 lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit"
            ),
        ))
    }
}

common::text_newtype!(PoolName);
