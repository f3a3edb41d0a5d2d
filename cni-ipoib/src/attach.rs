// SPDX-License-Identifier: Apache-2.0
//! Executes a [`Plan`], or leaves everything as it was.
//!
//! Invariant: addresses are allocated before the link is created and released after it is deleted, so no
//! existing interface has a released address. The undo step of each effect is registered before the effect.

mod address;
mod bond;
mod create;
mod probe;
mod rdma;

pub(crate) use address::route;

use crate::config::Mode;
use crate::device_info;
use crate::error::Error;
use crate::intent::Made;
use crate::journal::Diary;
use crate::kernel::{Kernel, Side};
use crate::plan::{Child, Plan};
use crate::policy;
use common::cni::{self, Attachment, CniResult, Delegate};
use common::netlink::{Link, LinkChange};
use common::undo::{Failure, Undo};
use create::create;
use nix::errno::Errno;
pub(crate) use probe::{address, probe};
use rdma::give_rdma;
pub(crate) use rdma::write_record;
use serde_json::Value;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Everything that ADD works with.
pub struct AttachContext<'w> {
    /// Both namespaces.
    pub kernel: &'w mut dyn Kernel,
    /// The IPAM plugin, if there is one.
    pub ipam: Option<Delegate<'w>>,
    /// The attachment.
    pub attachment: &'w Attachment,
    /// `CNI_NETNS`.
    pub netns: &'w Path,
    /// The network.
    pub network: &'w str,
    /// The state directory.
    pub state: &'w Path,
    /// The device-info file to write, and its content.
    pub device_info: Option<(PathBuf, Value)>,
    /// Records the progress of this ADD. The last step marks it as complete, and is undone like any other.
    pub diary: &'w mut dyn Diary,
    /// The links created so far.
    pub made: Vec<Made>,
    /// Whether a link was requested and is not known to be deleted. Its addresses are then not released.
    pub link_may_live: bool,
}

/// The outcome of an ADD.
#[derive(Clone, Debug)]
pub struct Attached {
    /// The link in the pod, in its present state.
    pub link: Link,
    /// The IPAM plugin's result; empty without one.
    pub ipam: CniResult,
}

/// A failed ADD, and the steps that could not be undone.
#[derive(Debug)]
pub struct Failed {
    /// The cause.
    pub error: Error,
    /// Undo steps that failed, for DEL to repeat.
    pub left: Vec<Failure>,
}

/// Attaches the pod as planned.
///
/// # Guarantees
/// On error every step is undone in reverse order. [`Failed::left`] has the steps that could not be undone.
///
/// # Assumptions
/// No other process works on this attachment, and its intent is in the journal.
pub fn attach(context: &mut AttachContext<'_>, plan: &Plan) -> Result<Attached, Failed> {
    let mut undo = Undo::new(context);
    match steps(&mut undo, plan) {
        Ok(attached) => {
            undo.commit();
            Ok(attached)
        }
        Err(error) => Err(Failed {
            error,
            left: undo.rollback(),
        }),
    }
}

fn steps(undo: &mut Undo<'_, AttachContext<'_>>, plan: &Plan) -> Result<Attached, Error> {
    let ipam = allocate(undo)?;
    let link = create(undo, plan)?;
    let ports = bond::ports(undo, plan)?;
    write_down(undo, &link, &ports)?;
    let kernel = &mut *undo.target().kernel;
    configure(kernel, &link, plan, bond::mtu(&ports, plan))?;
    bond::enslave(kernel, &link, &ports)?;
    address(kernel, &link, &ipam.ips)?;
    if plan.policy_table.is_some() {
        policy::prepare(kernel, &link, &ipam.ips)?;
    }
    bring_up(kernel, &link)?;
    probe(kernel, &link, &ipam.ips, plan.child.carrier_timeout)?;
    route(kernel, &link, &ipam)?;
    apply_policy(undo, &link, plan.policy_table, &ipam)?;
    let kernel = &mut *undo.target().kernel;
    let link = await_carrier(kernel, &link, &ports, plan)?;
    give_rdma(undo, plan)?;
    write_device_info(undo)?;
    let kernel = &mut *undo.target().kernel;
    let addresses: Vec<IpAddr> = ipam.ips.iter().map(|ip| ip.address.ip()).collect();
    // The kernel announced the addresses when the link came up, but an IPoIB link had not joined its groups
    // by then, and those packets were lost. Only IPoIB announces again, because closing a packet socket waits
    // for RCU: 14 ms of an ADD that takes 4. The pod works without it; neighbours that cached another owner
    // take longer to notice. A probed address was added after the link came up, so the kernel has not
    // announced it on any link.
    if (plan.child.mode == Mode::Ipoib || ipam.ips.iter().any(|ip| ip.probe))
        && let Err(error) = kernel.announce(&link, &addresses)
    {
        tracing::warn!(link = %plan.ifname, %error, "cannot announce the addresses to the neighbours");
    }
    undo.target().diary.finish()?;
    Ok(Attached { link, ipam })
}

