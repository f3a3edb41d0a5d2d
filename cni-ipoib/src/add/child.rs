// SPDX-License-Identifier: Apache-2.0
//! Plans a child of the master, or a bond of children.

use super::AddContext;
use super::planned::{self, Planned};
use super::siblings::{Kind, Siblings};
use crate::device::repair::Owners;
use crate::error::{Error, Step};
use crate::host::{Host, observe, side_of};
use crate::journal::loads;
use crate::kernel::{Kernel, Side};
use crate::plan::{self, Plan, rdma_interface};
use crate::rdma::{Sources, grant_for};
use crate::select::{require_unused, resolve_for_add};

/// Reads the node and plans. Changes nothing. `owners` are the attachments with a whole link.
///
/// # Errors
/// Every refusal that can be known in advance.
pub(super) fn plan(context: &mut AddContext<'_>, owners: &Owners) -> Result<Planned, Error> {
    let (config, state) = (context.config, context.node.state());
    let sysfs = context.node.sysfs();
    let siblings = Siblings::new(state);
    let require = |kernel: &mut dyn Kernel, name: &str| {
        require_free(kernel, name, owners)?;
        siblings.require_fitting_on(kernel, config, name)
    };
    let container = &context.attachment.container_id;
    let loads = || loads(state, Some(container));
    let resolved = resolve_for_add(context.kernel, &sysfs, &config.master, loads, require)?;
    let host = observe(context.kernel, &sysfs, side_of(config), &resolved.master)?;
    require_roots_free(&host, owners)?;
    let child = plan::child(config, &host)?;
    if child.takes_frames_of_host() {
        require_unused(context.kernel, &host.master)?;
    }
    let parent = match Kind::of_new(child.kind).filter(|_| child.side == Side::Host) {
        Some(new) => Some(siblings.require_fitting(context.kernel, &host.master, new)?),
        None => None,
    };
    let from = &mut Sources {
        kernel: &mut *context.kernel,
        sysfs: &sysfs,
        state,
    };
    let rdma = grant_for(from, config.rdma.as_ref(), rdma_interface(&host, child.mode))?;
    let interface = context.interface(rdma);
    Ok(Planned {
        parent: parent.filter(|parent| *parent != host.master.name),
        master: host.master,
        why: resolved.why,
        kind: planned::Kind::Child(Box::new(Plan { child, interface })),
    })
}

/// Fails if the link `name` of the host is in a living pod, or about to move into one.
fn require_free(kernel: &mut dyn Kernel, name: &str, owners: &Owners) -> Result<(), Error> {
    if owners.is_empty() {
        return Ok(());
    }
    let found = kernel.link(Side::Host, name);
    let link = found.step(|| format!("look up {name}"))?;
    link.map_or(Ok(()), |link| owners.require_free(&link))
}

/// Fails if a link of the host of which the child, or the child of a port, is created is about to move into a pod.
/// Children of links in a pod are the pod's own matter.
fn require_roots_free(host: &Host, owners: &Owners) -> Result<(), Error> {
    if host.side == Side::Pod {
        return Ok(());
    }
    let ports = host.bond.iter().flat_map(|bond| &bond.ports);
    let mut roots = std::iter::once(&host.root).chain(ports.map(|port| &port.root));
    roots.try_for_each(|root| owners.require_free(root))
}
