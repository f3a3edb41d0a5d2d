// SPDX-License-Identifier: Apache-2.0
use super::device::LostState;
use super::function::{Rename, Virtual};
use super::rdma::Subsystem;
use crate::kernel::{Kernel, Side};
use common::lock::{Share, flock};
use common::netlink::{
    Added, AddrGenMode, Address, Error, IPV6_MIN_MTU, Ipv4Settings, Link, LinkChange, NewLink, RouteEntry,
    Rule,
};
use common::probe::Claim;
use ipnetwork::IpNetwork;
use nix::errno::Errno;
use std::any::Any;
use std::cell::{Ref, RefCell, RefMut};
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// The content of the two namespaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct State {
    pub(crate) host: Vec<Link>,
    pub(crate) pod: Vec<Link>,
    /// Addresses in the pod, by the index of their link.
    pub(crate) addresses: Vec<(u32, IpNetwork)>,
    /// IPv4 settings that were changed in the pod, by the index of their link.
    pub(crate) ipv4: Vec<(u32, Ipv4Settings)>,
    /// Routes in the pod.
    pub(crate) routes: Vec<RouteEntry>,
    /// Routing rules in the pod.
    pub(crate) rules: Vec<Rule>,
    pub(crate) host_routes: Vec<RouteEntry>,
    /// Addresses of the host's links.
    pub(crate) host_addresses: Vec<(u32, IpNetwork)>,
    pub(crate) rdma: Subsystem,
    pub(crate) left: LostState,
    pub(crate) functions: Vec<Virtual>,
    pub(crate) renames: Vec<Rename>,
    /// The kernel was started with `ipv6.disable=1`, or lacks the module.
    pub(crate) without_ipv6: bool,
}

/// Which requests fail; they are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// This one is refused.
    Refused(usize),
    /// This one is refused, and the pod has changed alias and group of its links before.
    Unmarked(usize),
    /// This one takes effect, but its answer is an error.
    AnswerLost(usize),
    /// This one and all later ones are refused, as after a kill of the caller.
    From(usize),
    /// Every request whose text begins with this is refused.
    Every(&'static str),
}

#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) state: State,
    /// Every request as text.
    pub(crate) log: Vec<String>,
    pub(crate) fault: Fault,
    /// Kernels before 6.14 also look a new link's name up among the host's links.
    pub(crate) names_of_host_count: bool,
    pub(crate) carrier: bool,
    /// Parents whose children get no carrier.
    pub(crate) dark: Vec<u32>,
    /// The maximum MTU of a link, whatever is requested.
    pub(crate) mtu_cap: u32,
    /// InfiniBand parents are on `ib_ipoib`'s own data path; otherwise they behave as those of mlx5.
    pub(crate) plain: bool,
    /// The name that udev gives to each new link of the host, which a network manager then brings up.
    pub(crate) udev: Option<&'static str>,
    /// The link that the pod itself adds as soon as a link is created on the host.
    pub(crate) pod_adds: Option<Link>,
    /// The answer of another host to a probe.
    pub(crate) claim: Option<Claim>,
    /// Links that the kernel has yet to return to the host, each with the number of searches on the host
    /// before that.
    pub(crate) late: Vec<(usize, Link)>,
    /// The state directory. The lock of the node there must be held during each move of an RDMA device, and while a
    /// driver is bound again.
    pub(crate) locked: Option<PathBuf>,
    /// Dropped when the links of the host are listed, such as the lock of a call that ends then.
    pub(crate) ends_at_list: Option<Box<dyn Any>>,
    pub(super) next_index: u32,
}

impl Model {
    /// Panics if no call holds the lock of the node.
    pub(super) fn require_lock(&self) {
        let Some(state) = &self.locked else { return };
        let directory = File::open(state.join("attachments")).unwrap();
        let free = flock(&directory, Share::Exclusive, Duration::ZERO).is_ok();
        assert!(
            !free,
            "an RDMA device is moved or bound again without the lock of the node"
        );
    }
}

