// SPDX-License-Identifier: Apache-2.0
//! The requests of this plugin to the kernel.
//!
//! They are a trait, so that a test can fail any single request to the real kernel.

mod device;
mod function;
mod policy;
mod rdma;

pub use crate::intent::Sysctls;
pub use device::WholeLinks;
pub use function::VirtualFunctions;
pub use policy::PolicyRouting;
pub use rdma::RdmaSubsystem;

use crate::error::{self, Step};
use common::announce;
use common::ethtool;
use common::netlink::{
    Added, Address, AddressOptions, Error, Link, LinkChange, NewLink, Route, RouteEntry, Socket,
};
use common::netns::Netns;
use common::packet::PacketSocket;
use common::probe::{self, Claim};
use ipnetwork::IpNetwork;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// One of the two namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The plugin's own namespace, with the parents.
    Host,
    /// The container's.
    Pod,
}

/// The host's and the pod's network namespace.
pub trait Kernel: PolicyRouting + RdmaSubsystem + VirtualFunctions + WholeLinks {
    /// The link with a name or altname.
    fn link(&mut self, side: Side, name: &str) -> Result<Option<Link>, Error>;
    /// The link with an index.
    fn link_by_index(&mut self, side: Side, index: u32) -> Result<Option<Link>, Error>;
    /// The name of the driver of a link on the host, by the driver's own report.
    ///
    /// # Errors
    /// The link does not exist, or its driver reports no name.
    fn driver(&mut self, name: &str) -> io::Result<String>;
    /// Every link.
    fn links(&mut self, side: Side) -> Result<Vec<Link>, Error>;
    /// Creates a link by a request on `side`: with `into_pod` in the pod's namespace, else in the namespace
    /// of the request.
    fn add_link(&mut self, side: Side, link: &NewLink<'_>, into_pod: bool) -> Result<(), Error>;
    /// Changes a link.
    fn change_link(&mut self, side: Side, index: u32, change: &LinkChange<'_>) -> Result<(), Error>;
    /// Deletes a link. Returns `false` if it does not exist.
    fn delete_link(&mut self, side: Side, index: u32) -> Result<bool, Error>;
    /// The addresses of a link.
    fn addresses(&mut self, side: Side, index: u32) -> Result<Vec<Address>, Error>;
    /// Adds an address to a link in the pod. The address is unique, so no duplicate detection delays it.
    fn add_address(&mut self, index: u32, address: IpNetwork) -> Result<Added, Error>;
    /// The routes through a link.
    fn routes(&mut self, side: Side, index: u32) -> Result<Vec<RouteEntry>, Error>;
    /// Adds a route in the pod.
    fn add_route(&mut self, route: &RouteEntry) -> Result<Added, Error>;
    /// Waits until a link in the pod has carrier. Returns `false` after `timeout`.
    fn wait_for_carrier(&mut self, index: u32, timeout: Duration) -> Result<bool, Error>;
    /// Enables IPv6 on a link in the pod, which runtimes and images often disable, and on `lo`, through which the
    /// pod reaches its own addresses. Makes the kernel announce the link's IPv6 addresses when it comes up, and
    /// keep them while it is down.
    ///
    /// # Errors
    /// IPv6 cannot be enabled on the link. Another setting that cannot be changed is a warning.
    fn enable_ipv6(&mut self, ifname: &str) -> io::Result<()>;
    /// Asks the neighbours of a link in the pod whether another host has one of these addresses; see
    /// [`common::probe::probe`].
    fn probe(&mut self, link: &Link, addresses: &[IpAddr]) -> io::Result<Option<Claim>>;
    /// Announces these addresses to the neighbours of a link in the pod.
    fn announce(&mut self, link: &Link, addresses: &[IpAddr]) -> io::Result<()>;
}

/// The link with a name or altname in the pod.
pub(crate) fn pod_link(kernel: &mut dyn Kernel, name: &str) -> Result<Option<Link>, error::Error> {
    kernel
        .link(Side::Pod, name)
        .step(|| format!("look up {name} in the pod"))
}

/// The link with an index on one side.
pub(crate) fn link_by_index(
    kernel: &mut dyn Kernel,
    side: Side,
    index: u32,
) -> Result<Option<Link>, error::Error> {
    let found = kernel.link_by_index(side, index);
    found.step(|| format!("look up link {index}"))
}

/// Every link of one side.
pub(crate) fn links(kernel: &mut dyn Kernel, side: Side) -> Result<Vec<Link>, error::Error> {
    kernel.links(side).step(|| "list the links".to_owned())
}

/// Changes an IPv6 setting of a link in the calling thread's namespace, unless it has the value.
fn set_ipv6(link: &str, key: &str, value: &str) -> io::Result<()> {
    let file = format!("/proc/sys/net/ipv6/conf/{link}/{key}");
    if fs::read_to_string(&file)?.trim() == value {
        Ok(())
    } else {
        fs::write(&file, value)
    }
}

/// The real kernel.
pub struct Namespaces<'n> {
    host: Socket<Route>,
    pod: Option<(Socket<Route>, &'n Netns)>,
    rdma: rdma::RdmaSockets,
}

impl<'n> Namespaces<'n> {
    /// Opens a socket in each namespace; without a pod only in the host's.
    pub fn open(netns: Option<&'n Netns>) -> Result<Self, Error> {
        let pod = netns
            .map(|netns| Ok::<_, Error>((Socket::open_in(netns)?, netns)))
            .transpose()?;
        Ok(Self {
            host: Socket::open()?,
            pod,
            rdma: rdma::RdmaSockets::default(),
        })
    }

    fn on(&mut self, side: Side) -> Result<&mut Socket<Route>, Error> {
        match side {
            Side::Host => Ok(&mut self.host),
            Side::Pod => Ok(self.pod()?.0),
        }
    }

    fn pod(&mut self) -> io::Result<(&mut Socket<Route>, &'n Netns)> {
        match &mut self.pod {
            Some((socket, netns)) => Ok((socket, netns)),
            None => Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the container's namespace is gone",
            )),
        }
    }
}

