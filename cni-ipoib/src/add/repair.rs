// SPDX-License-Identifier: Apache-2.0
//! The plan of an ADD whose link or RDMA device a dead pod left on the host.
//!
//! Invariant: an ADD changes nothing of a dead pod, except the link and the RDMA device that it asks for. It
//! fails for such a repair only if it would have been refused or would have got the unrepaired device.

use super::planned::{Kind, Planned};
use super::{AddContext, child, device};
use crate::config::Mode;
use crate::device::repair::{Owners, restore_for};
use crate::error::Error;
use crate::host::{observe, side_of};
use crate::intent::Sharing;
use crate::journal::NodeLock;
use crate::kernel::Side;
use crate::rdma::Sources;
use crate::rdma::repair::restore_names;
use crate::select::resolve;
use common::netlink::Link;

/// Plans. If a dead pod left the link or the RDMA device of the plan on the host, restores it and plans
/// again. `lock` is the lock of the node, which becomes exclusive before a link is restored.
///
/// # Errors
/// Every refusal that can be known in advance, or the repair failed.
pub(super) fn plan(context: &mut AddContext<'_>, lock: &mut Option<NodeLock>) -> Result<Planned, Error> {
    let mut owners = Owners::read(context.node.state());
    let mut planned = plan_as_is(context, &owners);
    if restore_link(context, &planned, &owners, lock)? {
        owners = Owners::read(context.node.state());
        planned = plan_as_is(context, &owners);
    }
    if restore_rdma_names(context, &planned)? {
        planned = plan_as_is(context, &owners);
    }
    if side_of(context.config) == Side::Pod {
        return planned;
    }
    planned.map_err(|refusal| owners.explain(&context.config.master, refusal))
}

fn plan_as_is(context: &mut AddContext<'_>, owners: &Owners) -> Result<Planned, Error> {
    match context.config.mode {
        Some(Mode::Device) => device::plan(context),
        _ => child::plan(context, owners),
    }
}

/// Restores the link that `planned` asks for, if a dead pod left it. Returns whether to plan again.
fn restore_link(
    context: &mut AddContext<'_>,
    planned: &Result<Planned, Error>,
    owners: &Owners,
    lock: &mut Option<NodeLock>,
) -> Result<bool, Error> {
    let (state, sysfs) = (context.node.state(), context.node.sysfs());
    if side_of(context.config) == Side::Pod {
        return Ok(false);
    }
    let owner = match planned {
        Ok(planned) => owners.dead_owner_of(&planned.master),
        Err(refusal) => owners.asked_for(context.kernel, &sysfs, &context.config.master, refusal)?,
    };
    let Some(owner) = owner else {
        return Ok(false);
    };
    // A shared lock is released first: two calls that keep theirs would wait for each other.
    let held = match lock.take().filter(NodeLock::is_exclusive) {
        Some(exclusive) => exclusive,
        None => NodeLock::take(state)?,
    };
    restore_for(context.kernel, state, owner, lock.insert(held))?;
    Ok(true)
}

/// Restores the names of the RDMA devices that `planned` asks for, if dead pods left them under other names.
/// Returns whether a name changed.
fn restore_rdma_names(context: &mut AddContext<'_>, planned: &Result<Planned, Error>) -> Result<bool, Error> {
    let config = context.config;
    let is_device = config.mode == Some(Mode::Device);
    if config.rdma.is_none() && !is_device || side_of(config) == Side::Pod {
        return Ok(false);
    }
    let master = match planned {
        Ok(planned) if shares(planned) => return Ok(false),
        Ok(planned) => Some(planned.master.clone()),
        Err(_) => master(context),
    };
    let Some(master) = master else {
        return Ok(false);
    };
    let sysfs = context.node.sysfs();
    let from = &mut Sources {
        kernel: &mut *context.kernel,
        sysfs: &sysfs,
        state: context.node.state(),
    };
    restore_names(from, config.rdma.as_ref(), &master)
}

/// Whether the pod sees the devices of the host, which then have no names of pods.
fn shares(planned: &Planned) -> bool {
    let grant = match &planned.kind {
        Kind::Child(plan) => &plan.interface.rdma,
        Kind::Device(plan) => &plan.interface.rdma,
    };
    grant.as_ref().is_some_and(|grant| grant.netns == Sharing::Shared)
}

/// The master of a refused ADD, if it can be seen.
fn master(context: &mut AddContext<'_>) -> Option<Link> {
    let sysfs = context.node.sysfs();
    let config = context.config;
    let resolved = resolve(context.kernel, &sysfs, &config.master).ok()?;
    let host = observe(context.kernel, &sysfs, side_of(config), &resolved.master).ok()?;
    Some(host.master)
}