/// Both namespaces, shared by the test and the plugin.
#[derive(Clone, Debug)]
pub(crate) struct ModelKernel {
    model: Rc<RefCell<Model>>,
    /// Whether this one was opened with the pod's namespace.
    sees_pod: bool,
}

impl ModelKernel {
    pub(crate) fn new(host: Vec<Link>) -> Self {
        let model = Model {
            state: State {
                host,
                ..State::default()
            },
            log: Vec::new(),
            fault: Fault::None,
            names_of_host_count: false,
            carrier: true,
            dark: Vec::new(),
            mtu_cap: u32::MAX,
            plain: false,
            udev: None,
            pod_adds: None,
            claim: None,
            late: Vec::new(),
            locked: None,
            ends_at_list: None,
            next_index: 100,
        };
        Self {
            model: Rc::new(RefCell::new(model)),
            sees_pod: true,
        }
    }

    /// The same kernel, as it is opened for a call.
    pub(crate) fn seeing_pod(&self, sees_pod: bool) -> Self {
        Self {
            sees_pod,
            ..self.clone()
        }
    }

    pub(crate) fn get(&self) -> Ref<'_, Model> {
        self.model.borrow()
    }

    pub(crate) fn set(&self) -> RefMut<'_, Model> {
        self.model.borrow_mut()
    }

    /// From now on requests are counted from 0 and fail as given.
    pub(crate) fn fail(&self, fault: Fault) {
        let mut model = self.set();
        model.log.clear();
        model.fault = fault;
    }

    pub(crate) fn state(&self) -> State {
        self.get().state.clone()
    }

    pub(super) fn ask<T>(
        &self,
        text: String,
        effect: impl FnOnce(&mut Model) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if text.ends_with("in Pod") && !self.sees_pod {
            return Err(Error::Socket(io::Error::from(io::ErrorKind::NotFound)));
        }
        let mut model = self.model.borrow_mut();
        let number = model.log.len();
        let fault = model.fault;
        let refused = match fault {
            Fault::Refused(n) | Fault::Unmarked(n) => n == number,
            Fault::From(n) => n <= number,
            Fault::Every(prefix) => text.starts_with(prefix),
            Fault::None | Fault::AnswerLost(_) => false,
        };
        model.log.push(text);
        model.state.let_udev_rename();
        if refused {
            if let Fault::Unmarked(_) = fault {
                for link in &mut model.state.pod {
                    (link.alias, link.group) = (None, 0);
                }
            }
            return errno(Errno::EIO);
        }
        let answer = effect(&mut model);
        if fault == Fault::AnswerLost(number) {
            return errno(Errno::EIO);
        }
        answer
    }
}

pub(crate) fn errno<T>(errno: Errno) -> Result<T, Error> {
    Err(Error::kernel(errno))
}

pub(super) fn to_io(error: Error) -> io::Error {
    io::Error::other(error)
}

impl State {
    pub(crate) fn on(&self, side: Side) -> &Vec<Link> {
        match side {
            Side::Host => &self.host,
            Side::Pod => &self.pod,
        }
    }

    pub(super) fn on_mut(&mut self, side: Side) -> &mut Vec<Link> {
        match side {
            Side::Host => &mut self.host,
            Side::Pod => &mut self.pod,
        }
    }

    /// The pod's namespace ends without DEL: `IPoIB` children return to the host, everything else is gone.
    pub(crate) fn pod_dies(&mut self) {
        let (hardware, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pod)
            .into_iter()
            .partition(|link| link.device.is_some() && link.parent.is_none());
        let refunded = others.into_iter();
        for link in refunded.filter(|link| link.kind.as_deref() == Some("ipoib")) {
            self.refund(link);
        }
        self.hardware_comes_back(hardware);
        self.addresses.clear();
        self.ipv4.clear();
        self.routes.clear();
        self.rules.clear();
        self.rdma_devices_come_back();
    }

    /// How IPv6 makes the link-local address of a new link of this MTU (`ipv6_add_dev` of `net/ipv6/addrconf.c`).
    pub(super) fn addr_gen_mode(&self, mtu: u32) -> Option<AddrGenMode> {
        (!self.without_ipv6 && mtu >= IPV6_MIN_MTU).then_some(AddrGenMode::Eui64)
    }

