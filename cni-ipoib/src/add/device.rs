// SPDX-License-Identifier: Apache-2.0
//! Plans the move of a whole link.

use super::planned::{Kind, Planned};
use super::{AddContext, Refused};
use crate::attach::Failed;
use crate::config::{Config, Master, ResolvedMaster};
use crate::device::restore::find;
use crate::device::{Facts, NewGuid, Plan, function, hardware_in_pods, moved, snapshot};
use crate::error::Error;
use crate::host::{Host, observe, side_of};
use crate::intent::{Grant, Hardware, Intent};
use crate::journal::{Attachments, Entry, Written, loads};
use crate::kernel::{Kernel, Side};
use crate::rdma;
use crate::rdma::decide::decide;
use crate::rdma::facts::devices;
use crate::rdma::movable::{Surroundings, require_free_name, require_movable};
use crate::select::{Aside, candidates, choose};
use common::cni;
use common::undo::Undo;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long udev may take to rename a device.
const RENAME_TIMEOUT: Duration = Duration::from_secs(2);

const POLL: Duration = Duration::from_millis(20);

/// How often a link that is renamed meanwhile is planned. udev renames a new link once; a network manager may rename it too.
const PLANS: usize = 5;

/// Reads the node, chooses the link if the configuration leaves a choice, and plans. Changes nothing.
///
/// # Errors
/// Every refusal that can be known in advance.
pub(super) fn plan(context: &mut AddContext<'_>) -> Result<Planned, Error> {
    // Read once: the caller holds the lock of the node.
    let others = others(context)?;
    let preferences = match &context.config.master {
        Master::Resolved(master) => return Ok(planned(plan_for(context, &others, master)?, None)),
        Master::Preferred(preferences) => preferences,
    };
    let sysfs = context.node.sysfs();
    let loads = loads(context.node.state(), Some(&context.attachment.container_id));
    let mut all = candidates(context.kernel, &sysfs, preferences, &loads)?;
    // A link that must stay on the host is passed over, with the reason.
    for candidate in all.iter_mut().filter(|candidate| candidate.aside.is_none()) {
        let named = ResolvedMaster::Named(candidate.name.clone());
        if let Err(error) = plan_for(context, &others, &named) {
            candidate.aside = Some(Aside::Always(error.to_string()));
        }
    }
    let choice = choose(preferences, &all).map_err(|passed| Error::NoMaster { passed })?;
    tracing::info!(master = %choice.name, why = %choice.why, "chose the link");
    let plan = plan_for(context, &others, &ResolvedMaster::Named(choice.name))?;
    Ok(planned(plan, Some(choice.why)))
}

fn planned(plan: Plan, why: Option<String>) -> Planned {
    Planned {
        master: plan.moved.link.clone(),
        parent: None,
        why,
        kind: Kind::Device(Box::new(plan)),
    }
}

/// Every other attachment.
fn others(context: &AddContext<'_>) -> Result<Attachments, Error> {
    let network = &context.call.conf.network;
    Ok(Attachments::read(context.node.state())?.without(network, context.attachment))
}

/// Plans the move of `master`.
fn plan_for(
    context: &mut AddContext<'_>,
    others: &Attachments,
    master: &ResolvedMaster,
) -> Result<Plan, Error> {
    let config = context.config;
    let sysfs = context.node.sysfs();
    let host = observe(context.kernel, &sysfs, side_of(config), master)?;
    let damaged = others.damaged_on(context.node.state(), &host.master.name);
    let written = &others.written;
    let facts = Facts::read(context.kernel, &sysfs, &host, written, &damaged)?;
    let moved = moved(config, &host, &facts)?;
    let grant = grant(context, written, &host)?;
    let carried = facts.carried.saved.clone();
    let mut snapshot = snapshot::take(context.kernel, &host.master, facts.path.clone(), carried)?;
    snapshot.port = facts.port;
    if let (Some(guid), Some(function)) = (moved.guid, &facts.function) {
        let function = function::with_link_state(context.kernel, function)?;
        snapshot = snapshot.of_function(function, guid);
    }
    Ok(Plan {
        interface: context.interface(grant),
        snapshot,
        moved,
        pci: facts.pci,
        is_whole_function: facts.is_whole_function(),
        others: hardware_in_pods(written),
    })
}

