// SPDX-License-Identifier: Apache-2.0
use super::kernel::{ModelKernel, State, errno};
use crate::kernel::{Side, Sysctls, WholeLinks};
use common::netlink::{Added, AddrGenMode, Carried, Error, IpoibMode, Link, LinkChange, LinkInfo, Saved};
use common::rdma::Guid;
use nix::errno::Errno;
use std::io;

/// The state of the host's links that is lost when they leave it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LostState {
    /// By the index of the link.
    pub(crate) carried: Vec<(u32, Saved)>,
    /// By the name of the link.
    pub(crate) sysctls: Vec<(String, Sysctls)>,
    /// The links that run programs by tcx. They keep them in each namespace.
    pub(crate) tcx: Vec<u32>,
    /// A seccomp profile refuses `bpf(2)`.
    pub(crate) without_bpf: bool,
    /// Since Linux 6.17 `IPoIB` links are recreated in the namespace of their RDMA device.
    pub(crate) links_follow: bool,
}

/// An address, route or neighbour.
pub(crate) fn saved(what: &str) -> Saved {
    serde_json::from_value(serde_json::json!({"what": what, "message": "00"})).unwrap()
}

impl State {
    /// The kernel brings down a link that changes its namespace, and removes its addresses and routes.
    pub(super) fn strip(&mut self, link: &mut Link) {
        link.up = false;
        link.carrier = false;
        link.master = None;
        link.addr_gen_mode = self.addr_gen_mode(link.mtu);
        self.left.carried.retain(|(of, _)| *of != link.index);
        self.left.sysctls.retain(|(of, _)| *of != link.name);
        self.forget(link.index);
    }

    fn relocate(&mut self, from: Side, index: u32, change: &LinkChange<'_>) -> Result<(), Error> {
        let to = match from {
            Side::Host => Side::Pod,
            Side::Pod => Side::Host,
        };
        let Some(at) = self.on(from).iter().position(|link| link.index == index) else {
            return errno(Errno::ENODEV);
        };
        let link = self.on(from)[at].clone();
        let taken = |name: &str| self.on(to).iter().any(|other| other.is_called(name));
        let name = change.name.unwrap_or(&link.name).to_owned();
        // dev_change_net_namespace: the link keeps its name if it can, and does not move if neither name is free.
        let stays = taken(&link.name) && taken(&name) || link.altnames.iter().any(|altname| taken(altname));
        if stays || link.altnames.contains(&name) {
            return errno(Errno::EEXIST);
        }
        let refused = taken(&name);
        let index_taken = self.on(to).iter().any(|other| other.index == link.index);
        let highest = self.host.iter().chain(&self.pod).map(|link| link.index).max();
        let mut link = self.on_mut(from).remove(at);
        self.strip(&mut link);
        if index_taken {
            link.index = highest.unwrap_or_default() + 1;
        }
        // do_setlink: the name is set after the move, and the rest is skipped if the name is in use.
        if refused {
            self.on_mut(to).push(link);
            return errno(Errno::EEXIST);
        }
        link.name = name;
        link.alias = change.alias.map(str::to_owned).or(link.alias);
        link.group = change.group.unwrap_or(link.group);
        if to == Side::Host {
            self.renew_ipv6(&link);
        }
        self.on_mut(to).push(link);
        Ok(())
    }

