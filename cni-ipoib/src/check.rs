// SPDX-License-Identifier: Apache-2.0
//! CHECK: compares the attachment with the state that ADD left.

mod bond;

use crate::config::{Config, Master, Mode, ResolvedMaster};
use crate::device;
use crate::error::{Error, Step};
use crate::host::{Host, observe, side_of};
use crate::intent::Intent;
use crate::kernel::{Kernel, Side, link_by_index, pod_link};
use crate::mark::Mark;
use crate::netns::pod;
use crate::node::Node;
use crate::plan::{self, Child};
use crate::policy::{self, policy};
use crate::rdma;
use crate::routes::{leads_alike, route_entry};
use crate::select::resolve;
use common::cni::dispatch::Call;
use common::cni::{self, Attachment, CniResult, Delegate, IfName, Interface, IpConfig};
use common::netlink::{HwAddress, Link, LinkInfo, NewLinkKind};
use common::rdma::Sysfs;
use std::path::Path;

/// Compares the pod with `prevResult`, and asks the IPAM plugin to do the same.
///
/// # Errors
/// Code 104 with *every* difference. Additions of later plugins of the chain are not differences.
pub(crate) fn check(
    node: &Node,
    call: &Call,
    attachment: &Attachment,
    path: &Path,
) -> Result<(), cni::Error> {
    let config = Config::read(call)?;
    let ifname = &attachment.ifname;
    let prev = call.conf.prev_result()?.unwrap_or_default();
    let ours = prev
        .interfaces
        .iter()
        .position(|i| i.name == ifname.as_str() && !i.sandbox.is_empty());
    let Some(index) = ours else {
        return Err(Error::NoPrevResult(ifname.clone()).into());
    };
    let netns = pod(path, call.netns_override)?;
    let mut kernel = node.kernel(Some(&netns))?;
    let expected = Expected {
        config: &config,
        ifname,
        mark: Mark::new(&call.conf.network, attachment),
        written: node.journal(&call.conf.network).peek(attachment),
        prev: &prev,
        index,
    };
    let findings = expected.compare(&mut *kernel, &node.sysfs())?;
    if !findings.is_empty() {
        return Err(Error::Changed {
            ifname: ifname.clone(),
            findings,
        }
        .into());
    }
    match &config.ipam {
        Some(plugin) => Delegate::new(plugin, call, config.delegate_timeout)?.check(attachment, path),
        None => Ok(()),
    }
}

/// The state that ADD left, by its sources.
struct Expected<'a> {
    config: &'a Config,
    ifname: &'a IfName,
    mark: Mark,
    /// The intent of ADD, if the journal has it.
    written: Option<Intent>,
    prev: &'a CniResult,
    /// The number of the interface in `prev`.
    index: usize,
}

