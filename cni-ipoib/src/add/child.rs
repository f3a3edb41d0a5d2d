// SPDX-License-Identifier: Apache-2.0
//! Plans a child of the master, or a bond of children.

use super::AddContext;
use super::planned::{Kind, Planned};
use crate::error::Error;
use crate::host::{observe, side_of};
use crate::journal::loads;
use crate::plan::{self, Plan, rdma_interface};
use crate::rdma::{Sources, grant_for};
use crate::select::resolve;

/// Reads the node and plans. Changes nothing.
///
/// # Errors
/// Every refusal that can be known in advance.
pub(super) fn plan(context: &mut AddContext<'_>) -> Result<Planned, Error> {
    let (config, state) = (context.config, context.node.state());
    let sysfs = context.node.sysfs();
    let resolved = resolve(context.kernel, &sysfs, &config.master, || loads(state))?;
    let host = observe(context.kernel, &sysfs, side_of(config), &resolved.master)?;
    let child = plan::child(config, &host)?;
    let from = &mut Sources {
        kernel: &mut *context.kernel,
        sysfs: &sysfs,
        state,
    };
    let rdma = grant_for(from, config.rdma.as_ref(), rdma_interface(&host, child.mode))?;
    let interface = context.interface(rdma);
    Ok(Planned {
        master: host.master,
        why: resolved.why,
        kind: Kind::Child(Box::new(Plan { child, interface })),
    })
}