    /// The RDMA device with this GUID moved to `to`: its `IPoIB` link is recreated, and its children are
    /// gone.
    pub(super) fn remake_ipoib(&mut self, guid: Guid, to: Side) {
        let to = if self.left.links_follow { to } else { Side::Host };
        for from in [Side::Host, Side::Pod] {
            let on_port = |link: &Link| link.address.port_guid() == Some(guid);
            let (gone, kept): (Vec<_>, Vec<_>) =
                std::mem::take(self.on_mut(from)).into_iter().partition(on_port);
            *self.on_mut(from) = kept;
            for mut link in gone {
                self.strip(&mut link);
                if link.parent.is_none() {
                    let free = |n: &u32| self.on(to).iter().all(|other| other.name != format!("ib{n}"));
                    let number = (0..1000).find(free).unwrap();
                    let info = match link.info {
                        LinkInfo::Ipoib { pkey, .. } => LinkInfo::Ipoib {
                            pkey,
                            mode: IpoibMode::Datagram,
                            umcast: false,
                        },
                        other => other,
                    };
                    let new = Link {
                        name: format!("ib{number}"),
                        // On the host it gets the index that the test's sysfs shows.
                        index: link.index % 1000 + if to == Side::Pod { 1000 } else { 0 },
                        mtu: 4092,
                        addr_gen_mode: self.addr_gen_mode(4092),
                        info,
                        device: link.device.clone(),
                        ..super::start::ipoib(0, "", 0xffff)
                    };
                    let new = Link {
                        up: false,
                        carrier: false,
                        address: link.address,
                        ..new
                    };
                    self.on_mut(to).push(new);
                    return;
                }
            }
        }
    }

    /// Hardware links survive a namespace. One whose name is in use on the host gets another name.
    pub(super) fn hardware_comes_back(&mut self, links: Vec<Link>) {
        for mut link in links {
            self.strip(&mut link);
            if self.host.iter().any(|other| other.is_called(&link.name)) {
                link.name = format!("dev{}", link.index);
            }
            self.renew_ipv6(&link);
            self.host.push(link);
        }
    }

    /// Whether the link has no secret for IPv6 addresses, which the mode `stable_secret` needs (`check_stable_privacy` of
    /// `net/ipv6/addrconf.c`).
    pub(super) fn lacks_secret(&self, side: Side, index: u32) -> bool {
        let name = self.on(side).iter().find(|link| link.index == index);
        let name = name.map(|link| link.name.as_str()).unwrap_or_default();
        let mut of_link = self.left.sysctls.iter().filter(|(of, _)| of == name);
        !of_link.any(|(_, own)| own.contains_key("ipv6/conf/stable_secret"))
    }

    /// IPv6 begins or ends on a link of the host. With `arp off` it does not look for duplicate addresses
    /// (`ipv6_add_dev`).
    pub(super) fn renew_ipv6(&mut self, link: &Link) {
        for (_, own) in self.left.sysctls.iter_mut().filter(|(of, _)| *of == link.name) {
            own.retain(|key, _| !key.starts_with("ipv6/"));
        }
        self.left.sysctls.retain(|(_, own)| !own.is_empty());
        if link.addr_gen_mode.is_some() && link.flags & Link::NO_ARP != 0 {
            let set = Sysctls::from([("ipv6/conf/accept_dad".to_owned(), "-1".to_owned())]);
            self.left.sysctls.push((link.name.clone(), set));
        }
    }
}

impl WholeLinks for ModelKernel {
    fn move_link(&mut self, from: Side, index: u32, change: &LinkChange<'_>) -> Result<(), Error> {
        let name = change.name.unwrap_or_default();
        self.ask(format!("move #{index} from {from:?} as {name}"), |model| {
            model.state.relocate(from, index, change)
        })
    }

    fn carried(&mut self, index: u32) -> Result<Carried, Error> {
        self.ask(format!("list what #{index} carries"), |model| {
            let carried = model.state.left.carried.iter().filter(|(of, _)| *of == index);
            Ok(Carried {
                saved: carried.map(|(_, saved)| saved.clone()).collect(),
                shared: Vec::new(),
            })
        })
    }

    fn restore_saved(&mut self, index: u32, saved: &Saved) -> Result<Added, Error> {
        self.ask(format!("give {} back to #{index}", saved.what), |model| {
            let carried = &mut model.state.left.carried;
            if carried.contains(&(index, saved.clone())) {
                return Ok(Added::Present);
            }
            carried.push((index, saved.clone()));
            Ok(Added::New)
        })
    }

