// SPDX-License-Identifier: Apache-2.0
//! Plans a child of the master, or a bond of children.

use super::AddContext;
use super::planned::{Kind, Planned};
use crate::error::Error;
use crate::host::{observe, side_of};
use crate::journal::{Written, loads, on_parent};
use crate::plan::{self, Child, Plan, rdma_interface};
use crate::rdma::{Sources, grant_for};
use crate::select::resolve;
use std::path::Path;

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
    require_ipvlan_mode(state, &host.master.name, &child)?;
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

/// Fails if a living pod has an ipvlan child of `master` in another mode than the planned `child`. A new child sets the
/// mode of its parent and of each other child (`ipvlan_link_new` of `drivers/net/ipvlan/ipvlan_main.c`).
///
/// Invariant: the living children of a parent have one mode, so the first one decides.
fn require_ipvlan_mode(state: &Path, master: &str, child: &Child) -> Result<(), Error> {
    let Some(asked) = child.ipvlan_mode().map(|mode| mode.to_string()) else {
        return Ok(());
    };
    for of in on_parent(state, master)?.filter(Written::lives) {
        match &of.intent.ipvlan {
            Some(mode) if *mode == asked => break,
            Some(mode) => return Err(other_ipvlan_mode(asked, mode, master, &of)),
            None => {}
        }
    }
    Ok(())
}

fn other_ipvlan_mode(asked: String, mode: &str, master: &str, of: &Written) -> Error {
    Error::BadValue {
        key: "ipvlanMode",
        value: asked,
        want: format!(
            "{mode}, the mode of the ipvlan children of {master} (such as that of {of}), because the kernel has one mode for all ipvlan children of a link; or name another master"
        ),
    }
}
