// SPDX-License-Identifier: Apache-2.0
//! The mark that identifies the attachment of a link.
//!
//! When a pod's namespace ends without DEL, the kernel moves an `IPoIB` child to the host under the name it
//! had in the pod (`netns_refund` in `ipoib_netlink.c`), where `net1` identifies nothing. So the request that
//! creates a link sets a group, which is a hash of its attachment (`IFLA_GROUP` is applied at creation). A
//! later request sets an alias that spells the attachment out. Both survive a move to another namespace.

use common::cni::{Attachment, IfName};
use common::netlink::Link;

/// The longest `IFLA_IFALIAS` (`IFALIASZ` less the closing zero).
const ALIAS_MAX: usize = 255;

/// The shortest alias that may have been truncated: truncation removes a whole character.
const ALIAS_CUT: usize = ALIAS_MAX - 3;

/// The mark of one attachment's links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The link's group; never 0, which every other link has.
    pub group: u32,
    /// The link's alias.
    pub alias: String,
    /// The common prefix of the link's temporary names.
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
        // An interface name may be non-ASCII, and half a character is not valid text.
        while alias.len() > ALIAS_MAX {
            alias.pop();
        }
        Self { group, alias, stem }
    }

    /// One of the temporary names that the attachment's link may have before it gets its own; `attempt`
    /// counts from 0. The names use another hash than the group, so two attachments with the same group have
    /// different names.
    pub fn temporary(&self, attempt: usize) -> String {
        format!("{}{:x}", self.stem, attempt % Self::TEMPORARY_NAMES)
    }

    /// Whether `link` has this mark. The link of an ADD that was killed after the creation has only the
    /// group. It is another attachment's if it has the temporary name of that attachment, whose group may be
    /// the same by chance.
    pub fn is_on(&self, link: &Link) -> bool {
        link.group == self.group
            && match &link.alias {
                Some(alias) => *alias == self.alias,
                None => !is_temporary(&link.name) || link.name.starts_with(&self.stem),
            }
    }
}

/// The prefix of a temporary name; 12 hexadecimal digits follow.
const TEMPORARY: &str = "rn";

/// Whether `name` is a temporary name of some attachment.
fn is_temporary(name: &str) -> bool {
    name.strip_prefix(TEMPORARY)
        .is_some_and(|hash| hash.len() == 12 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The prefix of the alias of every link of this plugin.
const OURS: &str = "rdmanet:";

/// The prefix of the alias of every link of `network`.
fn prefix(network: &str) -> String {
    format!("{OURS}{network}/")
}

/// Whether `link` is a pod's interface by its alias, of any network.
pub fn is_ours(link: &Link) -> bool {
    link.alias.as_ref().is_some_and(|alias| alias.starts_with(OURS))
}

/// Whether `link` has the whole mark of some attachment: an alias of this plugin, and its hash as the group.
/// The hash of a truncated alias is unknown.
pub fn is_sound(link: &Link) -> bool {
    let group_of = |alias: &String| alias.len() >= ALIAS_CUT || fnv1a(alias.as_bytes()).max(1) == link.group;
    is_ours(link) && link.alias.as_ref().is_some_and(group_of)
}

/// The attachment in an alias of `network`; `None` for another network's alias, or a truncated one.
pub fn attachment_of(network: &str, alias: &str) -> Option<Attachment> {
    let (container_id, ifname) = alias.strip_prefix(&prefix(network))?.split_once('@')?;
    let ifname: IfName = ifname.parse().ok()?;
    Some(Attachment {
        container_id: container_id.parse().ok()?,
        ifname,
    })
}

/// FNV-1a, 32 bits: stable over releases, which the standard library's hashes do not promise.
pub(crate) fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

/// The same with 64 bits.
pub(crate) fn fnv1a_64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests;
