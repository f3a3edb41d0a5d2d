// SPDX-License-Identifier: Apache-2.0
//! A child of the parent, or a bond of such children: made in the pod, and deleted again.

use super::create::create;
use super::rdma::hand_over_undoably;
use super::{Attachable, Effects, JOIN_REMEDY, PodLinks, bond};
use crate::error::{Error, Step};
use crate::intent::Made;
use crate::kernel::{Kernel, Side};
use crate::mode::Mode;
use crate::plan::{Child, Plan, PodInterface};
use common::netlink::{self, IPV6_MIN_MTU, Link, LinkChange, LinkInfo};
use nix::errno::Errno;
use std::time::Duration;

impl Attachable for Plan {
    fn interface(&self) -> &PodInterface {
        &self.interface
    }

    fn carrier_timeout(&self) -> Duration {
        self.child.carrier_timeout
    }

    fn is_announced(&self) -> bool {
        self.child.mode == Mode::Ipoib
    }

    fn make(&self, effects: &mut Effects<'_, '_>) -> Result<PodLinks, Error> {
        let link = create(effects, self)?;
        let context = effects.target();
        context.made.push(Made::of(&link));
        let ports = bond::ports(context, self)?;
        let links = PodLinks { link, ports };
        // Before the links get an address: DEL releases the addresses only if none of these links is left.
        context.progress.made(&context.made)?;
        let kernel = &mut *context.kernel;
        configure(kernel, &links.link, self, bond::mtu(&links.ports, self))?;
        bond::enslave(kernel, &links)?;
        Ok(links)
    }

    fn complete_link(&self, kernel: &mut dyn Kernel, links: &PodLinks, carrier: bool) -> Result<Link, Error> {
        complete_link(kernel, links, self, carrier)
    }

    fn move_rdma(&self, effects: &mut Effects<'_, '_>) -> Result<(), Error> {
        hand_over_undoably(effects, self.interface.rdma.as_ref())
    }
}

/// Sets the alias, and the settings that must precede bringing the link up.
fn configure(kernel: &mut dyn Kernel, link: &Link, plan: &Plan, mtu: Option<u32>) -> Result<(), Error> {
    let name = &plan.interface.ifname;
    // Without IPv6 on the link the kernel refuses the whole request (`inet6_set_link_af`).
    let has_ipv6 = link.addr_gen_mode.is_some() && mtu.is_none_or(|mtu| mtu >= IPV6_MIN_MTU);
    let before = LinkChange {
        alias: Some(&plan.interface.mark.alias),
        mtu,
        addr_gen_mode: plan.child.addr_gen_mode.filter(|_| has_ipv6),
        ..LinkChange::default()
    };
    let step = || match mtu {
        Some(mtu) => format!("set MTU {mtu} on {name}"),
        None => format!("configure {name}"),
    };
    kernel.change_link(Side::Pod, link.index, &before).step(step)
}

/// Why a child of `parent` has no carrier.
fn not_joined(links: &PodLinks, parent: &str) -> String {
    let child = links.ports.first().unwrap_or(&links.link);
    let partition = match child.info {
        LinkInfo::Ipoib { pkey, .. } => format!("partition {pkey}"),
        _ => "its partition".to_owned(),
    };
    format!("it has not joined the broadcast group of {partition} through {parent}; {JOIN_REMEDY}")
}

/// Waits for the ports of a bond, and checks carrier and the MTU that the kernel set.
fn complete_link(
    kernel: &mut dyn Kernel,
    links: &PodLinks,
    plan: &Plan,
    carrier: bool,
) -> Result<Link, Error> {
    let Child {
        mode,
        carrier_timeout,
        mtu,
        ..
    } = &plan.child;
    let (link, ifname) = (&links.link, &plan.interface.ifname);
    let step = || format!("wait for the carrier of {ifname}");
    if !carrier && *mode == Mode::Ipoib {
        return Err(Error::NoCarrier {
            ifname: ifname.clone(),
            waited: *carrier_timeout,
            reason: not_joined(links, &plan.child.parent),
        });
    }
    bond::await_carrier(kernel, links, plan)?;
    let link = kernel.link_by_index(Side::Pod, link.index).step(step)?;
    let link = link.ok_or(netlink::Error::kernel(Errno::ENODEV)).step(step)?;
    match mtu {
        Some(want) if link.mtu != *want => Err(Error::MtuNotApplied {
            ifname: ifname.clone(),
            got: link.mtu,
            want: *want,
        }),
        _ => Ok(link),
    }
}