    fn add_altname(&mut self, index: u32, name: &str) -> Result<bool, Error> {
        self.ask(format!("add altname {name} to #{index}"), |model| {
            if model.state.host.iter().any(|link| link.is_called(name)) {
                return errno(Errno::EEXIST);
            }
            let link = model.state.host.iter_mut().find(|link| link.index == index);
            link.map(|link| link.altnames.push(name.to_owned()))
                .map_or_else(|| errno(Errno::ENODEV), |()| Ok(true))
        })
    }

    fn delete_altname(&mut self, side: Side, index: u32, name: &str) -> Result<bool, Error> {
        self.ask(
            format!("delete altname {name} of #{index} in {side:?}"),
            |model| {
                let Some(link) = model
                    .state
                    .on_mut(side)
                    .iter_mut()
                    .find(|link| link.index == index)
                else {
                    return errno(Errno::ENODEV);
                };
                let before = link.altnames.len();
                link.altnames.retain(|altname| altname != name);
                Ok(link.altnames.len() < before)
            },
        )
    }

    fn change_ipoib(&mut self, side: Side, index: u32, mode: IpoibMode, umcast: bool) -> Result<(), Error> {
        self.ask(format!("set mode {mode} on #{index} in {side:?}"), |model| {
            let links = model.state.on_mut(side).iter_mut();
            match links
                .filter(|link| link.index == index)
                .map(|link| &mut link.info)
                .next()
            {
                Some(LinkInfo::Ipoib {
                    mode: is,
                    umcast: does,
                    ..
                }) => (*is, *does) = (mode, umcast),
                _ => return errno(Errno::EOPNOTSUPP),
            }
            Ok(())
        })
    }

    fn sysctls(&mut self, name: &str) -> io::Result<Sysctls> {
        self.ask(format!("read the settings of {name}"), |model| {
            let found = model.state.left.sysctls.iter().find(|(of, _)| of == name);
            Ok(found.map(|(_, values)| values.clone()).unwrap_or_default())
        })
        .map_err(io::Error::other)
    }

    fn set_sysctl(&mut self, name: &str, key: &str, value: &str) -> io::Result<()> {
        let set = self.ask(format!("set {key} of {name}"), |model| {
            let link = model.state.host.iter().find(|link| link.name == name);
            // The directory of the link in /proc/sys/net/ipv6/conf is missing.
            if key.starts_with("ipv6/") && link.is_some_and(|link| link.addr_gen_mode.is_none()) {
                return Ok(false);
            }
            let sysctls = &mut model.state.left.sysctls;
            if !sysctls.iter().any(|(of, _)| of == name) {
                sysctls.push((name.to_owned(), Sysctls::new()));
            }
            let own = sysctls.iter_mut().find(|(of, _)| of == name);
            own.map(|(_, values)| values.insert(key.to_owned(), value.to_owned()));
            // addrconf_sysctl_stable_secret of net/ipv6/addrconf.c
            if key == "ipv6/conf/stable_secret"
                && let Some(link) = model.state.host.iter_mut().find(|link| link.name == name)
            {
                link.addr_gen_mode = Some(AddrGenMode::StablePrivacy);
            }
            Ok(true)
        });
        match set {
            Ok(true) => Ok(()),
            Ok(false) => Err(io::ErrorKind::NotFound.into()),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    fn has_tcx(&mut self, index: u32) -> io::Result<bool> {
        let answer = self.ask(format!("look for tcx programs of #{index}"), |model| {
            let left = &model.state.left;
            Ok((!left.without_bpf).then(|| left.tcx.contains(&index)))
        });
        match answer {
            Ok(has) => has.ok_or_else(|| io::ErrorKind::PermissionDenied.into()),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    fn remove_tcx(&mut self, index: u32) -> io::Result<()> {
        self.ask(format!("remove the tcx programs of #{index}"), |model| {
            model.state.left.tcx.retain(|of| *of != index);
            Ok(())
        })
        .map_err(io::Error::other)
    }
}