/// Allocates addresses from the IPAM plugin.
pub(crate) fn allocate(undo: &mut Undo<'_, AttachContext<'_>>) -> Result<CniResult, Error> {
    let context = undo.target();
    let Some(ipam) = context.ipam.clone() else {
        return Ok(CniResult::default());
    };
    let (attachment, netns) = (context.attachment, context.netns);
    // Registered before the call: a plugin that is killed at its time limit may have allocated already.
    undo.remember("release the addresses", |context| match &context.ipam {
        Some(_) if context.link_may_live => Err("the link that has them could not be deleted".to_owned()),
        Some(ipam) => ipam
            .del(context.attachment, Some(context.netns))
            .map_err(|e| cni::error::causes(&e)),
        None => Ok(()),
    });
    let result = ipam.add(attachment, netns)?;
    if result.ips.is_empty() {
        return Err(Error::NoAddress(ipam.plugin().to_owned()));
    }
    Ok(result)
}

/// Adds the routing policy of a link that is up, if there is one.
pub(crate) fn apply_policy(
    undo: &mut Undo<'_, AttachContext<'_>>,
    link: &Link,
    table: Option<u32>,
    ipam: &CniResult,
) -> Result<(), Error> {
    let Some(table) = table.filter(|_| !ipam.ips.is_empty()) else {
        return Ok(());
    };
    undo.remember("take the routing rules away", move |context| {
        policy::remove(context.kernel, table).map_err(|e| cni::error::causes(&e))
    });
    let policy = policy::policy(link.index, table, &ipam.ips, &ipam.routes);
    policy::apply(undo.target().kernel, link, &policy)
}

/// Records the properties of the links that the pod cannot change, before the links get an address. DEL
/// releases the addresses only if none of these links is left.
fn write_down(
    undo: &mut Undo<'_, AttachContext<'_>>,
    link: &Link,
    ports: &[bond::Port<'_>],
) -> Result<(), Error> {
    let context = undo.target();
    let links = std::iter::once(link).chain(ports.iter().map(bond::Port::link));
    context.made = links.map(Made::of).collect();
    context.diary.made(&context.made)
}

/// Sets the alias, and the settings that must precede bringing the link up.
fn configure(kernel: &mut dyn Kernel, link: &Link, plan: &Plan, mtu: Option<u32>) -> Result<(), Error> {
    let name = &plan.ifname;
    let before = LinkChange {
        alias: Some(&plan.mark.alias),
        mtu,
        addr_gen_mode: plan.child.addr_gen_mode,
        ..LinkChange::default()
    };
    let step = match mtu {
        Some(mtu) => format!("set MTU {mtu} on {name}"),
        None => format!("configure {name}"),
    };
    kernel
        .change_link(Side::Pod, link.index, &before)
        .map_err(|source| Error::Kernel { step, source })
}

/// A separate request: in one request the kernel brings a link up before it sets the address generation mode.
/// It comes after the addresses, because the kernel announces them when the link comes up.
pub(crate) fn bring_up(kernel: &mut dyn Kernel, link: &Link) -> Result<(), Error> {
    let up = LinkChange {
        up: Some(true),
        ..LinkChange::default()
    };
    let step = || format!("bring {} up", link.name);
    kernel
        .change_link(Side::Pod, link.index, &up)
        .map_err(|source| Error::Kernel { step: step(), source })
}

/// Waits for carrier and checks the MTU that the kernel set.
fn await_carrier(
    kernel: &mut dyn Kernel,
    link: &Link,
    ports: &[bond::Port<'_>],
    plan: &Plan,
) -> Result<Link, Error> {
    let Child {
        mode,
        carrier_timeout,
        mtu,
        ..
    } = &plan.child;
    let step = || format!("wait for the carrier of {}", plan.ifname);
    let carrier = kernel
        .wait_for_carrier(link.index, *carrier_timeout)
        .map_err(|source| Error::Kernel { step: step(), source })?;
    if !carrier && *mode == Mode::Ipoib {
        return Err(Error::NoCarrier {
            ifname: plan.ifname.clone(),
            waited: *carrier_timeout,
            reason: format!(
                "it could not join its partition's broadcast group through {}; does the subnet manager know the partition, and is this port a full member?",
                plan.child.parent
            ),
        });
    }
    bond::await_carrier(kernel, link, ports, plan)?;
    let link = kernel
        .link_by_index(Side::Pod, link.index)
        .map_err(|source| Error::Kernel { step: step(), source })?
        .ok_or_else(|| Error::Kernel {
            step: step(),
            source: common::netlink::Error::Kernel {
                errno: Errno::ENODEV,
                text: None,
            },
        })?;
    match mtu {
        Some(want) if link.mtu != *want => Err(Error::MtuNotApplied {
            ifname: plan.ifname.clone(),
            got: link.mtu,
            want: *want,
        }),
        _ => Ok(link),
    }
}

pub(crate) fn write_device_info(undo: &mut Undo<'_, AttachContext<'_>>) -> Result<(), Error> {
    let Some((file, content)) = undo.target().device_info.clone() else {
        return Ok(());
    };
    let written = file.clone();
    undo.remember("remove the device-info file", move |_| {
        device_info::remove(&written)
    });
    device_info::write(&file, &content)
}

#[cfg(test)]
mod tests;