/// The RDMA device of the link. In exclusive mode it moves with the link.
fn grant(context: &mut AddContext<'_>, others: &[Written], host: &Host) -> Result<Option<Grant>, Error> {
    let config: &Config = context.config;
    let sysfs = context.node.sysfs();
    let facts = rdma::observe(context.kernel, &sysfs, Side::Host, &host.master)?;
    // A request for a whole link includes its RDMA device.
    let asked = config.rdma.clone().unwrap_or_default();
    let Some((grant, found)) = decide(Some(&asked), &facts, Ok(()))? else {
        return Ok(None);
    };
    if grant.moved().is_some() {
        let around = Surroundings::read(context.kernel, &sysfs, others, &found)?;
        let spare = !config.keep_last;
        let around = Surroundings { spare, ..around };
        require_movable(&found, &around).and_then(|()| require_free_name(&grant, &around))?;
    }
    Ok(Some(grant))
}

/// Writes the intent for a virtual function that gets a GUID, and sets the GUID. The driver of the function
/// then recreates the link and the RDMA device, and the plan is made again with these.
pub(super) fn begin(
    context: &mut AddContext<'_>,
    entry: &mut Entry,
    plan: &Plan,
    new: &NewGuid,
    intent: Intent,
) -> Result<Plan, Refused> {
    // The previous RDMA device disappears as soon as the driver is unbound.
    entry.begin(Intent {
        rdma: None,
        ..intent.clone()
    })?;
    let before = plan.clone();
    let mut undo = Undo::new(context);
    undo.remember(function::GUIDS_BACK, move |context: &mut AddContext<'_>| {
        function::undo(context.kernel, &before).map_err(|e| cni::error::causes(&e))
    });
    let renewed = renew(undo.target(), plan, new).and_then(|plan| {
        let rdma = plan.interface.rdma.clone();
        entry.amend(Intent { rdma, ..intent })?;
        Ok(plan)
    });
    match renewed {
        Ok(plan) => {
            undo.commit();
            Ok(plan)
        }
        Err(error) => {
            let left = undo.rollback();
            Err(Failed { error, left }.into())
        }
    }
}

/// Sets the GUID, and plans the move of the link that the driver made with it.
fn renew(context: &mut AddContext<'_>, plan: &Plan, new: &NewGuid) -> Result<Plan, Error> {
    let link = function::give(context.kernel, plan, new)?;
    if let Some(grant) = &plan.interface.rdma {
        await_name(context.kernel, &grant.device.name)?;
    }
    let again = plan_present_link(context, &plan.snapshot.hardware, link.name)?;
    let snapshot = plan.snapshot.clone();
    Ok(Plan { snapshot, ..again })
}

/// Plans the move of the link with this hardware, which had the name `name`. Plans again if udev has renamed the link
/// meanwhile: sysfs and `/proc` show the facts by the name of the link.
fn plan_present_link(
    context: &mut AddContext<'_>,
    hardware: &Hardware,
    mut name: String,
) -> Result<Plan, Error> {
    let others = others(context)?;
    if let Some(link) = find(context.kernel, Side::Host, hardware)? {
        name = link.name;
    }
    for _ in 1..PLANS {
        let planned = plan_for(context, &others, &ResolvedMaster::Named(name.clone()));
        match find(context.kernel, Side::Host, hardware)? {
            Some(link) if link.name != name => {
                tracing::debug!(was = name, is = link.name, "the link was renamed meanwhile");
                name = link.name;
            }
            _ => return planned,
        }
    }
    plan_for(context, &others, &ResolvedMaster::Named(name))
}

/// Waits until the host has an RDMA device with the name that the function's device had before its driver was bound again.
/// The kernel gives a new device a name of its own, and udev renames it after its link exists (`rdma_rename` of rdma-core).
fn await_name(kernel: &mut dyn Kernel, name: &str) -> Result<(), Error> {
    let deadline = Instant::now() + RENAME_TIMEOUT;
    while Instant::now() < deadline {
        if devices(kernel, Side::Host)?
            .iter()
            .any(|device| device.name == name)
        {
            return Ok(());
        }
        sleep(POLL);
    }
    tracing::warn!(
        device = name,
        "the RDMA device of the virtual function has another name than before"
    );
    Ok(())
}
