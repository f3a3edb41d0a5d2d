// SPDX-License-Identifier: Apache-2.0
//! Creates a child, in the pod's namespace or beside its parent: see [`Way`].
//!
//! Invariant: the request that creates a link also sets the group of the attachment's mark. So a killed ADD
//! never leaves a link that DEL cannot find.

mod moved;

use super::Effects;
use crate::detach::{self, Known, Recorded};
use crate::error::{Error, Step};
use crate::kernel::{Kernel, Side};
use crate::mark::Mark;
use crate::plan::{Child, Plan, Way};
use common::cni;
use common::netlink::{self, Link, LinkChange, NewLink};
use nix::errno::Errno;

/// Creates the planned link. A link may be on the host for a moment, so the undo step searches both
/// namespaces.
pub(super) fn create(effects: &mut Effects<'_, '_>, plan: &Plan) -> Result<Link, Error> {
    let (mark, moved) = (plan.interface.mark.clone(), plan.is_moved());
    effects.remember("delete the link", move |context| {
        let host = if moved {
            detach::delete(context.kernel, Side::Host, &Known::marked(&mark)).map(|_| ())
        } else {
            Ok(())
        };
        let known = Known {
            mark: &mark,
            recorded: Some(Recorded {
                made: &context.made,
                netns: context.netns_id,
                state: context.state,
                network: context.network,
                attachment: context.attachment,
            }),
        };
        detach::delete(context.kernel, Side::Pod, &known)
            .map(|_| context.link_may_live = false)
            .and(host)
            .map_err(|e| cni::error::causes(&e))
    });
    effects.target().link_may_live = true;
    let kernel = &mut *effects.target().kernel;
    let name = plan.interface.ifname.as_str();
    create_link(
        kernel,
        &Creation {
            child: &plan.child,
            name,
            mark: &plan.interface.mark,
        },
    )
}

/// A link to create.
pub(super) struct Creation<'p> {
    pub(super) child: &'p Child,
    pub(super) name: &'p str,
    pub(super) mark: &'p Mark,
}

/// Creates one link of the attachment.
pub(super) fn create_link(kernel: &mut dyn Kernel, new: &Creation<'_>) -> Result<Link, Error> {
    match new.child.way {
        Way::Direct => create_in_pod(kernel, new),
        Way::Moved => moved::create_and_move(kernel, new),
    }
}

fn create_in_pod(kernel: &mut dyn Kernel, new: &Creation<'_>) -> Result<Link, Error> {
    let Creation { child, name, .. } = new;
    match kernel.add_link(child.side, &new.link(name), child.side == Side::Host) {
        // Kernels before 6.14 look for the new name among the *host's* links. The pod has no link of that
        // name, as checked before. So the link is created under a temporary name and renamed in the pod.
        Err(e) if e.is(Errno::EEXIST) && child.side == Side::Host => {
            return create_and_rename(kernel, new);
        }
        refused => refused.step(|| format!("create {name} on {}", child.parent))?,
    }
    found(kernel, new, name)
}

fn create_and_rename(kernel: &mut dyn Kernel, new: &Creation<'_>) -> Result<Link, Error> {
    let Creation { child, name, mark } = new;
    let temporary = mark.temporary(0);
    tracing::debug!(
        name,
        temporary,
        "the host has a link of this name; renaming in the pod"
    );
    let step = || {
        format!(
            "create {name} on {} (as {temporary}, since the host has a link {name})",
            child.parent
        )
    };
    kernel
        .add_link(child.side, &new.link(&temporary), true)
        .step(step)?;
    let link = found(kernel, new, &temporary)?;
    let rename = LinkChange {
        name: Some(name),
        ..LinkChange::default()
    };
    kernel
        .change_link(Side::Pod, link.index, &rename)
        .step(|| format!("rename {temporary} to {name} in the pod"))?;
    found(kernel, new, name)
}

impl<'p> Creation<'p> {
    fn link<'l>(&self, name: &'l str) -> NewLink<'l>
    where
        'p: 'l,
    {
        NewLink {
            name,
            parent: self.child.parent_index,
            netns: None,
            mtu: None,
            address: self.child.address.as_ref(),
            group: self.mark.group,
            kind: self.child.kind,
        }
    }
}

/// The link `name` in the pod, if it has the attachment's mark.
fn found(kernel: &mut dyn Kernel, new: &Creation<'_>, name: &str) -> Result<Link, Error> {
    let step = || format!("find {name} in the pod after creating it");
    let link = kernel.link(Side::Pod, name).step(step)?;
    link.filter(|link| new.mark.is_on(link))
        .ok_or(netlink::Error::kernel(Errno::ENODEV))
        .step(step)
}
