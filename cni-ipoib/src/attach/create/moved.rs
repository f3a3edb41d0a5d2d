// SPDX-License-Identifier: Apache-2.0
//! A child that is created beside its parent and then moved into the pod.
//!
//! Between the two requests the child is a link of the host, where udev may rename it and a network manager
//! may bring it up. So requests address it by its index, which never changes, and it is found by its mark.
//!
//! Invariant: after the creating request the child is identified only by its index and its mark. The move,
//! the pod's name and the alias are one request. Source: `do_setlink` in `net/core/rtnetlink.c` of Linux 5.10
//! to 7.2 changes the namespace first, then the name, then the alias. `dev_change_net_namespace` brings a
//! link down that is up. If the name is in use in the pod, the link may stay in the pod under its temporary
//! name, where it is found by the mark's group.

use super::{Creation, found};
use crate::detach::{self, Known};
use crate::error::{Error, Step};
use crate::kernel::{Kernel, Side, links};
use crate::mark::Mark;
use common::netlink::{self, Link, LinkChange};
use nix::errno::Errno;

/// Creates the child on the host and moves it into the pod.
pub(super) fn create_and_move(kernel: &mut dyn Kernel, new: &Creation<'_>) -> Result<Link, Error> {
    let temporary = create(kernel, new)?;
    let link = on_host(kernel, new, &temporary)?;
    let enter = LinkChange {
        name: Some(new.name),
        alias: Some(&new.mark.alias),
        ..LinkChange::default()
    };
    kernel
        .move_link(Side::Host, link.index, &enter)
        .step(|| format!("move {} into the pod as {}", link.name, new.name))?;
    found(kernel, new, new.name)
}

/// Creates the child under the first of its temporary names that no other link of the host has.
fn create(kernel: &mut dyn Kernel, new: &Creation<'_>) -> Result<String, Error> {
    let Creation { child, name, mark } = new;
    for attempt in 0..Mark::TEMPORARY_NAMES {
        let temporary = mark.temporary(attempt);
        match kernel.add_link(Side::Host, &new.link(&temporary), false) {
            Ok(()) => return Ok(temporary),
            // An earlier ADD of this attachment was killed here, and its journal entry is gone: this ADD
            // holds the attachment's lock.
            Err(e) if e.is(Errno::EEXIST) => {
                detach::delete(kernel, Side::Host, &Known::marked(mark))?;
            }
            refused => {
                let hint = queue_hint(&child.parent, refused.as_ref().err());
                refused.step(|| {
                    format!(
                        "create {name} on {} (as {temporary}, to be moved){hint}",
                        child.parent
                    )
                })?;
            }
        }
    }
    let taken: Vec<String> = (0..Mark::TEMPORARY_NAMES)
        .map(|attempt| mark.temporary(attempt))
        .collect();
    Err(netlink::Error::kernel(Errno::EEXIST)).step(|| {
        format!(
            "create {name} on {}: the host has links named {}; rename one",
            child.parent,
            taken.join(", ")
        )
    })
}

/// What EINVAL can mean. Source: `mlx5i_pkey_dev_init` refuses a child that has fewer receive queues than its parent, and
/// `ipoib_get_max_num_queues` gives a child at most 128.
fn queue_hint(parent: &str, error: Option<&netlink::Error>) -> String {
    if !error.is_some_and(|e| e.is(Errno::EINVAL)) {
        return String::new();
    }
    format!(
        "; if {parent} has more than 128 receive queues, its driver refuses children: run `ethtool -L {parent} combined 128` on the node"
    )
}

/// The child that was just created, even if it was renamed.
fn on_host(kernel: &mut dyn Kernel, new: &Creation<'_>, temporary: &str) -> Result<Link, Error> {
    let step = || format!("find {temporary} on the host after creating it");
    let named = kernel.link(Side::Host, temporary).step(step)?;
    if let Some(link) = named.filter(|link| new.mark.is_on(link)) {
        return Ok(link);
    }
    let ours = |link: &Link| {
        let child_of = link.kind.as_deref() == Some("ipoib") && link.parent == Some(new.child.parent_index);
        child_of && new.mark.is_on(link)
    };
    let renamed = links(kernel, Side::Host)?.into_iter().find(ours);
    renamed.ok_or(netlink::Error::kernel(Errno::ENODEV)).step(step)
}
