// SPDX-License-Identifier: Apache-2.0
//! The few things this plugin asks of the kernel.
//!
//! A trait, so that a test can put itself between the plugin and the real kernel and fail any one request.

mod function;
mod policy;
mod rdma;
mod whole;

pub use function::VirtualFunctions;
pub use policy::{PolicyRouting, RAIL_SETTINGS};
pub use rdma::RdmaSubsystem;
pub use whole::{Sysctls, WholeLinks};

use crate::error;
use common::announce;
use common::ethtool;
use common::netlink::{
    Added, Address, AddressOptions, Error, Link, LinkChange, NewLink, Route, RouteEntry, Socket,
};
use common::netns::Netns;
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
    /// The plugin's own, with the parents.
    Host,
    /// The container's.
    Pod,
}

/// The host's and the pod's network namespace.
pub trait Kernel: PolicyRouting + RdmaSubsystem + VirtualFunctions + WholeLinks {
    /// The link of a name or altname.
    fn link(&mut self, side: Side, name: &str) -> Result<Option<Link>, Error>;
    /// The link of an index.
    fn link_by_index(&mut self, side: Side, index: u32) -> Result<Option<Link>, Error>;
    /// What the driver of a link on the host calls itself.
    ///
    /// # Errors
    /// There is no such link, or its driver does not say.
    fn driver(&mut self, name: &str) -> io::Result<String>;
    /// Every link.
    fn links(&mut self, side: Side) -> Result<Vec<Link>, Error>;
    /// Creates a link by a request made on `side`; with `into_pod` in the pod's namespace, else where the request is made.
    fn add_link(&mut self, side: Side, link: &NewLink<'_>, into_pod: bool) -> Result<(), Error>;
    /// Changes a link.
    fn change_link(&mut self, side: Side, index: u32, change: &LinkChange<'_>) -> Result<(), Error>;
    /// Deletes a link; false if it was not there.
    fn delete_link(&mut self, side: Side, index: u32) -> Result<bool, Error>;
    /// The addresses of a link.
    fn addresses(&mut self, side: Side, index: u32) -> Result<Vec<Address>, Error>;
    /// Gives a link in the pod an address that nobody else has: no duplicate detection delays it.
    fn add_address(&mut self, index: u32, address: IpNetwork) -> Result<Added, Error>;
    /// The routes through a link.
    fn routes(&mut self, side: Side, index: u32) -> Result<Vec<RouteEntry>, Error>;
    /// Adds a route in the pod.
    fn add_route(&mut self, route: &RouteEntry) -> Result<Added, Error>;
    /// Waits until a link in the pod has carrier; false if it has none in time.
    fn wait_for_carrier(&mut self, index: u32, timeout: Duration) -> Result<bool, Error>;
    /// Has the kernel announce the addresses of a link in the pod when it comes up, and, for `ipv6`, allows IPv6 on it,
    /// which runtimes and images like to forbid.
    fn prepare_addresses(&mut self, ifname: &str, ipv6: bool) -> io::Result<()>;
    /// Asks the neighbours of a link in the pod whether another host has one of these addresses; see
    /// [`common::probe::probe`].
    fn probe(&mut self, link: &Link, addresses: &[IpAddr]) -> io::Result<Option<Claim>>;
    /// Tells the neighbours of a link in the pod who has these addresses now.
    fn announce(&mut self, link: &Link, addresses: &[IpAddr]) -> io::Result<()>;
}

/// The link of a name or altname in the pod.
pub(crate) fn pod_link(kernel: &mut dyn Kernel, name: &str) -> Result<Option<Link>, error::Error> {
    kernel
        .link(Side::Pod, name)
        .map_err(|source| error::Error::Kernel {
            step: format!("look up {name} in the pod"),
            source,
        })
}

/// Every link of one side.
pub(crate) fn links(kernel: &mut dyn Kernel, side: Side) -> Result<Vec<Link>, error::Error> {
    kernel.links(side).map_err(|source| error::Error::Kernel {
        step: "list the links".to_owned(),
        source,
    })
}

/// The real kernel.
pub struct Namespaces<'n> {
    host: Socket<Route>,
    pod: Option<(Socket<Route>, &'n Netns)>,
    rdma: rdma::RdmaSockets,
}

impl<'n> Namespaces<'n> {
    /// Opens a socket on each side; a pod that is gone has none.
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

    fn prepare_addresses(&mut self, ifname: &str, ipv6: bool) -> io::Result<()> {
        let file = |family: &str, key: &str| format!("/proc/sys/net/{family}/conf/{ifname}/{key}");
        // /proc/sys/net shows the namespace of the thread that opens it.
        self.pod()?.1.run(|| {
            for notify in [file("ipv4", "arp_notify"), file("ipv6", "ndisc_notify")] {
                // A kernel without IPv6 has nobody to tell over it.
                if let Err(error) = fs::write(&notify, "1") {
                    tracing::debug!(notify, %error, "cannot be set");
                }
            }
            if !ipv6 {
                return Ok(());
            }
            let disable = file("ipv6", "disable_ipv6");
            if fs::read_to_string(&disable)?.trim() == "0" {
                Ok(())
            } else {
                fs::write(&disable, "0")
            }
        })?
    }

    fn probe(&mut self, link: &Link, addresses: &[IpAddr]) -> io::Result<Option<Claim>> {
        self.pod()?.1.run(|| probe::probe(link, addresses))?
    }

    fn announce(&mut self, link: &Link, addresses: &[IpAddr]) -> io::Result<()> {
        let frames = announce::frames(link, addresses);
        self.pod()?.1.run(|| announce::send(link.index, &frames))?
    }
}
