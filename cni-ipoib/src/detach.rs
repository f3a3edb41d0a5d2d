// SPDX-License-Identifier: Apache-2.0
//! Finds an attachment's link, wherever it is, and deletes it and no other.
//!
//! After a refused ADD the name in the pod belongs to another link, and a child that the kernel returned to
//! the host may have any name. A pod may change the name, the alias and the group of its link.
//!
//! Invariant: a link is deleted only if it has the attachment's mark, or the recorded properties that a pod
//! cannot change ([`Made`]). Its name decides only if ADD recorded no link ([`delete_named`]).

use crate::error::{Error, Step};
use crate::intent::Made;
use crate::journal::{self, Written};
use crate::kernel::{Kernel, Side, links, pod_link};
use crate::mark::{self, Mark};
use common::cni::{Attachment, CniResult, IfName};
use common::netlink::{Link, LinkLayer};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the kernel may take to dismantle a dead namespace (`cleanup_net` of `net/core/net_namespace.c`):
/// tens of milliseconds, more on a node with many of them.
const CHILDREN_RETURN_WITHIN: Duration = Duration::from_secs(1);

/// The pause between two searches for a link that the kernel may still return.
const PAUSE: Duration = Duration::from_millis(10);

/// The known properties of an attachment's links.
#[derive(Clone, Copy, Debug)]
pub struct Known<'k> {
    /// Their mark, which a pod may change.
    pub mark: &'k Mark,
    /// What the journal has of them.
    pub recorded: Option<Recorded<'k>>,
}

/// Properties of an attachment's links that a pod cannot change. They are valid in the namespace that ADD used,
/// and on the host once the link has left that namespace.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'k> {
    /// One for each link.
    pub made: &'k [Made],
    /// The namespace that ADD used.
    pub netns: (u64, u64),
    /// The state directory. Its journal names the links of other attachments.
    pub state: &'k Path,
    /// The network.
    pub network: &'k str,
    /// The attachment.
    pub attachment: &'k Attachment,
}

impl<'k> Known<'k> {
    /// Only the mark is known.
    pub fn marked(mark: &'k Mark) -> Self {
        Self { mark, recorded: None }
    }

    /// Whether `link` belongs to the attachment, whatever the journal has of other attachments.
    fn is_certain(self, side: Side, link: &Link) -> bool {
        let has_index = |made: &Made| side == Side::Pod && made.has_index_of(link);
        self.mark.is_on(link) || self.made().iter().any(has_index)
    }

    /// Whether `link` belongs to the attachment, unless it belongs to another attachment.
    fn is_possible(self, side: Side, link: &Link) -> bool {
        self.is_certain(side, link)
            || self.made().iter().any(|made| match side {
                Side::Pod => made.is(link),
                Side::Host => made.came_back_as(link),
            })
    }

    fn made(self) -> &'k [Made] {
        self.recorded.map_or(&[], |recorded| recorded.made)
    }
}

impl Recorded<'_> {
    /// The journal entries of the other attachments of the node.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn others(self) -> Result<Vec<Written>, Error> {
        journal::others(self.state, self.network, self.attachment)
    }

    /// Whether `link`, read on `side`, belongs to the other attachment `of`.
    fn is_of_other(self, of: &Written, side: Side, link: &Link) -> bool {
        match side {
            Side::Pod => of.has_in(self.netns, link),
            Side::Host => of.is_creating(link),
        }
    }
}

/// Deletes every known link on `side`. Returns their number. A pod may give a link of its own the mark. So if the journal has
/// recorded links, only these count in a pod.
///
/// # Errors
/// The kernel refused a request, or the journal cannot be read. Links deleted before stay deleted.
pub fn delete(kernel: &mut dyn Kernel, side: Side, known: &Known<'_>) -> Result<usize, Error> {
    let found = known_among(links(kernel, side)?, side, known)?;
    delete_all(kernel, side, &found, known)
}

/// The known links among all of `side`, in the order of deletion. A link may have only the address in the record.
/// The HCA may have given the queue pair in that address to a child of another attachment: this child stays.
fn known_among(mut links: Vec<Link>, side: Side, known: &Known<'_>) -> Result<Vec<Link>, Error> {
    links.retain(|link| is_ours(link) && known.is_possible(side, link));
    if let Some(recorded) = known.recorded
        && links.iter().any(|link| !known.is_certain(side, link))
    {
        let others = recorded.others()?;
        let is_others = |link: &Link| others.iter().any(|of| recorded.is_of_other(of, side, link));
        links.retain(|link| known.is_certain(side, link) || !is_others(link));
    }
    // A bond of InfiniBand ports ends with its last port. Deleted before its ports, it releases them at once.
    links.sort_by_key(|link| !link.is_bond());
    Ok(links)
}

fn delete_all(
    kernel: &mut dyn Kernel,
    side: Side,
    links: &[Link],
    known: &Known<'_>,
) -> Result<usize, Error> {
    let made = known.made();
    let counts = |link| side == Side::Host || made.is_empty() || made.iter().any(|made| made.is(link));
    let mut deleted = 0;
    for link in links {
        deleted += usize::from(delete_link(kernel, side, link)? && counts(link));
    }
    Ok(deleted)
}

/// What [`delete_returned`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturnedChildren {
    /// The number of links it deleted.
    pub deleted: usize,
    /// Whether the kernel may still return a link, because a process may hold the namespace open.
    pub more: bool,
}

