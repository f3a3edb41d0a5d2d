// SPDX-License-Identifier: Apache-2.0
//! Executes a plan, or leaves everything as it was. Every kind of interface takes the same steps; a kind is
//! an [`Attachable`].
//!
//! Invariant: addresses are allocated before the link is created and released after it is deleted, so no
//! existing interface has a released address. The undo step of each effect is registered before the effect.

mod address;
mod bond;
mod child;
mod create;
mod device;
mod probe;
mod rdma;

use crate::device_info;
use crate::error::{Error, Step};
use crate::intent::Made;
use crate::journal::Progress;
use crate::kernel::{Kernel, Side};
use crate::plan::PodInterface;
use crate::policy;
use address::{prepare, route};
use common::cni::{self, Attachment, CniResult, Delegate, UNFINISHED};
use common::netlink::{Link, LinkChange};
use common::undo::{NotUndone, Undo};
use probe::{address, probe};
use rdma::write_record;
use serde_json::Value;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The remedy for an `IPoIB` link that has not joined its group. The kernel logs the refusal of a join, and does not log
/// a join without a response (`ipoib_mcast_join_complete` of `drivers/infiniband/ulp/ipoib/ipoib_multicast.c`).
const JOIN_REMEDY: &str = "if dmesg has \"multicast join failed\", the subnet manager refused: does it know the partition, and is this port a full member? Otherwise the subnet manager did not answer in time: it is gone, or overloaded, as after a power cut; ADD succeeds once it answers";

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
    /// The device and inode of that namespace.
    pub netns_id: (u64, u64),
    /// The network.
    pub network: &'w str,
    /// The state directory.
    pub state: &'w Path,
    /// The device-info file to write, and its content.
    pub device_info: Option<(PathBuf, Value)>,
    /// Records the progress of this ADD. The last step marks it as complete, and is undone like any other.
    pub progress: &'w mut dyn Progress,
    /// The links created so far.
    pub made: Vec<Made>,
    /// Whether a link was requested and is not known to be deleted. Its addresses are then not released.
    pub link_may_live: bool,
}

/// The effects of an ADD, each with its undo step.
pub type Effects<'e, 'w> = Undo<'e, AttachContext<'w>>;

/// The planned interface of a pod. Each kind brings its link into the pod in its own way; all other steps are
/// the same.
pub trait Attachable {
    /// What every kind has.
    fn interface(&self) -> &PodInterface;

    /// How long the link may take to get carrier.
    fn carrier_timeout(&self) -> Duration;

    /// Whether the plugin itself announces the addresses; otherwise the kernel does.
    fn is_announced(&self) -> bool;

    /// Registers the undo step of what was changed before the addresses are allocated.
    fn begin(&self, _effects: &mut Effects<'_, '_>) {}

    /// Brings the link into the pod: down, with its name and settings, and without addresses.
    ///
    /// # Errors
    /// The kernel refused. The undo step is registered before the first request.
    fn make(&self, effects: &mut Effects<'_, '_>) -> Result<PodLinks, Error>;

    /// Completes the link and compares it with the plan, after the wait for its carrier. Returns the link as it is then.
    ///
    /// # Errors
    /// The kernel refused, or the link does not have what was planned, such as `carrier`.
    fn complete_link(&self, kernel: &mut dyn Kernel, links: &PodLinks, carrier: bool) -> Result<Link, Error>;

    /// Moves the RDMA device into the pod, unless [`Attachable::make`] did.
    ///
    /// # Errors
    /// The kernel refused. The undo step is registered before the request.
    fn move_rdma(&self, _effects: &mut Effects<'_, '_>) -> Result<(), Error> {
        Ok(())
    }
}

/// The links of an interface in the pod, as they were made.
#[derive(Clone, Debug)]
pub struct PodLinks {
    /// The interface.
    pub link: Link,
    /// The ports of a bond, in the order of the plan.
    pub ports: Vec<Link>,
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
    pub left: Vec<NotUndone>,
}

/// Attaches the pod as planned.
///
/// # Guarantees
/// On error every step is undone in reverse order. [`Failed::left`] has the steps that could not be undone.
///
/// # Assumptions
/// No other process works on this attachment, and its intent is in the journal.
pub fn attach(context: &mut AttachContext<'_>, plan: &dyn Attachable) -> Result<Attached, Failed> {
    let mut effects = Undo::new(context);
    match steps(&mut effects, plan) {
        Ok(attached) => {
            effects.commit();
            Ok(attached)
        }
        Err(error) => Err(Failed {
            error,
            left: effects.rollback(),
        }),
    }
}

