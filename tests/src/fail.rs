// SPDX-License-Identifier: Apache-2.0
//! A kernel that rejects selected requests and forwards all others to the real kernel.

use cni_ipoib::intent::Function;
use cni_ipoib::kernel::{
    Kernel, Namespaces, PolicyRouting, RdmaSubsystem, Side, Sysctls, VirtualFunctions, WholeLinks,
};
use cni_ipoib::{CniIpoib, OpenKernel, config::Paths};
use common::netlink::{
    Added, Address, Carried, Error, FunctionState, IpoibMode, Link, LinkChange, NetnsMode, NewLink,
    QueuePair, RdmaDevice, RdmaPort, RouteEntry, Rule, Saved,
};
use common::probe::Claim;
use common::rdma::Guid;
use ipnetwork::IpNetwork;
use nix::errno::Errno;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The requests that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refuse {
    /// The request with this number, from 1.
    Only(u32),
    /// The request with this number and all later ones, so the rollback fails too.
    From(u32),
}

/// Counts requests and selects those that fail.
#[derive(Clone, Debug)]
pub struct Faults {
    refuse: Refuse,
    seen: Arc<AtomicU32>,
}

impl Faults {
    /// Refuses the requests that `refuse` selects.
    pub fn new(refuse: Refuse) -> Self {
        Self {
            refuse,
            seen: Arc::default(),
        }
    }

    /// Whether any request was refused.
    pub fn struck(&self) -> bool {
        let (Refuse::Only(number) | Refuse::From(number)) = self.refuse;
        self.seen.load(Ordering::SeqCst) >= number
    }

    /// `cni-ipoib` on this kernel, with its attachments below `state`.
    pub fn plugin(&self, state: &Path) -> CniIpoib {
        let faults = self.clone();
        let open: OpenKernel = Box::new(move |netns| {
            Ok(Box::new(Faulty {
                kernel: Namespaces::open(netns)?,
                faults: faults.clone(),
            }))
        });
        CniIpoib::new(
            Paths {
                sysfs: "/sys".into(),
                state: state.to_owned(),
                device_info: Vec::new(),
            },
            open,
        )
    }

    fn refused(&self) -> bool {
        let number = self.seen.fetch_add(1, Ordering::SeqCst) + 1;
        match self.refuse {
            Refuse::Only(only) => number == only,
            Refuse::From(first) => number >= first,
        }
    }

    fn netlink(&self) -> Result<(), Error> {
        if self.refused() {
            return Err(Error::Kernel {
                errno: Errno::ENOBUFS,
                text: Some("refused by the test".to_owned()),
            });
        }
        Ok(())
    }

    fn io(&self) -> io::Result<()> {
        if self.refused() {
            return Err(io::Error::other("refused by the test"));
        }
        Ok(())
    }
}

struct Faulty<'n> {
    kernel: Namespaces<'n>,
    faults: Faults,
}

impl Kernel for Faulty<'_> {
    fn link(&mut self, side: Side, name: &str) -> Result<Option<Link>, Error> {
        self.faults.netlink()?;
        self.kernel.link(side, name)
    }

    fn link_by_index(&mut self, side: Side, index: u32) -> Result<Option<Link>, Error> {
        self.faults.netlink()?;
        self.kernel.link_by_index(side, index)
    }

    /// Not counted: without the driver's name, the caller takes the way that works for every driver and continues.
    fn driver(&mut self, name: &str) -> io::Result<String> {
        self.kernel.driver(name)
    }

    fn links(&mut self, side: Side) -> Result<Vec<Link>, Error> {
        self.faults.netlink()?;
        self.kernel.links(side)
    }

    fn add_link(&mut self, side: Side, link: &NewLink<'_>, into_pod: bool) -> Result<(), Error> {
        self.faults.netlink()?;
        self.kernel.add_link(side, link, into_pod)
    }

    fn change_link(&mut self, side: Side, index: u32, change: &LinkChange<'_>) -> Result<(), Error> {
        self.faults.netlink()?;
        self.kernel.change_link(side, index, change)
    }

    fn delete_link(&mut self, side: Side, index: u32) -> Result<bool, Error> {
        self.faults.netlink()?;
        self.kernel.delete_link(side, index)
    }

    fn addresses(&mut self, side: Side, index: u32) -> Result<Vec<Address>, Error> {
        self.faults.netlink()?;
        self.kernel.addresses(side, index)
    }

    fn add_address(&mut self, index: u32, address: IpNetwork) -> Result<Added, Error> {
        self.faults.netlink()?;
        self.kernel.add_address(index, address)
    }

    fn routes(&mut self, side: Side, index: u32) -> Result<Vec<RouteEntry>, Error> {
        self.faults.netlink()?;
        self.kernel.routes(side, index)
    }

    fn add_route(&mut self, route: &RouteEntry) -> Result<Added, Error> {
        self.faults.netlink()?;
        self.kernel.add_route(route)
    }

    fn wait_for_carrier(&mut self, index: u32, timeout: Duration) -> Result<bool, Error> {
        self.faults.netlink()?;
        self.kernel.wait_for_carrier(index, timeout)
    }

    fn enable_ipv6(&mut self, ifname: &str) -> io::Result<()> {
        self.faults.io()?;
        self.kernel.enable_ipv6(ifname)
    }

    fn probe(&mut self, link: &Link, addresses: &[IpAddr]) -> io::Result<Option<Claim>> {
        self.faults.io()?;
        self.kernel.probe(link, addresses)
    }

    fn announce(&mut self, link: &Link, addresses: &[IpAddr]) -> io::Result<()> {
        self.faults.io()?;
        self.kernel.announce(link, addresses)
    }
}