    /// `netns_refund`: brings a link down, and changes its index and name if they are in use on the host.
    fn refund(&mut self, mut link: Link) {
        (link.master, link.up, link.carrier) = (None, false, false);
        link.addr_gen_mode = self.addr_gen_mode(link.mtu);
        if self.host.iter().any(|other| other.index == link.index) {
            link.index = 1 + self
                .host
                .iter()
                .map(|other| other.index)
                .max()
                .unwrap_or_default();
        }
        if self.host.iter().any(|other| other.is_called(&link.name)) {
            link.name = format!("dev{}", link.index);
        }
        self.host.push(link);
    }

    pub(super) fn forget(&mut self, index: u32) {
        self.addresses.retain(|(of, _)| *of != index);
        self.ipv4.retain(|(of, _)| *of != index);
        self.routes.retain(|route| route.index != index);
    }
}

impl Model {
    /// Panics if `link` is not as the pod has it: the caller would make its frames for another link layer, or
    /// with another hardware address. A link that is down sends no frame.
    fn require_current(&self, link: &Link) -> Result<(), Error> {
        let now = self.state.pod.iter().find(|other| other.index == link.index);
        assert_eq!(
            now.map(|now| (now.layer, &now.address)),
            Some((link.layer, &link.address)),
            "frames for {} as it was before",
            link.name
        );
        match now {
            Some(now) if now.up => Ok(()),
            _ => errno(Errno::ENETDOWN),
        }
    }

    /// The kernel dismantles a dead namespace asynchronously: counts one more search on the host.
    fn pass(&mut self) {
        for (looks, _) in &mut self.late {
            *looks = looks.saturating_sub(1);
        }
        let (back, late) = self.late.drain(..).partition(|(looks, _)| *looks == 0);
        self.late = late;
        let back: Vec<(usize, Link)> = back;
        for (_, link) in back {
            self.state.refund(link);
        }
    }

    fn change(&mut self, side: Side, index: u32, change: &LinkChange<'_>) -> Result<(), Error> {
        if let Some(master) = change.master {
            return self.enslave(side, index, master);
        }
        let (cap, carrier) = (self.mtu_cap, self.is_lit(side, index));
        let lacks_secret = self.state.lacks_secret(side, index);
        let of_new_mtu = change.mtu.map(|mtu| self.state.addr_gen_mode(cap.min(mtu)));
        let taken = |name: &str| {
            let others = self.state.on(side).iter().filter(|other| other.index != index);
            others.into_iter().any(|other| other.is_called(name))
        };
        if change.name.is_some_and(taken) {
            return errno(Errno::EEXIST);
        }
        let Some(link) = self
            .state
            .on_mut(side)
            .iter_mut()
            .find(|link| link.index == index)
        else {
            return errno(Errno::ENODEV);
        };
        if change.name.is_some() && link.up {
            return errno(Errno::EBUSY);
        }
        // validate_linkmsg and, after the MTU is set, inet6_set_link_af.
        if change.addr_gen_mode.is_some() && link.addr_gen_mode.is_none() {
            return errno(Errno::EAFNOSUPPORT);
        }
        if change.addr_gen_mode == Some(AddrGenMode::StablePrivacy) && lacks_secret {
            return errno(Errno::EINVAL);
        }
        change.group.inspect(|group| link.group = *group);
        change_packet_settings(link, change);
        change
            .address
            .inspect(|address| link.address = (*address).clone());
        change.name.inspect(|name| link.name = (*name).to_owned());
        change
            .alias
            .inspect(|alias| link.alias = (!alias.is_empty()).then(|| (*alias).to_owned()));
        change.mtu.inspect(|mtu| link.mtu = cap.min(*mtu));
        let had_ipv6 = link.addr_gen_mode.is_some();
        if let Some(of_new_mtu) = of_new_mtu {
            link.addr_gen_mode = of_new_mtu.and(link.addr_gen_mode.or(of_new_mtu));
        }
        if change.addr_gen_mode.is_some() && link.addr_gen_mode.is_none() {
            return errno(Errno::EAFNOSUPPORT);
        }
        link.addr_gen_mode = change.addr_gen_mode.or(link.addr_gen_mode);
        change.up.inspect(|up| {
            link.up = *up;
            link.carrier = *up && carrier;
        });
        let link = link.clone();
        if side == Side::Host && link.addr_gen_mode.is_some() != had_ipv6 {
            self.state.renew_ipv6(&link);
        }
        self.state
            .ipv4
            .extend(change.ipv4.map(|settings| (index, settings)));
        Ok(())
    }