/// Deletes every known link that the kernel returns to the host after a namespace ended: the pod's, or one that
/// the pod created.
///
/// The kernel returns them within `CHILDREN_RETURN_WITHIN` of `gone`, a moment at which the namespace was gone.
/// After that time the function searches once. If `master` is Ethernet it does not wait: such children end
/// with their namespace.
///
/// # Errors
/// The kernel refused a request, or the journal cannot be read. Links deleted before stay deleted.
pub fn delete_returned(
    kernel: &mut dyn Kernel,
    known: &Known<'_>,
    master: &str,
    gone: Instant,
) -> Result<ReturnedChildren, Error> {
    let deadline = gone + within();
    let mut deleted = 0;
    loop {
        let host = links(kernel, Side::Host)?;
        let more = may_return_children(&host, master);
        let found = known_among(host, Side::Host, known)?;
        deleted += delete_all(kernel, Side::Host, &found, known)?;
        // A link without alias may never have been moved, so others may still be returned.
        if found.iter().any(|link| link.alias.is_some()) {
            // The ports of a bond return one after the other, but the kernel holds one lock for all of them,
            // and the deletion waited for that lock.
            deleted += delete(kernel, Side::Host, known)?;
            return Ok(ReturnedChildren { deleted, more: false });
        }
        if !more || Instant::now() >= deadline {
            return Ok(ReturnedChildren { deleted, more });
        }
        sleep(PAUSE);
    }
}

#[cfg(not(test))]
fn within() -> Duration {
    CHILDREN_RETURN_WITHIN
}

#[cfg(test)]
fn within() -> Duration {
    tests::within()
}

/// Whether `master` may have had `IPoIB` children. A missing master may.
fn may_return_children(host: &[Link], master: &str) -> bool {
    let infiniband = |link: &Link| link.layer == LinkLayer::Infiniband;
    match host.iter().find(|link| link.name == master) {
        Some(master) => infiniband(master),
        None => host.iter().any(infiniband),
    }
}

/// Deletes the link in the pod that a result names. This is for links of another plugin's ADD, from before
/// this binary took that plugin's name: the hardware address must be that of the result.
pub fn delete_answered(kernel: &mut dyn Kernel, ifname: &IfName, prev: &CniResult) -> Result<bool, Error> {
    let answered = |link: &Link| {
        let mac = link.address.to_string();
        prev.interfaces
            .iter()
            .any(|i| i.name == ifname.as_str() && !i.sandbox.is_empty() && i.mac.eq_ignore_ascii_case(&mac))
    };
    let link = pod_link(kernel, ifname.as_str())?;
    match link.filter(|link| link.alias.is_none() && link.group == 0 && is_child(link) && answered(link)) {
        Some(link) => delete_link(kernel, Side::Pod, &link),
        None => Ok(false),
    }
}

/// Deletes the link `ifname` in the pod, if it is a child with a parent outside of the pod, and not another
/// attachment's. For a namespace in which that name was free before ADD, and for a peer whose name this binary
/// has taken: the peer's own DEL uses the name.
pub fn delete_named(
    kernel: &mut dyn Kernel,
    ifname: &IfName,
    is_others: impl Fn(&Link) -> bool,
) -> Result<bool, Error> {
    let link = pod_link(kernel, ifname.as_str())?;
    // IPoIB does not report the parent's namespace. A pod has no IPoIB parents, except one that was moved
    // into it whole.
    let outside = |link: &Link| link.parent_netnsid.is_some() || link.kind.as_deref() == Some("ipoib");
    match link.filter(|link| is_child(link) && outside(link) && !is_others(link)) {
        Some(link) => delete_link(kernel, Side::Pod, &link),
        None => Ok(false),
    }
}

/// The attachments to `network` of which the host has links, each with one of its links.
pub fn returned_children(kernel: &mut dyn Kernel, network: &str) -> Result<Vec<(Link, Attachment)>, Error> {
    let ours = links(kernel, Side::Host)?
        .into_iter()
        .filter(is_child)
        .filter_map(|link| {
            let attachment = mark::attachment_of(network, link.alias.as_deref()?)?;
            Mark::new(network, &attachment)
                .is_on(&link)
                .then_some((link, attachment))
        });
    let mut found: Vec<(Link, Attachment)> = Vec::new();
    for (link, attachment) in ours {
        // The ports of a pod's bond return as two links of one attachment.
        if found.iter().all(|(_, known)| *known != attachment) {
            found.push((link, attachment));
        }
    }
    Ok(found)
}

/// Deletes one link. Returns `false` if it was gone already.
fn delete_link(kernel: &mut dyn Kernel, side: Side, link: &Link) -> Result<bool, Error> {
    let place = match side {
        Side::Host => "on the host",
        Side::Pod => "in the pod",
    };
    kernel
        .delete_link(side, link.index)
        .step(|| format!("delete {} {place}", link.name))
}

/// Whether `link` is of a kind that ADD creates: a child, or a pod's own bond of children. No other link is ever deleted, whatever its group.
fn is_ours(link: &Link) -> bool {
    is_child(link) || link.is_bond()
}

/// Whether `link` is a child of another link.
fn is_child(link: &Link) -> bool {
    matches!(link.kind.as_deref(), Some("ipoib" | "macvlan" | "ipvlan"))
}

#[cfg(test)]
pub(crate) mod tests;
