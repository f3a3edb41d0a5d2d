// SPDX-License-Identifier: Apache-2.0
//! The creation of links in the model, as in the kernel and its drivers.

use super::kernel::{Model, State, errno};
use super::start::link;
use crate::kernel::Side;
use common::netlink::{Error, HwAddress, IpoibMode, Link, LinkInfo, MacvlanMode, NewLink, NewLinkKind};
use common::rdma::Pkey;
use nix::errno::Errno;

impl State {
    /// `ipvlan_link_new` sets the mode of the parent, and with it that of each ipvlan child of the parent.
    fn set_ipvlan_mode(&mut self, made: &Link) {
        if !matches!(made.info, LinkInfo::Ipvlan { .. }) {
            return;
        }
        let all = self.host.iter_mut().chain(&mut self.pod);
        for link in all.filter(|link| link.kind == made.kind && link.parent == made.parent) {
            link.info = made.info.clone();
        }
    }

    /// A link has one receive handler, of macvlan (`macvlan_port_create`) or of ipvlan (`ipvlan_port_create`). A macvlan
    /// child in mode passthru is the only one of its parent (`macvlan_common_newlink`).
    fn require_fitting(&self, side: Side, made: &Link) -> Result<(), Error> {
        let passthru = LinkInfo::Macvlan {
            mode: MacvlanMode::Passthru,
        };
        let is_passthru = |link: &Link| link.info == passthru;
        let of_parent = |of: Side| {
            let is_child = move |link: &&Link| {
                let parent_is_there = link.parent_netnsid.is_none() == (of == side);
                link.parent == made.parent && parent_is_there
            };
            self.on(of).iter().filter(is_child)
        };
        for other in of_parent(Side::Host).chain(of_parent(Side::Pod)) {
            match (made.kind.as_deref(), other.kind.as_deref()) {
                (Some("macvlan"), Some("ipvlan")) | (Some("ipvlan"), Some("macvlan")) => {
                    return errno(Errno::EBUSY);
                }
                (Some("macvlan"), Some("macvlan")) if is_passthru(made) || is_passthru(other) => {
                    return errno(Errno::EINVAL);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Model {
    pub(super) fn create(&mut self, side: Side, new: &NewLink<'_>, into_pod: bool) -> Result<(), Error> {
        let target = if into_pod { Side::Pod } else { side };
        let taken = |links: &Vec<Link>| links.iter().any(|link| link.is_called(new.name));
        if taken(self.state.on(target)) || self.names_of_host_count && taken(self.state.on(side)) {
            return errno(Errno::EEXIST);
        }
        if matches!(new.kind, NewLinkKind::Bond { .. }) {
            self.next_index += 1;
            return self.create_bond(target, self.next_index, new);
        }
        let parents = self.state.on(side);
        let Some(parent) = parents.iter().find(|link| link.index == new.parent).cloned() else {
            return errno(Errno::ENODEV);
        };
        self.next_index += 1;
        let mut made = link(parent.layer, self.next_index, new.name, "");
        made.address = new.address.cloned().unwrap_or_else(|| parent.address.clone());
        made.mtu = parent.mtu;
        made.addr_gen_mode = self.state.addr_gen_mode(made.mtu);
        made.group = new.group;
        made.up = false;
        made.carrier = false;
        (made.kind, made.info) = kind(new.kind);
        made.parent = Some(lower(&made, &parent));
        if target != side && made.kind.as_deref() != Some("ipoib") {
            made.parent_netnsid = Some(0);
        }
        if made.kind.as_deref() == Some("ipoib") {
            made.address = queue_pair(&parent.address, made.index);
            if parent.parent.is_some() || !has_mode_of(&parent, &made) {
                return errno(Errno::EINVAL);
            }
            self.accelerate(&parent, target)?;
        }
        if made.kind.as_deref() == Some("macvlan") && new.address.is_none() {
            made.address = HwAddress::new([0x02, 0, 0, 0, 0, 0x77]);
        }
        if let (Side::Host, Some(name)) = (target, self.udev) {
            made.name = name.to_owned();
            (made.up, made.carrier) = (true, true);
        }
        self.state.require_fitting(side, &made)?;
        self.state.set_ipvlan_mode(&made);
        self.state.on_mut(target).push(made);
        if target == Side::Host {
            let added = self.pod_adds.take();
            self.state.pod.extend(added);
        }
        Ok(())
    }

    /// The behaviour of mlx5 while the kernel registers a child (`mlx5i_pkey_dev_init`): it looks up the
    /// parent's index in the child's namespace, and uses any link with that index as the parent.
    fn accelerate(&self, parent: &Link, target: Side) -> Result<(), Error> {
        if self.plain {
            return Ok(());
        }
        let found = self
            .state
            .on(target)
            .iter()
            .find(|link| link.index == parent.index);
        match found {
            None => errno(Errno::EINVAL),
            Some(found) if found != parent => panic!(
                "kernel corruption: mlx5 takes the pod's {} for the parent {}",
                found.name, parent.name
            ),
            // mlx5i_pkey_open and receive use the parent, which must be up.
            Some(_) => Ok(()),
        }
    }
}

/// Whether `parent` has the mode of the `IPoIB` child `made`. A link whose address lacks the flag RC has only datagram mode.
fn has_mode_of(parent: &Link, made: &Link) -> bool {
    let connected = matches!(
        made.info,
        LinkInfo::Ipoib {
            mode: IpoibMode::Connected,
            ..
        }
    );
    !connected || parent.address.takes_connections()
}

/// The index of the parent that `made` gets. The drivers macvlan and ipvlan take the one below a link of their kind.
fn lower(made: &Link, parent: &Link) -> u32 {
    let below = parent.parent.filter(|_| made.kind == parent.kind);
    let is_sibling = matches!(made.kind.as_deref(), Some("macvlan" | "ipvlan"));
    below.filter(|_| is_sibling).unwrap_or(parent.index)
}

/// The address of a child: its parent's, with its own queue pair.
fn queue_pair(parent: &HwAddress, number: u32) -> HwAddress {
    let mut bytes = parent.as_bytes().to_vec();
    if let Some(pair) = bytes.get_mut(1..4) {
        pair.copy_from_slice(&number.to_be_bytes()[1..]);
    }
    HwAddress::new(bytes)
}

fn kind(kind: NewLinkKind<'_>) -> (Option<String>, LinkInfo) {
    let (name, info) = match kind {
        NewLinkKind::Ipoib { pkey, mode, umcast } => (
            "ipoib",
            LinkInfo::Ipoib {
                // IPoIB makes every child a full member.
                pkey: Pkey(pkey.unwrap().0 | 0x8000),
                mode: mode.unwrap(),
                umcast: umcast.unwrap_or_default(),
            },
        ),
        NewLinkKind::Macvlan { mode, .. } => ("macvlan", LinkInfo::Macvlan { mode }),
        NewLinkKind::Ipvlan { mode } => ("ipvlan", LinkInfo::Ipvlan { mode }),
        other => panic!("the plugin makes no {other:?}"),
    };
    (Some(name.to_owned()), info)
}