    fn route(&mut self, route: &RouteEntry) -> Result<Added, Error> {
        let Some(link) = self.state.pod.iter().find(|link| link.index == route.index) else {
            return errno(Errno::ENODEV);
        };
        if !link.up {
            return errno(Errno::ENETDOWN);
        }
        let near = |gw: IpAddr| {
            let link_local = matches!(gw, IpAddr::V6(v6) if v6.is_unicast_link_local());
            route.onlink || link_local || self.state.addresses.iter().any(|(_, net)| net.contains(gw))
        };
        if route.gateway.is_some_and(|gw| !near(gw)) {
            return errno(Errno::ENETUNREACH);
        }
        // fib_check_nh: a route whose scope is the link has no next hop.
        if route.gateway.is_some() && route.scope.is_some_and(|scope| scope >= 253) {
            return errno(Errno::EINVAL);
        }
        if self.state.routes.contains(route) {
            return Ok(Added::Present);
        }
        self.state.routes.push(route.clone());
        Ok(Added::New)
    }
}

impl Kernel for ModelKernel {
    fn link(&mut self, side: Side, name: &str) -> Result<Option<Link>, Error> {
        self.ask(format!("look up {name} in {side:?}"), |model| {
            let links = model.state.on(side);
            Ok(links.iter().find(|link| link.is_called(name)).cloned())
        })
    }

    fn link_by_index(&mut self, side: Side, index: u32) -> Result<Option<Link>, Error> {
        self.ask(format!("look up #{index} in {side:?}"), |model| {
            let links = model.state.on(side);
            Ok(links.iter().find(|link| link.index == index).cloned())
        })
    }

    fn driver(&mut self, _name: &str) -> io::Result<String> {
        let own_path = self.get().plain;
        Ok(if own_path {
            "ib_ipoib"
        } else {
            "mlx5_core[ib_ipoib]"
        }
        .to_owned())
    }

    fn links(&mut self, side: Side) -> Result<Vec<Link>, Error> {
        self.ask(format!("list links in {side:?}"), |model| {
            if side == Side::Host {
                model.pass();
                drop(model.ends_at_list.take());
            }
            Ok(model.state.on(side).clone())
        })
    }

    fn add_link(&mut self, side: Side, link: &NewLink<'_>, into_pod: bool) -> Result<(), Error> {
        self.ask(format!("create {} from {side:?}", link.name), |model| {
            model.create(side, link, into_pod)
        })
    }

    fn change_link(&mut self, side: Side, index: u32, change: &LinkChange<'_>) -> Result<(), Error> {
        let text = match (change.name, change.up) {
            (Some(name), _) => format!("rename #{index} to {name} in {side:?}"),
            (None, Some(true)) => format!("bring #{index} up in {side:?}"),
            (None, Some(false)) => format!("bring #{index} down in {side:?}"),
            (None, None) if change.master.is_some() => format!("enslave #{index} in {side:?}"),
            (None, None) if change.ipv4.is_some() => format!("set IPv4 of #{index} in {side:?}"),
            (None, None) => format!("change #{index} in {side:?}"),
        };
        self.ask(text, |model| model.change(side, index, change))
    }

    fn delete_link(&mut self, side: Side, index: u32) -> Result<bool, Error> {
        self.ask(format!("delete #{index} in {side:?}"), |model| {
            let links = model.state.on_mut(side);
            let place = links.iter().position(|link| link.index == index);
            let gone = place.map(|place| links.remove(place));
            let deleted = gone.is_some();
            gone.inspect(|gone| model.state.part(side, gone));
            if deleted && side == Side::Pod {
                model.state.forget(index);
            }
            Ok(deleted)
        })
    }