impl Expected<'_> {
    /// Every difference between the pod and this state.
    fn compare(&self, kernel: &mut dyn Kernel, sysfs: &Sysfs) -> Result<Vec<String>, Error> {
        let found = pod_link(kernel, self.ifname.as_str())?;
        let planned = self.planned(kernel, sysfs, found.as_ref())?;
        let mut findings = Vec::new();
        match found {
            None => findings.push(bond::gone(planned.as_ref())),
            Some(link) => self.compare_found(kernel, &link, planned.as_ref(), &mut findings)?,
        }
        if let Some(grant) = self.written.as_ref().and_then(|intent| intent.rdma.as_ref()) {
            rdma::compare(kernel, grant, &mut findings)?;
        }
        Ok(findings)
    }

    fn compare_found(
        &self,
        kernel: &mut dyn Kernel,
        link: &Link,
        planned: Option<&Planned>,
        findings: &mut Vec<String>,
    ) -> Result<(), Error> {
        let ports = if let Some(planned) = planned {
            compare_link(link, planned, &self.mark, findings);
            bond::compare(kernel, link, planned, &self.mark, findings)?
        } else {
            let was = self.written.as_ref().and_then(|intent| intent.device.as_ref());
            device::compare(was, link, findings);
            Vec::new()
        };
        compare_interface(link, &ports, &self.prev.interfaces[self.index], findings);
        let of_link = |ip: &&IpConfig| ip.interface == Some(self.index);
        let ips: Vec<IpConfig> = self.prev.ips.iter().filter(of_link).cloned().collect();
        compare_addresses(kernel, link, &ips, findings)?;
        let table = self.config.policy_routing.then(|| policy::table(&self.mark));
        findings.extend(compare_routing(kernel, link, self.prev, &ips, table)?);
        Ok(())
    }

    /// The child that should exist; `None` for a link that was moved whole, which is not on the host any
    /// more.
    fn planned(
        &self,
        kernel: &mut dyn Kernel,
        sysfs: &Sysfs,
        found: Option<&Link>,
    ) -> Result<Option<Planned>, Error> {
        if self.config.mode == Some(Mode::Device) {
            return Ok(None);
        }
        let master = self.master(kernel, sysfs)?;
        let mut host = observe(kernel, sysfs, side_of(self.config), &master)?;
        bond::follow(self.config, &mut host, found);
        let child = plan::child(self.config, &host)?;
        Ok(Some(Planned { host, child }))
    }

    /// The master that ADD chose: from the journal, or else the parent of the pod's link. Without both, the
    /// one that ADD would choose now.
    fn master(&self, kernel: &mut dyn Kernel, sysfs: &Sysfs) -> Result<ResolvedMaster, Error> {
        if let Master::Preferred(_) = self.config.master
            && let Some(name) = self.chosen(kernel)?
        {
            return Ok(ResolvedMaster::Named(name));
        }
        Ok(resolve(kernel, sysfs, &self.config.master)?.master)
    }

    fn chosen(&self, kernel: &mut dyn Kernel) -> Result<Option<String>, Error> {
        if let Some(intent) = &self.written {
            return Ok(Some(intent.master.clone()));
        }
        let Some(link) = pod_link(kernel, self.ifname.as_str())? else {
            return Ok(None);
        };
        let found = match bond::first_port(kernel, &link)? {
            Some(port) => bond::bond_below(kernel, &port)?,
            None => link_by_index(kernel, Side::Host, link.parent.unwrap_or(link.index))?,
        };
        Ok(found.map(|link| link.name))
    }
}

/// The plan that ADD would make now, and its host.
struct Planned {
    host: Host,
    child: Child,
}

fn compare_link(link: &Link, planned: &Planned, mark: &Mark, findings: &mut Vec<String>) {
    let child = &planned.child;
    let parent = match child.mode {
        Mode::Macvlan | Mode::Ipvlan => plan::given_parent(&planned.host.root, child.kind.name()).0,
        _ => child.parent_index,
    };
    if !mark.is_on(link) {
        findings.push("another program made it (its group and alias are not this attachment's)".to_owned());
    }
    // The kernel omits IFLA_LINK if it equals the link's own index, and IPoIB does not report the parent's
    // namespace. So a pod's first link seems to have no parent if the parent is the host's first link.
    if child.ports.is_empty() && link.parent.unwrap_or(link.index) != parent {
        findings.push(format!("its parent is not {}", child.parent));
    }
    if !link.up {
        findings.push("it is down".to_owned());
    }
    compare_kind(link, child, "", findings);
}

