// SPDX-License-Identifier: Apache-2.0
//! Compares a new child with the other children of its parent. The kernel may refuse the new child because of them, or
//! change them.
//!
//! Source: `drivers/net/macvlan.c` and `drivers/net/ipvlan/ipvlan_main.c`. Both drivers register the receive handler of
//! the parent, of which a link has one (EBUSY). A macvlan child in mode passthru has its parent alone (EINVAL). A new
//! ipvlan child sets the mode of the parent, and with it that of each other child (`ipvlan_link_new`).
//!
//! A child of a child of the same kind becomes its sibling: both drivers take the parent of the latter.
//!
//! Invariant: the children of one parent fit each other. So the first child whose kind and mode are known decides.

use crate::config::{Config, Mode};
use crate::error::{Error, Step};
use crate::host::side_of;
use crate::intent::{Intent, Made};
use crate::journal::{Written, on_parent};
use crate::kernel::{Kernel, Side, link_by_index, links};
use crate::plan;
use common::netlink::{IpvlanMode, Link, LinkInfo, LinkLayer, MacvlanMode, NewLinkKind};
use std::cell::OnceCell;
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

    /// The link `link`, if it is such a child.
    fn of_link(link: &Link) -> Option<Self> {
        match link.info {
            LinkInfo::Macvlan { mode } => Some(Self::Macvlan(Some(mode))),
            LinkInfo::Ipvlan { mode } => Some(Self::Ipvlan(Some(mode))),
            _ => Self::named(link.kind.as_deref()?),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Macvlan(_) => "macvlan",
            Self::Ipvlan(_) => "ipvlan",
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

/// The children of the host's links: those of living pods, and the host's own.
pub(super) struct Siblings<'s> {
    state: &'s Path,
    /// The links of the host, listed once.
    links: OnceCell<Vec<Link>>,
}

impl<'s> Siblings<'s> {
    pub(super) fn new(state: &'s Path) -> Self {
        Self {
            state,
            links: OnceCell::new(),
        }
    }

    /// Fails if the link `name` of the host has children that do not fit the child for `config`. For a choice among
    /// masters.
    pub(super) fn require_fitting_on(
        &self,
        kernel: &mut dyn Kernel,
        config: &Config,
        name: &str,
    ) -> Result<(), Error> {
        if side_of(config) == Side::Pod || config.mode == Some(Mode::Ipoib) {
            return Ok(());
        }
        let found = kernel.link(Side::Host, name);
        let link = found.step(|| format!("look up {name}"))?;
        let Some(link) = link.filter(|link| link.layer == LinkLayer::Ethernet) else {
            return Ok(());
        };
        let Some(new) = Kind::of_new(plan::ethernet_kind(plan::mode_on(config, &link), config)) else {
            return Ok(());
        };
        self.links(kernel)?;
        self.require_fitting(kernel, &link, new).map(drop)
    }

    /// Fails if `master`, a link of the host, has children that do not fit the child `new`. Returns the name of the parent.
    ///
    /// A node has hundreds of links. So they are not listed for a child that can change no other: the kernel refuses it.
    pub(super) fn require_fitting(
        &self,
        kernel: &mut dyn Kernel,
        master: &Link,
        new: Kind,
    ) -> Result<String, Error> {
        let is_harmless = matches!(new, Kind::Macvlan(mode) if mode != Some(MacvlanMode::Passthru));
        let links = if is_harmless && self.links.get().is_none() {
            std::slice::from_ref(master)
        } else {
            self.links(kernel)?
        };
        let parent = Parent::of(kernel, master, new)?;
        let own = links.iter().filter_map(|link| parent.own_child(link)).map(Ok);
        let of_pods = on_parent(self.state, &parent.name)?;
        let of_pods = of_pods.filter_map(|of| of.map(|of| parent.child_of(&of)).transpose());
        for found in own.chain(of_pods) {
            let (old, whose) = found?;
            match new.fits(old) {
                Some(true) => break,
                Some(false) => return Err(refusal(new, old, &parent.name, &whose)),
                None => {}
            }
        }
        Ok(parent.name)
    }

    fn links(&self, kernel: &mut dyn Kernel) -> Result<&[Link], Error> {
        if self.links.get().is_none() {
            let listed = links(kernel, Side::Host)?;
            return Ok(self.links.get_or_init(|| listed));
        }
        Ok(self.links.get().map_or(&[], Vec::as_slice))
    }
}

/// The parent that the kernel gives to a new child.
struct Parent {
    index: u32,
    /// The namespace, if it is not the host's.
    netnsid: Option<i32>,
    /// Its name, or that of the master if it is in another namespace.
    name: String,
}

impl Parent {
    /// The parent of a child `new` of `master`.
    fn of(kernel: &mut dyn Kernel, master: &Link, new: Kind) -> Result<Self, Error> {
        let (index, netnsid) = plan::given_parent(master, new.name());
        let other = match netnsid {
            None if index != master.index => link_by_index(kernel, Side::Host, index)?,
            _ => None,
        };
        Ok(Self {
            index,
            netnsid,
            name: other.map_or_else(|| master.name.clone(), |link| link.name),
        })
    }

    /// The child `link` of the host, if it is one of this parent, and its description.
    fn own_child(&self, link: &Link) -> Option<(Kind, String)> {
        let is_child = link.parent == Some(self.index) && link.parent_netnsid == self.netnsid;
        let kind = Kind::of_link(link).filter(|_| is_child)?;
        Some((kind, format!("{} of this node", link.name)))
    }

    /// The child of the attachment `of`, if its pod lives and it is one of this parent, and its description.
    fn child_of(&self, of: &Written) -> Option<(Kind, String)> {
        let kind = Kind::of_intent(&of.intent).filter(|_| self.has(of) && of.lives())?;
        Some((kind, format!("that of {of}")))
    }

    /// Whether the child of `of` is on this parent, and not on an earlier link of that name.
    fn has(&self, of: &Written) -> bool {
        let mut parents = of.intent.made.iter().filter_map(Made::parent_on_host);
        parents.all(|index| index == self.index)
    }
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
