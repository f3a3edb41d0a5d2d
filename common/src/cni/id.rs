// SPDX-License-Identifier: Apache-2.0
//! Names from the runtime, validated once.

use super::error::{Code, Error};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest interface name: `IFNAMSIZ` less the closing zero.
pub const IFNAME_MAX: usize = 15;

/// A container id: letters, digits, `.`, `_`, `-`, beginning with a letter or digit, at most 200 bytes (spec
/// § Parameters).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContainerId(String);

/// An interface name that the kernel accepts.
///
/// Source: `dev_valid_name` and `__dev_alloc_name` of `net/core/dev.c`, `sysctl_dev_name_is_allowed` of
/// `include/net/ip.h`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IfName(String);

/// One interface of one container: the unit that ADD makes and DEL removes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Attachment {
    /// `CNI_CONTAINERID`.
    #[serde(rename = "containerID")]
    pub container_id: ContainerId,
    /// `CNI_IFNAME`.
    pub ifname: IfName,
}

/// Whether `text` is a valid name by the specification: a letter or digit, then letters, digits, `.`, `_`,
/// `-`.
pub fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

impl TryFrom<String> for ContainerId {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        // The id becomes part of a file name, which the kernel limits to 255 bytes.
        if is_name(&text) && text.len() <= 200 {
            return Ok(Self(text));
        }
        Err(Error::new(
            Code::INVALID_ENVIRONMENT,
            format!(
                "container id {text:?} is not valid: up to 200 letters, digits, '.', '_' and '-', beginning with a letter or digit"
            ),
        ))
    }
}

impl TryFrom<String> for IfName {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        let bad = |c: char| matches!(c, '/' | ':' | '%') || c.is_whitespace() || c.is_control();
        let reason = if text.is_empty() {
            "it is empty".to_owned()
        } else if text.len() > IFNAME_MAX {
            format!("it has {} bytes, the kernel takes {IFNAME_MAX}", text.len())
        } else if text == "." || text == ".." {
            "it is a directory".to_owned()
        } else if let Some(c) = text.chars().find(|c| bad(*c)) {
            format!("it holds {c:?}")
        } else if text.bytes().any(|byte| byte == 0xa0) {
            // The kernel checks bytes, and `isspace(0xa0)` of lib/ctype.c is true.
            "it holds the byte 0xa0, which the kernel treats as a space".to_owned()
        } else if matches!(text.as_str(), "all" | "default") {
            format!("the kernel keeps that name for settings (/proc/sys/net/ipv4/conf/{text})")
        } else {
            return Ok(Self(text));
        };
        Err(Error::new(
            Code::INVALID_ENVIRONMENT,
            format!("interface name {text:?} is not valid: {reason}"),
        ))
    }
}

/// The conversions of a name that is a checked text: from and to text, beside its `TryFrom<String>`.
#[macro_export]
macro_rules! text_newtype {
    ($($name:ident),*) => {$(
        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }
        impl std::str::FromStr for $name {
            type Err = $crate::cni::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::try_from(text.to_owned())
            }
        }
    )*};
}
text_newtype!(ContainerId, IfName);

impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of container {}", self.ifname, self.container_id)
    }
}
