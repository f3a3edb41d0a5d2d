// SPDX-License-Identifier: Apache-2.0
//! The birth of a child: in the pod's namespace, marked from the first moment, under its final name where the kernel can.

use super::World;
use crate::detach;
use crate::error::Error;
use crate::kernel::{Kernel, Side};
use crate::plan::Plan;
use common::cni;
use common::netlink::{Link, LinkChange, NewLink};
use common::undo::Undo;
use nix::errno::Errno;

/// Has the child born in the pod's namespace, under its final name where the kernel can do that.
pub(super) fn create(undo: &mut Undo<'_, World<'_>>, plan: &Plan) -> Result<Link, Error> {
    let mark = plan.mark.clone();
    undo.remember("delete the link", move |world| {
        detach::delete_marked(world.kernel, Side::Pod, &mark)
            .map(|_| world.link_may_live = false)
            .map_err(|e| cni::error::causes(&e))
    });
    undo.target().link_may_live = true;
    let kernel = &mut *undo.target().kernel;
    let name = plan.ifname.as_str();
    let step = || format!("create {name} on {}", plan.child.parent);
    match kernel.add_link(
        plan.child.side,
        &new_link(plan, name),
        plan.child.side == Side::Host,
    ) {
        Ok(()) => {}
        // Kernels before 6.14 look the new name up among the *host's* links; the pod has none of that name, which
        // was seen before. So it is born under a name of its own and renamed where it is.
        Err(e) if e.is(Errno::EEXIST) && plan.child.side == Side::Host => {
            return create_and_rename(kernel, plan);
        }
        Err(source) => return Err(Error::Kernel { step: step(), source }),
    }
    born(kernel, plan, name)
}

fn create_and_rename(kernel: &mut dyn Kernel, plan: &Plan) -> Result<Link, Error> {
    let name = plan.ifname.as_str();
    let temporary = format!("rn{:08x}", plan.mark.group);
    tracing::debug!(
        name,
        temporary,
        "the host has a link of this name too: renaming inside the pod"
    );
    let step = || {
        format!(
            "create {name} on {} (as {temporary}, since the host has a link {name})",
            plan.child.parent
        )
    };
    kernel
        .add_link(plan.child.side, &new_link(plan, &temporary), true)
        .map_err(|source| Error::Kernel { step: step(), source })?;
    let link = born(kernel, plan, &temporary)?;
    let rename = LinkChange {
        name: Some(name),
        ..LinkChange::default()
    };
    kernel
        .change_link(Side::Pod, link.index, &rename)
        .map_err(|source| Error::Kernel {
            step: format!("rename {temporary} to {name} in the pod"),
            source,
        })?;
    born(kernel, plan, name)
}

fn new_link<'p>(plan: &'p Plan, name: &'p str) -> NewLink<'p> {
    NewLink {
        name,
        parent: plan.child.parent_index,
        netns: None,
        mtu: None,
        address: plan.child.address.as_ref(),
        group: plan.mark.group,
        kind: plan.child.kind,
    }
}

fn born(kernel: &mut dyn Kernel, plan: &Plan, name: &str) -> Result<Link, Error> {
    let step = || format!("find {name} in the pod after creating it");
    let link = kernel
        .link(Side::Pod, name)
        .map_err(|source| Error::Kernel { step: step(), source })?;
    link.filter(|link| plan.mark.is_on(link))
        .ok_or_else(|| Error::Kernel {
            step: step(),
            source: common::netlink::Error::Kernel {
                errno: Errno::ENODEV,
                text: None,
            },
        })
}