    fn addresses(&mut self, side: Side, index: u32) -> Result<Vec<Address>, Error> {
        self.ask(format!("list addresses of #{index} in {side:?}"), |model| {
            let all = match side {
                Side::Host => &model.state.host_addresses,
                Side::Pod => &model.state.addresses,
            };
            let of_link = all.iter().filter(|(of, _)| *of == index);
            Ok(of_link
                .map(|(_, address)| Address {
                    address: *address,
                    tentative: false,
                    dad_failed: false,
                    no_dad: true,
                    permanent: true,
                    scope: 0,
                })
                .collect())
        })
    }

    fn add_address(&mut self, index: u32, address: IpNetwork) -> Result<Added, Error> {
        self.ask(format!("give {address} to #{index}"), |model| {
            let Some(link) = model.state.pod.iter().find(|link| link.index == index) else {
                return errno(Errno::ENODEV);
            };
            // ipv6_add_dev, or no handler of the request at all.
            if address.is_ipv6() && link.addr_gen_mode.is_none() {
                return errno(if model.state.without_ipv6 {
                    Errno::EOPNOTSUPP
                } else {
                    Errno::EINVAL
                });
            }
            let addresses = &mut model.state.addresses;
            if addresses.contains(&(index, address)) {
                return Ok(Added::Present);
            }
            addresses.push((index, address));
            Ok(Added::New)
        })
    }

    fn routes(&mut self, side: Side, index: u32) -> Result<Vec<RouteEntry>, Error> {
        self.ask(format!("list routes of #{index} in {side:?}"), |model| {
            let all = match side {
                Side::Host => &model.state.host_routes,
                Side::Pod => &model.state.routes,
            };
            Ok(all.iter().filter(|route| route.index == index).cloned().collect())
        })
    }

    fn add_route(&mut self, route: &RouteEntry) -> Result<Added, Error> {
        self.ask(format!("route {} over #{}", route.dst, route.index), |model| {
            model.route(route)
        })
    }

    fn wait_for_carrier(&mut self, index: u32, _timeout: Duration) -> Result<bool, Error> {
        self.ask(format!("wait for #{index}"), |model| {
            let link = model.state.pod.iter().find(|link| link.index == index);
            Ok(link.is_some_and(|link| link.carrier))
        })
    }

    fn enable_ipv6(&mut self, ifname: &str) -> io::Result<()> {
        self.ask(format!("enable IPv6 on {ifname}"), |model| {
            let link = model.state.pod.iter().find(|link| link.is_called(ifname));
            match link.and_then(|link| link.addr_gen_mode) {
                Some(_) => Ok(()),
                // The directory of the link in /proc/sys/net/ipv6/conf is missing.
                None => errno(Errno::ENOENT),
            }
        })
        .map_err(to_io)
    }

    fn probe(&mut self, link: &Link, addresses: &[IpAddr]) -> io::Result<Option<Claim>> {
        let text = format!("probe {} on {}", addresses.len(), link.name);
        let answer = |model: &mut Model| {
            model.require_current(link)?;
            Ok(model.claim.clone())
        };
        self.ask(text, answer).map_err(to_io)
    }

    fn announce(&mut self, link: &Link, addresses: &[IpAddr]) -> io::Result<()> {
        let text = format!("announce {} of {}", addresses.len(), link.name);
        let answer = |model: &mut Model| model.require_current(link);
        self.ask(text, answer).map_err(to_io)
    }
}

fn change_packet_settings(link: &mut Link, change: &LinkChange<'_>) {
    change.flags.inspect(|flags| link.flags = *flags);
    change.tx_queue.inspect(|packets| link.tx_queue = *packets);
    change.link_mode.inspect(|mode| link.link_mode = *mode);
    change.limits.inspect(|limits| link.limits = *limits);
    change
        .broadcast
        .inspect(|address| link.broadcast = (*address).clone());
    change
        .without_xdp
        .inspect(|mode| link.xdp.retain(|other| other != mode));
}
