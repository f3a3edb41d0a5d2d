// SPDX-License-Identifier: Apache-2.0
//! The key `rdma`: the RDMA device of the pod, and how the pod gets it.

use crate::error::Error;
use common::cni::dispatch::Call;
use common::cni::keys;
use glob::Pattern;
use serde::Deserialize;
use serde_json::Value;
use std::fmt;
use std::str::FromStr;

const KEYS: [&str; 4] = ["netns", "device", "rename", "required"];

/// `IB_DEVICE_NAME_MAX` of `include/uapi/rdma/rdma_netlink.h`, without the closing zero.
const NAME_BYTES: usize = 63;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawRdma {
    netns: Option<String>,
    device: Option<String>,
    rename: Option<String>,
    required: Option<bool>,
}

/// The requested RDMA device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rdma {
    /// The required mode of the node.
    pub netns: RdmaNetns,
    /// Selects among the devices that belong to the interface.
    pub device: Option<Pattern>,
    /// The name of the device in the pod.
    pub rename: Option<String>,
    /// Whether ADD fails if the pod would get no device.
    pub required: bool,
}

/// How the pod gets access to its RDMA device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RdmaNetns {
    /// By the mode of the node's RDMA subsystem.
    #[default]
    Auto,
    /// The device stays where every pod sees it.
    Shared,
    /// The device is moved into the pod.
    Exclusive,
}

impl RawRdma {
    /// A request beyond the default is required, unless the configuration sets `required`.
    pub(super) fn validate(self) -> Result<Rdma, Error> {
        let set = |text: Option<String>| text.filter(|text| !text.is_empty());
        let netns = super::value::parse("rdma.netns", self.netns.as_deref())?.unwrap_or_default();
        let device = set(self.device).map(|text| pattern(&text)).transpose()?;
        let rename = set(self.rename).map(name).transpose()?;
        if netns == RdmaNetns::Shared && rename.is_some() {
            return Err(Error::Unsupported {
                key: "rdma.rename",
                value: rename.unwrap_or_default(),
                remedy: "a shared device has one name for all pods; remove it, or set rdma.netns to exclusive",
            });
        }
        let more = netns == RdmaNetns::Exclusive || device.is_some() || rename.is_some();
        Ok(Rdma {
            netns,
            device,
            rename,
            required: self.required.unwrap_or(more),
        })
    }
}

pub(super) fn require_known_keys(call: &Call) -> Result<(), common::cni::Error> {
    match call.conf.object.get("rdma") {
        Some(Value::Object(rdma)) => keys::require_known(rdma, &KEYS, "rdma."),
        _ => Ok(()),
    }
}

fn pattern(text: &str) -> Result<Pattern, Error> {
    Pattern::new(text).map_err(|error| Error::BadValue {
        key: "rdma.device",
        value: format!("{text:?}"),
        want: format!("a name such as \"mlx5_0\" or a pattern such as \"mlx5_*\" ({error})"),
    })
}

fn name(text: String) -> Result<String, Error> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if text.len() <= NAME_BYTES && text.bytes().all(plain) && !text.starts_with('.') {
        return Ok(text);
    }
    Err(Error::BadValue {
        key: "rdma.rename",
        value: format!("{text:?}"),
        want: format!("at most {NAME_BYTES} letters, digits, '_', '-' and '.', the first not '.'"),
    })
}

/// The text is not the name of a mode.
#[derive(Debug)]
pub struct RdmaNetnsError(String);

impl fmt::Display for RdmaNetnsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not one of auto, shared, exclusive", self.0)
    }
}

impl FromStr for RdmaNetns {
    type Err = RdmaNetnsError;

    fn from_str(text: &str) -> Result<Self, RdmaNetnsError> {
        match text {
            "auto" => Ok(Self::Auto),
            "shared" => Ok(Self::Shared),
            "exclusive" => Ok(Self::Exclusive),
            _ => Err(RdmaNetnsError(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests;