impl PolicyRouting for Faulty<'_> {
    fn rules(&mut self) -> Result<Vec<Rule>, Error> {
        self.faults.netlink()?;
        self.kernel.rules()
    }

    fn add_rule(&mut self, rule: &Rule) -> Result<Added, Error> {
        self.faults.netlink()?;
        self.kernel.add_rule(rule)
    }

    fn delete_rule(&mut self, rule: &Rule) -> Result<bool, Error> {
        self.faults.netlink()?;
        self.kernel.delete_rule(rule)
    }
}

impl RdmaSubsystem for Faulty<'_> {
    fn rdma_mode(&mut self) -> Result<NetnsMode, Error> {
        self.faults.netlink()?;
        self.kernel.rdma_mode()
    }

    fn rdma_devices(&mut self, side: Side) -> Result<Vec<RdmaDevice>, Error> {
        self.faults.netlink()?;
        self.kernel.rdma_devices(side)
    }

    fn rdma_ports(&mut self, side: Side, device: u32) -> Result<Vec<RdmaPort>, Error> {
        self.faults.netlink()?;
        self.kernel.rdma_ports(side, device)
    }

    /// Not counted: without the list, the caller warns and continues.
    fn rdma_queue_pairs(&mut self, device: u32) -> Result<Vec<QueuePair>, Error> {
        self.kernel.rdma_queue_pairs(device)
    }

    fn move_rdma_device(&mut self, index: u32, from: Side) -> Result<(), Error> {
        self.faults.netlink()?;
        self.kernel.move_rdma_device(index, from)
    }

    fn verbs_file(&mut self, name: &str) -> Option<String> {
        self.kernel.verbs_file(name)
    }

    fn rename_rdma_device(&mut self, side: Side, index: u32, name: &str) -> Result<(), Error> {
        self.faults.netlink()?;
        self.kernel.rename_rdma_device(side, index, name)
    }
}

impl VirtualFunctions for Faulty<'_> {
    fn set_function_guids(
        &mut self,
        physical: u32,
        number: u32,
        node: Guid,
        port: Guid,
    ) -> Result<(), Error> {
        self.faults.netlink()?;
        self.kernel.set_function_guids(physical, number, node, port)
    }

    fn function_state(&mut self, physical: u32, number: u32) -> Result<Option<FunctionState>, Error> {
        self.faults.netlink()?;
        self.kernel.function_state(physical, number)
    }

    fn set_function_state(&mut self, physical: u32, number: u32, state: FunctionState) -> Result<(), Error> {
        self.faults.netlink()?;
        self.kernel.set_function_state(physical, number, state)
    }

    fn unbind_function(&mut self, function: &Function) -> io::Result<()> {
        self.faults.io()?;
        self.kernel.unbind_function(function)
    }

    fn bind_function(&mut self, function: &Function) -> io::Result<bool> {
        self.faults.io()?;
        self.kernel.bind_function(function)
    }
}

impl WholeLinks for Faulty<'_> {
    fn move_link(&mut self, from: Side, index: u32, change: &LinkChange<'_>) -> Result<(), Error> {
        self.faults.netlink()?;
        self.kernel.move_link(from, index, change)
    }

    fn carried(&mut self, index: u32) -> Result<Carried, Error> {
        self.faults.netlink()?;
        self.kernel.carried(index)
    }

    fn restore_saved(&mut self, index: u32, saved: &Saved) -> Result<Added, Error> {
        self.faults.netlink()?;
        self.kernel.restore_saved(index, saved)
    }

    fn add_altname(&mut self, index: u32, name: &str) -> Result<bool, Error> {
        self.faults.netlink()?;
        self.kernel.add_altname(index, name)
    }

    fn delete_altname(&mut self, side: Side, index: u32, name: &str) -> Result<bool, Error> {
        self.faults.netlink()?;
        self.kernel.delete_altname(side, index, name)
    }

    fn change_ipoib(&mut self, side: Side, index: u32, mode: IpoibMode, umcast: bool) -> Result<(), Error> {
        self.faults.netlink()?;
        self.kernel.change_ipoib(side, index, mode, umcast)
    }

    fn sysctls(&mut self, name: &str) -> io::Result<Sysctls> {
        self.faults.io()?;
        self.kernel.sysctls(name)
    }

    fn set_sysctl(&mut self, name: &str, key: &str, value: &str) -> io::Result<()> {
        self.faults.io()?;
        self.kernel.set_sysctl(name, key, value)
    }

    fn has_tcx(&mut self, index: u32) -> io::Result<bool> {
        self.faults.io()?;
        self.kernel.has_tcx(index)
    }

    fn remove_tcx(&mut self, index: u32) -> io::Result<()> {
        self.faults.io()?;
        self.kernel.remove_tcx(index)
    }
}
