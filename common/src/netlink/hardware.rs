// SPDX-License-Identifier: Apache-2.0
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// `MAX_ADDR_LEN` of `include/linux/netdevice.h`, the longest hardware address of a link.
const MAX_BYTES: usize = 32;

/// A hardware address: 6 bytes on Ethernet, 20 on InfiniBand (RFC 4391 § 9.1.1: flags and QPN in 4, the GID in 16).
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HwAddress(Vec<u8>);

/// The text is not a hardware address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a hardware address: want bytes as two hexadecimal digits, separated by colons")]
pub struct HwAddressError {
    text: String,
}

impl HwAddress {
    /// The address with these bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes in the order of the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the link has no hardware address (e.g. a tun device).
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The last 8 bytes, the port GUID on InfiniBand. `None` unless the length is 20.
    pub fn port_guid(&self) -> Option<crate::id::Guid> {
        let address: &[u8; 20] = self.0.as_slice().try_into().ok()?;
        address
            .last_chunk::<8>()
            .map(|guid| crate::id::Guid(u64::from_be_bytes(*guid)))
    }

    /// The address with another port GUID. `None` unless the length is 20.
    pub fn with_port_guid(&self, guid: crate::id::Guid) -> Option<Self> {
        let mut address: [u8; 20] = self.0.as_slice().try_into().ok()?;
        *address.last_chunk_mut::<8>()? = guid.0.to_be_bytes();
        Some(Self::new(address))
    }

    /// The receiving queue pair of an `IPoIB` link, in bytes 1 to 3 of its address. `None` unless the length
    /// is 20, and for a link without a queue pair.
    pub fn queue_pair(&self) -> Option<u32> {
        let address: &[u8; 20] = self.0.as_slice().try_into().ok()?;
        let [_, high, middle, low, ..] = *address;
        Some(u32::from_be_bytes([0, high, middle, low])).filter(|number| *number != 0)
    }

    /// Whether an `IPoIB` link takes connections: the flag RC, the first bit of a 20-byte address (RFC 4755, section 3.1).
    ///
    /// Source: `ipoib_set_mode` of `drivers/infiniband/ulp/ipoib/ipoib_main.c` refuses connected mode without this flag, and
    /// `ipoib_cm_dev_init` sets it only on links that run on `ib_ipoib`'s own data path.
    pub fn takes_connections(&self) -> bool {
        self.0.len() == 20 && self.0.first().is_some_and(|flags| flags & 0x80 != 0)
    }

    /// The subnet prefix, the high half of the GID in an InfiniBand address. `None` unless the length is 20.
    pub fn subnet_prefix(&self) -> Option<u64> {
        let address: &[u8; 20] = self.0.as_slice().try_into().ok()?;
        let (_, gid) = address.split_last_chunk::<16>()?;
        gid.first_chunk::<8>().map(|prefix| u64::from_be_bytes(*prefix))
    }
}

impl fmt::Display for HwAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02x}", if i == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for HwAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HwAddress({self})")
    }
}

impl FromStr for HwAddress {
    type Err = HwAddressError;

    /// Reads `00:00:10:49:fe:80:…` of up to 32 bytes.
    fn from_str(text: &str) -> Result<Self, HwAddressError> {
        let byte = |part: &str| match part.len() {
            2 if part.bytes().all(|b| b.is_ascii_hexdigit()) => u8::from_str_radix(part, 16).ok(),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
        match bytes {
            Some(bytes) if bytes.len() <= MAX_BYTES => Ok(Self(bytes)),
            _ => Err(HwAddressError {
                text: text.to_owned(),
            }),
        }
    }
}

impl Serialize for HwAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HwAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() {
            return Ok(Self::default());
        }
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