fn steps(effects: &mut Effects<'_, '_>, plan: &dyn Attachable) -> Result<Attached, Error> {
    plan.begin(effects);
    let ipam = allocate(effects)?;
    let links = plan.make(effects)?;
    let may_have_carrier = connect(effects, plan, &links.link, &ipam)?;
    let kernel = &mut *effects.target().kernel;
    let carrier = may_have_carrier && await_carrier(kernel, &links.link, plan.carrier_timeout())?;
    let link = plan.complete_link(kernel, &links, carrier)?;
    plan.move_rdma(effects)?;
    if let Some(grant) = &plan.interface().rdma {
        write_record(effects, grant)?;
    }
    write_device_info(effects)?;
    announce(effects.target().kernel, plan, &link, &ipam);
    effects.target().progress.finish()?;
    Ok(Attached { link, ipam })
}

/// Allocates addresses from the IPAM plugin.
fn allocate(effects: &mut Effects<'_, '_>) -> Result<CniResult, Error> {
    let context = effects.target();
    let Some(ipam) = context.ipam.clone() else {
        return Ok(CniResult::default());
    };
    let (attachment, netns) = (context.attachment, context.netns);
    // Registered before the call: a plugin that is killed at its time limit may have allocated already.
    effects.remember("release the addresses", |context| match &context.ipam {
        Some(_) if context.link_may_live => Err("the link that has them could not be deleted".to_owned()),
        Some(ipam) => ipam
            .clone()
            .with(UNFINISHED, true.into())
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

/// Adds addresses and routes to the link, and brings it up. Returns whether the link may have carrier, as [`probe`]
/// does.
fn connect(
    effects: &mut Effects<'_, '_>,
    plan: &dyn Attachable,
    link: &Link,
    ipam: &CniResult,
) -> Result<bool, Error> {
    let kernel = &mut *effects.target().kernel;
    let table = plan.interface().policy_table;
    prepare(kernel, link, &ipam.ips, table.is_some())?;
    address(kernel, link, &ipam.ips)?;
    bring_up(kernel, link)?;
    let may_have_carrier = probe(kernel, link, &ipam.ips, plan.carrier_timeout())?;
    route(kernel, link, ipam)?;
    let Some(table) = table.filter(|_| !ipam.ips.is_empty()) else {
        return Ok(may_have_carrier);
    };
    // The kernel deletes the routes with the link, but not the rules.
    effects.remember("delete the routing rules", move |context| {
        policy::remove(context.kernel, table).map_err(|e| cni::error::causes(&e))
    });
    let policy = policy::policy(link.index, table, &ipam.ips, &ipam.routes);
    policy::apply(effects.target().kernel, link, &policy)?;
    Ok(may_have_carrier)
}

/// A separate request: in one request the kernel brings a link up before it sets the address generation mode.
/// It comes after the addresses, because the kernel announces them when the link comes up.
fn bring_up(kernel: &mut dyn Kernel, link: &Link) -> Result<(), Error> {
    let up = LinkChange {
        up: Some(true),
        ..LinkChange::default()
    };
    let step = || format!("bring {} up", link.name);
    kernel.change_link(Side::Pod, link.index, &up).step(step)
}

/// Waits for the carrier of the link, for `timeout` at most.
fn await_carrier(kernel: &mut dyn Kernel, link: &Link, timeout: Duration) -> Result<bool, Error> {
    let step = || format!("wait for the carrier of {}", link.name);
    kernel.wait_for_carrier(link.index, timeout).step(step)
}

fn write_device_info(effects: &mut Effects<'_, '_>) -> Result<(), Error> {
    let Some((file, content)) = effects.target().device_info.clone() else {
        return Ok(());
    };
    let written = file.clone();
    effects.remember("remove the device-info file", move |_| {
        device_info::remove(&written)
    });
    device_info::write(&file, &content)
}

/// Announces the addresses to the neighbours.
///
/// The kernel announced the addresses when the link came up, but an `IPoIB` link had not joined its groups by
/// then, and a port that moved had no carrier. The plugin announces only there, because closing a packet
/// socket waits for RCU, longer than the rest of ADD takes. The pod works without it; neighbours that cached
/// another owner take longer to notice. A probed address was added after the link came up, so the kernel has
/// not announced it on any link.
fn announce(kernel: &mut dyn Kernel, plan: &dyn Attachable, link: &Link, ipam: &CniResult) {
    if !plan.is_announced() && !ipam.ips.iter().any(|ip| ip.probe) {
        return;
    }
    let addresses: Vec<IpAddr> = ipam.ips.iter().map(|ip| ip.address.ip()).collect();
    if let Err(error) = kernel.announce(link, &addresses) {
        tracing::warn!(link = %link.name, %error, "cannot announce the addresses to the neighbours");
    }
}

#[cfg(test)]
mod tests;
