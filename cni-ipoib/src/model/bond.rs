// SPDX-License-Identifier: Apache-2.0
//! The bonds of the model's kernel (`drivers/net/bonding/bond_main.c`).

use super::kernel::{Model, State, errno};
use super::start::{bond, ipoib, link};
use crate::kernel::Side;
use common::netlink::{BondMode, Error, FailOverMac, Link, LinkInfo, LinkLayer, NewLink, NewLinkKind};
use nix::errno::Errno;

/// A port of a bond with the index `master`.
pub(crate) fn port_of(master: u32, link: Link) -> Link {
    Link {
        master: Some(master),
        ..link
    }
}

/// The properties of an active-backup bond with this active port.
pub(crate) fn active_backup(active: Option<u32>) -> LinkInfo {
    LinkInfo::Bond {
        mode: BondMode::ActiveBackup,
        active,
        miimon: 100,
        fail_over_mac: FailOverMac::Active,
    }
}

/// `bond0` with the ports `ib0` and `ib1`, of which the first is active.
pub(crate) fn bonded() -> Vec<Link> {
    let bond = Link {
        info: active_backup(Some(4)),
        ..bond(9, "bond0")
    };
    vec![
        port_of(9, ipoib(4, "ib0", 0xffff)),
        port_of(9, ipoib(5, "ib1", 0xffff)),
        bond,
    ]
}

impl Model {
    /// A bond without ports: an Ethernet link of MTU 1500 that is down.
    pub(super) fn create_bond(&mut self, side: Side, index: u32, new: &NewLink<'_>) -> Result<(), Error> {
        let NewLinkKind::Bond {
            mode,
            miimon,
            fail_over_mac,
            ..
        } = new.kind
        else {
            return errno(Errno::EOPNOTSUPP);
        };
        let made = Link {
            kind: Some("bond".to_owned()),
            info: LinkInfo::Bond {
                mode,
                active: None,
                miimon,
                fail_over_mac,
            },
            group: new.group,
            addr_gen_mode: self.state.addr_gen_mode(1500),
            up: false,
            carrier: false,
            ..link(LinkLayer::Ethernet, index, new.name, "02:00:00:00:00:66")
        };
        self.state.on_mut(side).push(made);
        Ok(())
    }

    /// The bond accepts a port that is down, brings it up and sets its MTU. The first port decides the layer.
    pub(super) fn enslave(&mut self, side: Side, index: u32, master: u32) -> Result<(), Error> {
        let (cap, lit) = (self.mtu_cap, self.is_lit(side, index));
        let links = self.state.on_mut(side);
        let Some(bond) = links.iter().find(|link| link.index == master).cloned() else {
            return errno(Errno::EINVAL);
        };
        let first = links.iter().all(|link| link.master != Some(master));
        let Some(port) = links.iter_mut().find(|link| link.index == index) else {
            return errno(Errno::ENODEV);
        };
        if port.up {
            return errno(Errno::EPERM);
        }
        (port.master, port.up, port.carrier) = (Some(master), true, lit);
        port.mtu = cap.min(bond.mtu);
        let (layer, address) = (port.layer, port.address.clone());
        if first && let Some(bond) = links.iter_mut().find(|link| link.index == master) {
            (bond.layer, bond.address) = (layer, address);
        }
        Ok(())
    }

    /// Whether a link would have carrier if it were up.
    pub(super) fn is_lit(&self, side: Side, index: u32) -> bool {
        let links = self.state.on(side);
        let dark = |link: &Link| {
            link.parent.is_some_and(|parent| self.dark.contains(&parent)) || self.state.is_kept_down(link)
        };
        let mut ports = links.iter().filter(|link| link.master == Some(index)).peekable();
        let found = links.iter().find(|link| link.index == index);
        self.carrier
            && match (ports.peek(), found) {
                (Some(_), _) => ports.any(|port| !dark(port)),
                (None, Some(link)) => !dark(link),
                (None, None) => true,
            }
    }
}

impl State {
    /// A deleted bond releases its ports. A bond of InfiniBand ports ends with its last port.
    pub(super) fn part(&mut self, side: Side, gone: &Link) {
        let links = self.on_mut(side);
        for port in links.iter_mut().filter(|link| link.master == Some(gone.index)) {
            (port.master, port.up, port.carrier) = (None, false, false);
        }
        if let Some(master) = gone.master
            && links.iter().all(|link| link.master != Some(master))
        {
            links.retain(|link| link.index != master || link.kind.as_deref() != Some("bond"));
        }
    }
}
