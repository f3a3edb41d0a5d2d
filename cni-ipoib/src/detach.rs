// SPDX-License-Identifier: Apache-2.0
//! Finds an attachment's link, wherever it is by now, and deletes it; and no other.
//!
//! After a refused ADD the name in the pod belongs to another link, and a child that the kernel returned to the host has any
//! name. A pod may change the name, the alias and the group of its link.
//!
//! Invariant: a link is deleted only if it bears the attachment's mark, or if it has what ADD wrote down that a pod cannot
//! change ([`Made`]). Its name decides only where nothing was written down ([`delete_named`]).

use crate::error::Error;
use crate::kernel::{Kernel, Side, links, pod_link};
use crate::made::Made;
use crate::mark::{self, Mark};
use common::cni::{Attachment, CniResult, IfName};
use common::netlink::{Link, LinkLayer};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the kernel may take to take a dead namespace apart (`cleanup_net` of `net/core/net_namespace.c`): tens of
/// milliseconds, more on a node that has many to do.
const THROWN_BACK_WITHIN: Duration = Duration::from_secs(1);

/// The pause between two looks for a link that the kernel may still return.
const PAUSE: Duration = Duration::from_millis(10);

/// What is known of an attachment's links.
#[derive(Clone, Copy, Debug)]
pub struct Known<'k> {
    /// Their mark, which a pod may change.
    pub mark: &'k Mark,
    /// What a pod cannot change about them. It holds in the namespace that ADD saw, and on the host once that namespace is gone.
    pub made: &'k [Made],
}

impl<'k> Known<'k> {
    /// Only the mark is known.
    pub fn marked(mark: &'k Mark) -> Self {
        Self { mark, made: &[] }
    }

    fn is(self, side: Side, link: &Link) -> bool {
        let known = |made: &Made| match side {
            Side::Pod => made.is(link),
            Side::Host => made.came_back_as(link),
        };
        is_ours(link) && (self.mark.is_on(link) || self.made.iter().any(known))
    }
}

/// Deletes every link on `side` that is known; tells how many there were.
///
/// # Errors
/// The kernel refused; what was deleted before stays deleted.
pub fn delete(kernel: &mut dyn Kernel, side: Side, known: &Known<'_>) -> Result<usize, Error> {
    let links = find(kernel, side, known)?;
    delete_all(kernel, side, &links)
}

/// Every link on `side` that is known, in the order in which they are to be deleted.
fn find(kernel: &mut dyn Kernel, side: Side, known: &Known<'_>) -> Result<Vec<Link>, Error> {
    let mut links = links(kernel, side)?;
    links.retain(|link| known.is(side, link));
    // A bond of InfiniBand ports goes with its last port; before them, it lets them go at once.
    links.sort_by_key(|link| !is_bond(link));
    Ok(links)
}

fn delete_all(kernel: &mut dyn Kernel, side: Side, links: &[Link]) -> Result<usize, Error> {
    let mut deleted = 0;
    for link in links {
        deleted += usize::from(delete_link(kernel, side, link)?);
    }
    Ok(deleted)
}

/// Deletes every known link that the kernel returns to the host after a namespace has died; returns their number.
///
/// The kernel returns them within `THROWN_BACK_WITHIN` of `gone`, an instant at which the namespace was gone. If that time is
/// over, the function looks once. If `master` is Ethernet, it does not wait: such children end with their namespace.
///
/// # Errors
/// The kernel refused a request; what was deleted before stays deleted.
pub fn delete_thrown_back(
    kernel: &mut dyn Kernel,
    known: &Known<'_>,
    master: &str,
    gone: Instant,
) -> Result<usize, Error> {
    let deadline = gone + within();
    let mut deleted = 0;
    loop {
        let found = find(kernel, Side::Host, known)?;
        deleted += delete_all(kernel, Side::Host, &found)?;
        // A link without alias may never have been moved, so others may be yet to come back.
        if found.iter().any(|link| link.alias.is_some()) {
            // The ports of a bond come back one after the other, but the kernel holds one lock for all of them, which the
            // deletion waited for.
            return Ok(deleted + delete(kernel, Side::Host, known)?);
        }
        if Instant::now() >= deadline || !may_throw_back(&links(kernel, Side::Host)?, master) {
            return Ok(deleted);
        }
        sleep(PAUSE);
    }
}

#[cfg(not(test))]
fn within() -> Duration {
    THROWN_BACK_WITHIN
}

#[cfg(test)]
fn within() -> Duration {
    tests::within()
}

/// Whether `master` may have had `IPoIB` children; one that is gone may.
fn may_throw_back(host: &[Link], master: &str) -> bool {
    let infiniband = |link: &Link| link.layer == LinkLayer::Infiniband;
    match host.iter().find(|link| link.name == master) {
        Some(master) => infiniband(master),
        None => host.iter().any(infiniband),
    }
}

/// Deletes the link in the pod that a result names, for links that another plugin's ADD made before this binary
/// took its name over: the hardware address must be the one that was answered then.
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

/// Deletes the link called `ifname` in the pod, if it is a child whose parent is outside of the pod, and bears no attachment's
/// mark. For a namespace in which that name was free before ADD, and for a peer whose name this binary has taken over: the
/// peer's own DEL goes by the name.
pub fn delete_named(kernel: &mut dyn Kernel, ifname: &IfName) -> Result<bool, Error> {
    let link = pod_link(kernel, ifname.as_str())?;
    // IPoIB does not say where a parent is; a pod has none, but for one that was given to it whole.
    let outside = |link: &Link| link.parent_netnsid.is_some() || link.kind.as_deref() == Some("ipoib");
    match link.filter(|link| is_child(link) && outside(link) && !mark::is_sound(link)) {
        Some(link) => delete_link(kernel, Side::Pod, &link),
        None => Ok(false),
    }
}

/// The attachments to `network` that links among the host's tell of, each with one of its links.
pub fn thrown_back(kernel: &mut dyn Kernel, network: &str) -> Result<Vec<(Link, Attachment)>, Error> {
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
        // The ports of a pod's bond come back as two links of one attachment.
        if found.iter().all(|(_, known)| *known != attachment) {
            found.push((link, attachment));
        }
    }
    Ok(found)
}

/// Deletes one link; false if it was gone already.
fn delete_link(kernel: &mut dyn Kernel, side: Side, link: &Link) -> Result<bool, Error> {
    let place = match side {
        Side::Host => "on the host",
        Side::Pod => "in the pod",
    };
    kernel
        .delete_link(side, link.index)
        .map_err(|source| Error::Kernel {
            step: format!("delete {} {place}", link.name),
            source,
        })
}

/// Whether `link` is of a kind that ADD makes; whatever its group, nothing else is ever deleted.
fn is_ours(link: &Link) -> bool {
    is_child(link) || is_bond(link)
}

/// The pod's own bond, made of children.
fn is_bond(link: &Link) -> bool {
    link.kind.as_deref() == Some("bond")
}

/// Whether `link` is a child of another link.
fn is_child(link: &Link) -> bool {
    matches!(link.kind.as_deref(), Some("ipoib" | "macvlan" | "ipvlan"))
}

#[cfg(test)]
pub(crate) mod tests;
