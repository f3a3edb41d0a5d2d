// SPDX-License-Identifier: Apache-2.0
//! Identifiers of RDMA networks: GUIDs, partition keys, PCI addresses.
//!
//! Invariant: the text of an identifier is that of the kernel, also in JSON, so that a person finds it in
//! sysfs.

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The text is not a GUID, P_Key or PCI address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {want}")]
pub struct IdError {
    text: String,
    want: &'static str,
}

impl IdError {
    fn new(text: &str, want: &'static str) -> Self {
        Self {
            text: text.to_owned(),
            want,
        }
    }
}

/// A globally unique identifier of a node or port (InfiniBand Architecture § 4.1.1, an EUI-64).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Guid(pub u64);

impl Guid {
    /// All ones marks "no GUID": 0 is an unset GUID, and drivers reject 0.
    pub const NONE: Self = Self(u64::MAX);

    /// Whether a port with this GUID is reachable.
    pub fn is_usable(self) -> bool {
        self != Self(0) && self != Self::NONE
    }
}

impl fmt::Display for Guid {
    /// In the format of sysfs: `248a:0703:00b4:0c5e`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |shift: u32| (self.0 >> shift) & 0xffff;
        write!(
            f,
            "{:04x}:{:04x}:{:04x}:{:04x}",
            word(48),
            word(32),
            word(16),
            word(0)
        )
    }
}

impl FromStr for Guid {
    type Err = IdError;

    /// Parses four groups of four digits (sysfs) or eight of two (`ip link`, Kubernetes).
    fn from_str(text: &str) -> Result<Self, IdError> {
        let want = "a GUID: four groups of four hexadecimal digits, or eight of two, separated by colons";
        let groups: Vec<&str> = text.split(':').collect();
        let digits = match groups.len() {
            4 => 4,
            8 => 2,
            _ => return Err(IdError::new(text, want)),
        };
        let well_formed = |g: &&str| g.len() == digits && g.bytes().all(|b| b.is_ascii_hexdigit());
        if !groups.iter().all(well_formed) {
            return Err(IdError::new(text, want));
        }
        u64::from_str_radix(&groups.concat(), 16)
            .map(Self)
            .map_err(|_| IdError::new(text, want))
    }
}

/// A partition key: 15 bits for the partition, and the top bit for full membership (InfiniBand Architecture §
/// 10.9.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pkey(pub u16);

impl Pkey {
    /// The default partition of every port, as a full member.
    pub const DEFAULT: Self = Self(0xffff);

    const FULL_MEMBER: u16 = 0x8000;

    /// Whether the member may also communicate with limited members.
    pub fn full_member(self) -> bool {
        self.0 & Self::FULL_MEMBER != 0
    }

    /// Whether both keys are of the same partition. Membership is ignored.
    pub fn matches(self, other: Self) -> bool {
        (self.0 ^ other.0) & !Self::FULL_MEMBER == 0
    }

    /// Whether it is a key of a partition; 0x0000 and 0x8000 are empty table entries.
    pub fn is_valid(self) -> bool {
        self.0 & !Self::FULL_MEMBER != 0
    }
}

impl fmt::Display for Pkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

impl FromStr for Pkey {
    type Err = IdError;

    /// Parses `0x8001`, or the same number in decimal.
    fn from_str(text: &str) -> Result<Self, IdError> {
        let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) if digits.bytes().all(|b| b.is_ascii_hexdigit()) => {
                u16::from_str_radix(digits, 16).ok()
            }
            None if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
            _ => None,
        };
        number
            .map(Self)
            .ok_or_else(|| IdError::new(text, "a P_Key: want 0x and up to four hexadecimal digits"))
    }
}

/// The address of a PCI function: domain, bus, device, function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl fmt::Display for PciAddress {
    /// In the format of sysfs: `0000:3b:00.1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:04x}:{:02x}:{:02x}.{:x}",
            self.domain, self.bus, self.device, self.function
        )
    }
}

impl FromStr for PciAddress {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        parse_pci(text).ok_or_else(|| IdError::new(text, "a PCI address such as 0000:3b:00.1"))
    }
}

fn parse_pci(text: &str) -> Option<PciAddress> {
    let (domain, rest) = text.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let hex = |digits: &str, lengths: std::ops::RangeInclusive<usize>| {
        let well_formed = lengths.contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
        well_formed
            .then(|| u32::from_str_radix(digits, 16).ok())
            .flatten()
    };
    // Domains beyond 16 bits exist behind Hyper-V and VMD.
    let domain = hex(domain, 4..=8)?;
    let bus = u8::try_from(hex(bus, 2..=2)?).ok()?;
    let device = u8::try_from(hex(device, 2..=2)?)
        .ok()
        .filter(|device| *device < 32)?;
    let function = u8::try_from(hex(function, 1..=1)?)
        .ok()
        .filter(|function| *function < 8)?;
    Some(PciAddress {
        domain,
        bus,
        device,
        function,
    })
}

macro_rules! as_text {
    ($($name:ty),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    )*};
}

as_text!(Guid, PciAddress);

#[cfg(test)]
mod tests;