/// Each finding begins with `about`.
fn compare_kind(link: &Link, child: &Child, about: &str, findings: &mut Vec<String>) {
    match (&child.kind, &link.info) {
        (
            NewLinkKind::Ipoib { pkey, mode, .. },
            LinkInfo::Ipoib {
                pkey: is_pkey,
                mode: is_mode,
                ..
            },
        ) => {
            if let Some(want) = pkey.filter(|want| !want.matches(*is_pkey)) {
                findings.push(format!("{about}its P_Key is {is_pkey}, want {want}"));
            }
            if let Some(want) = mode.filter(|want| want != is_mode) {
                findings.push(format!("{about}its IPoIB mode is {is_mode}, want {want}"));
            }
        }
        (NewLinkKind::Macvlan { mode, .. }, LinkInfo::Macvlan { mode: is }) => {
            if mode != is {
                findings.push(format!("{about}its macvlan mode is {is}, want {mode}"));
            }
        }
        (NewLinkKind::Ipvlan { mode }, LinkInfo::Ipvlan { mode: is }) => {
            if mode != is {
                findings.push(format!("{about}its ipvlan mode is {is}, want {mode}"));
            }
        }
        (NewLinkKind::Bond { mode, .. }, LinkInfo::Bond { mode: is, .. }) => {
            if mode != is {
                findings.push(format!("{about}its bond mode is {is}, want {mode}"));
            }
        }
        _ => {
            let kind = link.kind.as_deref().unwrap_or("unknown");
            let want = child.kind.name();
            findings.push(format!("{about}it is a link of kind {kind}, want {want}"));
        }
    }
}

/// `of_ports` are addresses that are accepted besides the link's own.
fn compare_interface(link: &Link, of_ports: &[HwAddress], answered: &Interface, findings: &mut Vec<String>) {
    let mac = link.address.to_string();
    let is_answered = |mac: &str| answered.mac.eq_ignore_ascii_case(mac);
    let known = is_answered(&mac) || of_ports.iter().any(|port| is_answered(&port.to_string()));
    if !answered.mac.is_empty() && !known {
        findings.push(format!("its address is {mac}, was {}", answered.mac));
    }
    if let Some(mtu) = answered.mtu.filter(|mtu| *mtu != link.mtu) {
        findings.push(format!("its MTU is {}, was {mtu}", link.mtu));
    }
}

fn compare_addresses(
    kernel: &mut dyn Kernel,
    link: &Link,
    ips: &[IpConfig],
    findings: &mut Vec<String>,
) -> Result<(), Error> {
    let step = format!("list the addresses of {}", link.name);
    let present = kernel.addresses(Side::Pod, link.index).step(|| step)?;
    for ip in ips {
        match present.iter().find(|p| p.address == ip.address) {
            None => findings.push(format!("address {} is gone", ip.address)),
            Some(p) if p.dad_failed => {
                findings.push(format!("address {} is used by another host too", ip.address));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// The routes of this interface. In a chain the list also has the routes of other interfaces. Those have a
/// gateway in another subnet or, without a next hop, use the gateway of any interface.
fn our_routes(link: &Link, prev: &CniResult, ips: &[IpConfig]) -> Vec<cni::Route> {
    let ours = |route: &&cni::Route| {
        let of_family = |ip: &&IpConfig| ip.address.is_ipv4() == route.dst.is_ipv4();
        let alone = prev.ips.iter().filter(of_family).count() == ips.iter().filter(of_family).count();
        let near = |gw| ips.iter().any(|ip| ip.address.contains(gw));
        let want = route_entry(link.index, route, ips);
        want.gateway.is_none_or(near) && (route.gw.is_some() || alone)
    };
    prev.routes.iter().filter(ours).cloned().collect()
}

/// Compares the routes and, with a `table`, the routes in it and the rules that select it.
fn compare_routing(
    kernel: &mut dyn Kernel,
    link: &Link,
    prev: &CniResult,
    ips: &[IpConfig],
    table: Option<u32>,
) -> Result<Vec<String>, Error> {
    let mut findings = Vec::new();
    let step = format!("list the routes of {}", link.name);
    let present = kernel.routes(Side::Pod, link.index).step(|| step)?;
    let routes = our_routes(link, prev, ips);
    for route in &routes {
        let want = route_entry(link.index, route, ips);
        if !present.iter().any(|is| leads_alike(is, &want)) {
            findings.push(format!("the route to {} is gone", route.dst));
        }
    }
    if let Some(table) = table {
        let policy = policy(link.index, table, ips, &routes);
        policy::compare(kernel, &policy, &present, &mut findings)?;
    }
    Ok(findings)
}

#[cfg(test)]
mod tests;
