// SPDX-License-Identifier: Apache-2.0
//! The other children of a parent: beside them the kernel may refuse a new child, or the new child may change them.
//!
//! Source: `drivers/net/macvlan.c` and `drivers/net/ipvlan/ipvlan_main.c`. Both drivers register the receive handler of
//! the parent, of which a link has one (EBUSY). A macvlan child in mode passthru has its parent alone (EINVAL). A new
//! ipvlan child sets the mode of the parent, and with it that of each other child (`ipvlan_link_new`).
//!
//! Invariant: the children of one parent fit each other. So the first child whose kind and mode are known decides.

use crate::error::Error;
use crate::intent::{Intent, Made};
use crate::journal::{Written, on_parent};
use common::netlink::{IpvlanMode, Link, MacvlanMode, NewLinkKind};
use std::path::Path;

/// A child of an Ethernet link. `None` is a mode that is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Macvlan(Option<MacvlanMode>),
    Ipvlan(Option<IpvlanMode>),
}

impl Kind {
    /// The child that is about to be created; `None` if its parent may have any other children.
    pub(super) fn of_new(kind: NewLinkKind<'_>) -> Option<Self> {
        match kind {
            NewLinkKind::Macvlan { mode, .. } => Some(Self::Macvlan(Some(mode))),
            NewLinkKind::Ipvlan { mode } => Some(Self::Ipvlan(Some(mode))),
            _ => None,
        }
    }

    /// The child of an attachment. Earlier versions recorded no mode, but they recorded the link that they created.
    fn of_intent(intent: &Intent) -> Option<Self> {
        match (&intent.macvlan, &intent.ipvlan) {
            (Some(mode), _) => Some(Self::Macvlan(mode.parse().ok())),
            (None, Some(mode)) => Some(Self::Ipvlan(mode.parse().ok())),
            (None, None) => {
                let on_host = |made: &&Made| made.parent_on_host().is_some();
                let mut made = intent.made.iter().filter(on_host);
                made.find_map(|made| Self::named(&made.kind))
            }
        }
    }

    /// A child of this kind, in the kernel's words.
    fn named(kind: &str) -> Option<Self> {
        match kind {
            "macvlan" | "macvtap" => Some(Self::Macvlan(None)),
            "ipvlan" | "ipvtap" => Some(Self::Ipvlan(None)),
            _ => None,
        }
    }

    /// Whether the kernel creates this child beside `other` and leaves `other` unchanged; `None` if that is not known.
    fn fits(self, other: Self) -> Option<bool> {
        let is_alone = |mode| mode == Some(MacvlanMode::Passthru);
        match (self, other) {
            (Self::Macvlan(new), Self::Macvlan(old)) if is_alone(new) || is_alone(old) => Some(false),
            (Self::Macvlan(_), Self::Macvlan(old)) => old.map(|_| true),
            (Self::Ipvlan(Some(new)), Self::Ipvlan(Some(old))) => Some(new == old),
            (Self::Ipvlan(_), Self::Ipvlan(_)) => None,
            _ => Some(false),
        }
    }
}

/// Fails if a living pod has a child of `parent`, a link of the host, that does not fit the child `new`.
pub(super) fn require_fitting(state: &Path, parent: &Link, new: Kind) -> Result<(), Error> {
    for of in on_parent(state, &parent.name)?.filter(|of| is_on(of, parent) && of.lives()) {
        let Some(old) = Kind::of_intent(&of.intent) else {
            continue;
        };
        match new.fits(old) {
            Some(true) => break,
            Some(false) => return Err(refusal(new, old, &parent.name, &format!("that of {of}"))),
            None => {}
        }
    }
    Ok(())
}

/// Whether the child of `of` is on `parent`, and not on an earlier link of that name.
fn is_on(of: &Written, parent: &Link) -> bool {
    let mut parents = of.intent.made.iter().filter_map(Made::parent_on_host);
    parents.all(|index| index == parent.index)
}

/// The error for the child `new` of `parent`, which has the child `old`. `whose` names `old`.
fn refusal(new: Kind, old: Kind, parent: &str, whose: &str) -> Error {
    let occupied = |child, reason, remedy| Error::Occupied {
        master: parent.to_owned(),
        child,
        reason,
        remedy,
    };
    match (new, old) {
        (Kind::Ipvlan(Some(new)), Kind::Ipvlan(Some(old))) => Error::BadValue {
            key: "ipvlanMode",
            value: new.to_string(),
            want: format!(
                "{old}, the mode of the ipvlan children of {parent} (such as {whose}), because the kernel has one mode for all ipvlan children of a link; or name another master"
            ),
        },
        (Kind::Macvlan(_), Kind::Macvlan(Some(MacvlanMode::Passthru))) => occupied(
            "a macvlan child",
            format!(
                "it has one in mode passthru ({whose}), and the kernel gives such a child its parent alone"
            ),
            "name another master, or wait until that child is deleted",
        ),
        (Kind::Macvlan(_), Kind::Macvlan(_)) => occupied(
            "a macvlan child in mode passthru",
            format!(
                "it has macvlan children (such as {whose}), and the kernel gives such a child its parent alone"
            ),
            "name another master, or use another macvlan mode",
        ),
        (Kind::Macvlan(_), Kind::Ipvlan(_)) => occupied(
            "a macvlan child",
            format!(
                "it has ipvlan children (such as {whose}), and the kernel allows one of the two kinds on a link"
            ),
            "name another master, or use mode ipvlan",
        ),
        (Kind::Ipvlan(_), _) => occupied(
            "an ipvlan child",
            format!(
                "it has macvlan children (such as {whose}), and the kernel allows one of the two kinds on a link"
            ),
            "name another master, or use mode macvlan",
        ),
    }
}

#[cfg(test)]
mod tests;
