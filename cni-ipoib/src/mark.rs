// SPDX-License-Identifier: Apache-2.0
//! How a link says whose it is.
//!
//! When a pod's namespace dies without DEL, the kernel puts an `IPoIB` child back among the host's links under the
//! name it had in the pod (`netns_refund` in `ipoib_netlink.c`), where `net1` says nothing. So every link is
//! born with a group that is a hash of its attachment (`IFLA_GROUP` is applied by the request that creates it:
//! there is no moment without), and then gets an alias that spells the attachment out. Both survive the move.

use common::cni::{Attachment, IfName};
use common::netlink::Link;

/// The most that `IFLA_IFALIAS` takes (`IFALIASZ` less the closing zero).
const ALIAS_MAX: usize = 255;

/// The signs that one attachment's link bears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The link's group; never 0, which every other link has.
    pub group: u32,
    /// The link's alias.
    pub alias: String,
}

impl Mark {
    /// The mark of `attachment` to `network`.
    pub fn new(network: &str, attachment: &Attachment) -> Self {
        let mut alias = format!(
            "{}{}@{}",
            prefix(network),
            attachment.container_id,
            attachment.ifname
        );
        let group = fnv1a(alias.as_bytes()).max(1);
        // An interface name need not be ASCII, and half a character is no text.
        while alias.len() > ALIAS_MAX {
            alias.pop();
        }
        Self { group, alias }
    }

    /// Whether `link` bears this mark. A link killed at birth has the group only.
    pub fn is_on(&self, link: &Link) -> bool {
        link.group == self.group && link.alias.as_ref().is_none_or(|alias| *alias == self.alias)
    }
}

/// What the alias of every link of ours begins with.
const OURS: &str = "rdmanet:";

/// What the alias of every link of `network` begins with.
fn prefix(network: &str) -> String {
    format!("{OURS}{network}/")
}

/// Whether `link` is a pod's interface by its alias, of whatever network.
pub fn is_ours(link: &Link) -> bool {
    link.alias
        .as_ref()
        .is_some_and(|alias| alias.starts_with("rdmanet:"))
}

/// The attachment that an alias of `network` spells out; none if it is another's, or was cut.
pub fn attachment_of(network: &str, alias: &str) -> Option<Attachment> {
    let (container_id, ifname) = alias.strip_prefix(&prefix(network))?.split_once('@')?;
    let ifname: IfName = ifname.parse().ok()?;
    Some(Attachment {
        container_id: container_id.parse().ok()?,
        ifname,
    })
}

/// FNV-1a, 32 bits: the same in every release, which the standard library's hashes do not promise.
pub(crate) fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests;
