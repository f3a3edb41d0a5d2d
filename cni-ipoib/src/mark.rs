// SPDX-License-Identifier: Apache-2.0
//! How a link says whose it is.
//!
//! When a pod's namespace dies without DEL, the kernel puts an `IPoIB` child back among the host's links under the
//! name it had in the pod (`netns_refund` in `ipoib_netlink.c`), where `net1` says nothing. So the request that creates a
//! link gives it a group, which is a hash of its attachment (`IFLA_GROUP` is applied at creation). An alias that spells the
//! attachment out follows. Both survive a move to another namespace.

use common::cni::{Attachment, IfName};
use common::netlink::Link;

/// The most that `IFLA_IFALIAS` takes (`IFALIASZ` less the closing zero).
const ALIAS_MAX: usize = 255;

/// The shortest alias that may have been cut: a whole character goes.
const ALIAS_CUT: usize = ALIAS_MAX - 3;

/// The signs that one attachment's link bears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The link's group; never 0, which every other link has.
    pub group: u32,
    /// The link's alias.
    pub alias: String,
    /// What the link's temporary names have in common.
    stem: String,
}

impl Mark {
    /// How many temporary names an attachment has.
    pub const TEMPORARY_NAMES: usize = 4;

    /// The mark of `attachment` to `network`.
    pub fn new(network: &str, attachment: &Attachment) -> Self {
        let mut alias = format!(
            "{}{}@{}",
            prefix(network),
            attachment.container_id,
            attachment.ifname
        );
        let group = fnv1a(alias.as_bytes()).max(1);
        let stem = format!("{TEMPORARY}{:011x}", fnv1a_64(alias.as_bytes()) >> 20);
        // An interface name need not be ASCII, and half a character is no text.
        while alias.len() > ALIAS_MAX {
            alias.pop();
        }
        Self { group, alias, stem }
    }

    /// One of the names that the attachment's link may have before it gets its own; `attempt` counts from 0. The names are
    /// made from another hash than the group, so two attachments with one group have different names.
    pub fn temporary(&self, attempt: usize) -> String {
        format!("{}{:x}", self.stem, attempt % Self::TEMPORARY_NAMES)
    }

    /// Whether `link` bears this mark. The link of an ADD that was killed after its creation has the group only; a temporary
    /// name of another attachment, whose group is the same by chance, speaks against it.
    pub fn is_on(&self, link: &Link) -> bool {
        link.group == self.group
            && match &link.alias {
                Some(alias) => *alias == self.alias,
                None => !is_temporary(&link.name) || link.name.starts_with(&self.stem),
            }
    }
}

/// What a temporary name begins with; 12 hexadecimal digits follow.
const TEMPORARY: &str = "rn";

/// Whether `name` is a temporary name of some attachment.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.strip_prefix(TEMPORARY)
        .is_some_and(|hash| hash.len() == 12 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
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

/// Whether `link` bears the whole mark of some attachment: its alias is one of ours, and its group is the hash of that. Of an
/// alias that was cut the hash is not known.
pub fn is_sound(link: &Link) -> bool {
    let group_of = |alias: &String| alias.len() >= ALIAS_CUT || fnv1a(alias.as_bytes()).max(1) == link.group;
    is_ours(link) && link.alias.as_ref().is_some_and(group_of)
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

/// The same with 64 bits.
fn fnv1a_64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests;
