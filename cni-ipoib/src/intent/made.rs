// SPDX-License-Identifier: Apache-2.0
//! The properties of a pod's link that the pod cannot change.
//!
//! A pod with `CAP_NET_ADMIN` may change the name, the alias and the group of its link, and the MAC of a
//! macvlan link. It cannot change the link's index in its namespace, its kind, its parent, or the queue pair
//! in an `IPoIB` address.
//!
//! Invariant: indices are compared only within the namespace in which they were read. The kernel reuses the
//! index of a deleted link only on request. Even then kind and parent must be the same. A pod that has no
//! user namespace of its own can create such a link on a link of the host (`IFLA_LINK_NETNSID`, `rtnl_newlink`
//! of `net/core/rtnetlink.c`): see the known limits in docs/design/journal.md.

use common::netlink::{HwAddress, Link};
use serde::{Deserialize, Serialize};

/// A link that ADD created, as it was in the pod right after its creation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Its index in the pod's namespace.
    pub index: u32,
    /// Its kind, e.g. `ipoib`.
    pub kind: String,
    /// The index of its parent; `None` for a bond, and for an `IPoIB` child with its parent's index (see
    /// [`Link::parent`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// Whether the kernel reported that the parent is in another namespace.
    #[serde(default)]
    pub outside: bool,
    /// Its hardware address.
    pub address: HwAddress,
}

impl Made {
    /// The properties of `link`, read in the pod.
    pub fn of(link: &Link) -> Self {
        Self {
            index: link.index,
            kind: link.kind.clone().unwrap_or_default(),
            parent: link.parent,
            outside: link.parent_netnsid.is_some(),
            address: link.address.clone(),
        }
    }

    /// Whether `link`, read in the same namespace, is this link, whatever its name. Its index may differ if
    /// the pod moved it away and back. Then its address decides. It may also be the child of another attachment
    /// with the same queue pair, once this link is deleted: only the journal distinguishes the two, not a mark.
    pub fn is(&self, link: &Link) -> bool {
        self.has_index_of(link) || self.is_alike(link) && self.has_address_of(link)
    }

    /// Whether `link`, read in the same namespace, is certainly this link: its index is the same.
    pub fn has_index_of(&self, link: &Link) -> bool {
        self.is_alike(link) && link.index == self.index
    }

    fn is_alike(&self, link: &Link) -> bool {
        link.kind.as_deref() == Some(self.kind.as_str())
            && self.parent_of(link.index, link.parent) == self.parent_of(self.index, self.parent)
            && link.parent_netnsid.is_some() == self.outside
    }

    /// Whether `link` has the recorded index and queue pair. Both are those of one `IPoIB` child in the namespace that ADD used.
    pub fn is_pair_of(&self, link: &Link) -> bool {
        let pair = self.address.queue_pair();
        self.has_index_of(link) && pair.is_some() && pair == link.address.queue_pair()
    }

    /// The index of the parent. The kernel reports none for an `IPoIB` child with its parent's index.
    fn parent_of(&self, index: u32, parent: Option<u32>) -> Option<u32> {
        parent.or((self.kind == "ipoib").then_some(index))
    }

    /// The index of its parent on the host; `None` if it has none there. For an `IPoIB` child of a link in the pod it is the
    /// index of that link: the kernel reports no namespace of its parent.
    pub fn parent_on_host(&self) -> Option<u32> {
        let may_have = self.outside || self.kind == "ipoib";
        self.parent_of(self.index, self.parent).filter(|_| may_have)
    }

    /// Whether `link` is this link after the kernel returned it to the host at the end of the pod's namespace
    /// (`netns_refund` in `ipoib_netlink.c`). Such a link is down, and its index may differ. It may also be a child that
    /// an ADD is creating with the same queue pair, once this link is deleted: only the journal distinguishes the two.
    pub fn came_back_as(&self, link: &Link) -> bool {
        self.kind == "ipoib"
            && link.kind.as_deref() == Some("ipoib")
            && link.parent == self.parent_of(self.index, self.parent)
            && !link.up
            && self.has_address_of(link)
    }

    /// Whether the addresses belong to one link. Two links of one parent may share an ipvlan's address, and a
    /// pod may set any MAC on its own bond.
    fn has_address_of(&self, link: &Link) -> bool {
        match self.kind.as_str() {
            "ipoib" => {
                let pair = self.address.queue_pair();
                pair.is_some() && pair == link.address.queue_pair()
            }
            "macvlan" => !self.address.is_empty() && self.address == link.address,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