impl Kernel for Namespaces<'_> {
    fn link(&mut self, side: Side, name: &str) -> Result<Option<Link>, Error> {
        self.on(side)?.link(name)
    }

    fn link_by_index(&mut self, side: Side, index: u32) -> Result<Option<Link>, Error> {
        self.on(side)?.link_by_index(index)
    }

    fn driver(&mut self, name: &str) -> io::Result<String> {
        ethtool::driver(name)
    }

    fn links(&mut self, side: Side) -> Result<Vec<Link>, Error> {
        self.on(side)?.links()
    }

    fn add_link(&mut self, side: Side, link: &NewLink<'_>, into_pod: bool) -> Result<(), Error> {
        let netns: Option<BorrowedFd<'_>> = if into_pod {
            Some(self.pod()?.1.as_fd())
        } else {
            None
        };
        let link = NewLink { netns, ..*link };
        self.on(side)?.add_link(&link)
    }

    fn change_link(&mut self, side: Side, index: u32, change: &LinkChange<'_>) -> Result<(), Error> {
        self.on(side)?.change_link(index, change)
    }

    fn delete_link(&mut self, side: Side, index: u32) -> Result<bool, Error> {
        self.on(side)?.delete_link(index)
    }

    fn addresses(&mut self, side: Side, index: u32) -> Result<Vec<Address>, Error> {
        self.on(side)?.addresses(index)
    }

    fn add_address(&mut self, index: u32, address: IpNetwork) -> Result<Added, Error> {
        self.on(Side::Pod)?
            .add_address(index, address, AddressOptions { no_dad: true })
    }

    fn routes(&mut self, side: Side, index: u32) -> Result<Vec<RouteEntry>, Error> {
        self.on(side)?.routes(index)
    }

    fn add_route(&mut self, route: &RouteEntry) -> Result<Added, Error> {
        self.on(Side::Pod)?.add_route(route)
    }

    fn wait_for_carrier(&mut self, index: u32, timeout: Duration) -> Result<bool, Error> {
        self.on(Side::Pod)?.wait_for_carrier(index, timeout)
    }

    fn enable_ipv6(&mut self, ifname: &str) -> io::Result<()> {
        // /proc/sys/net shows the namespace of the thread that opens it. Netlink changes none of these settings
        // (`inet6_set_link_af` of `net/ipv6/addrconf.c`).
        self.pod()?.1.run(|| {
            set_ipv6(ifname, "disable_ipv6", "0")?;
            for (link, key, value) in [
                ("lo", "disable_ipv6", "0"),
                (ifname, "ndisc_notify", "1"),
                (ifname, "keep_addr_on_down", "1"),
            ] {
                if let Err(error) = set_ipv6(link, key, value) {
                    tracing::warn!(link, key, %error, "cannot change an IPv6 setting");
                }
            }
            Ok(())
        })?
    }

    fn probe(&mut self, link: &Link, addresses: &[IpAddr]) -> io::Result<Option<Claim>> {
        let netns = self.pod()?.1;
        let replies = match (probe::receiver_of_replies(link), link.parent_netnsid) {
            (None, _) => None,
            (Some(parent), None) => Some(netns.run(|| PacketSocket::arp_receiver(parent))??),
            // The child was created by a request on the host.
            (Some(parent), Some(_)) => Some(PacketSocket::arp_receiver(parent)?),
        };
        netns.run(|| probe::probe(link, addresses, replies.as_ref()))?
    }

    fn announce(&mut self, link: &Link, addresses: &[IpAddr]) -> io::Result<()> {
        let frames = announce::frames(link, addresses);
        self.pod()?.1.run(|| announce::send(link.index, &frames))?
    }
}
