// SPDX-License-Identifier: Apache-2.0
//! A whole link: moved into the pod, and given back.

use super::{AttachContext, Attachable, Effects, JOIN_REMEDY, PodLinks};
use crate::device::restore::{find, leave_pod, restore_state};
use crate::device::{Plan, function, move_in};
use crate::error::{DeviceError, Error, Step};
use crate::intent::Grant;
use crate::journal::{NodeLock, others};
use crate::kernel::{Kernel, Side};
use crate::plan::PodInterface;
use crate::rdma::transfer::bring_back;
use common::cni;
use common::netlink::{Link, LinkLayer};
use std::time::Duration;

impl Attachable for Plan {
    fn interface(&self) -> &PodInterface {
        &self.interface
    }

    fn carrier_timeout(&self) -> Duration {
        self.moved.carrier_timeout
    }

    /// The kernel announced the addresses when the link came up, but its port had not regained carrier by
    /// then.
    fn is_announced(&self) -> bool {
        true
    }

    fn begin(&self, effects: &mut Effects<'_, '_>) {
        if self.snapshot.function.is_none() {
            return;
        }
        let planned = self.clone();
        effects.remember(function::GUIDS_BACK, move |context| {
            let _lock = NodeLock::attempt(context.state);
            function::undo(context.kernel, &planned).map_err(|e| cni::error::causes(&e))
        });
    }

    fn make(&self, effects: &mut Effects<'_, '_>) -> Result<PodLinks, Error> {
        let planned = self.clone();
        effects.remember("return the link to the host", move |context| {
            undo(context, &planned)
                .map(|()| context.link_may_live = false)
                .map_err(|e| cni::error::causes(&e))
        });
        effects.target().link_may_live = true;
        let context = effects.target();
        let link = move_in::move_in(context.kernel, context.state, self)?;
        let ports = Vec::new();
        Ok(PodLinks { link, ports })
    }

    fn complete_link(&self, kernel: &mut dyn Kernel, links: &PodLinks, carrier: bool) -> Result<Link, Error> {
        complete_link(kernel, &links.link, self, carrier)
    }
}

/// Undoes an ADD at any stage.
fn undo(context: &mut AttachContext<'_>, plan: &Plan) -> Result<(), Error> {
    let (was, netns) = (&plan.snapshot, context.netns_id);
    let (kernel, state) = (&mut *context.kernel, context.state);
    if let Some(identity) = plan.interface.rdma.as_ref().and_then(Grant::moved) {
        bring_back(kernel, state, identity)?;
    }
    if let Some(link) = find(kernel, Side::Pod, &was.hardware)? {
        let others = others(state, context.network, context.attachment)?;
        leave_pod(kernel, &link, was, (netns, &others))?;
    }
    match find(kernel, Side::Host, &was.hardware)? {
        Some(link) => restore_state(kernel, &link, was, &plan.others),
        None => Err(DeviceError::Lost {
            link: was.name.clone(),
            reason: "it is neither in the pod nor on the host".to_owned(),
        }
        .into()),
    }
}

/// Checks carrier and the MTU. Without carrier an `IPoIB` link reaches no other host.
fn complete_link(kernel: &mut dyn Kernel, link: &Link, plan: &Plan, carrier: bool) -> Result<Link, Error> {
    let ifname = &plan.interface.ifname;
    let step = || format!("wait for the carrier of {}", link.name);
    if !carrier && link.layer == LinkLayer::Infiniband {
        return Err(Error::NoCarrier {
            ifname: ifname.clone(),
            waited: plan.moved.carrier_timeout,
            reason: format!(
                "it has not joined the broadcast group of its partition; {JOIN_REMEDY}. The port of a virtual function stays down until its physical function PF has set its link state: ip link set PF vf N state auto"
            ),
        });
    }
    if !carrier {
        tracing::warn!(
            link = link.name,
            "link has no carrier yet; the pod starts without it"
        );
    }
    let now = kernel.link_by_index(Side::Pod, link.index).step(step)?;
    let now = now.ok_or_else(|| DeviceError::Lost {
        link: plan.snapshot.name.clone(),
        reason: format!("{ifname} left the pod while it was waited for"),
    })?;
    match plan.moved.mtu {
        Some(want) if now.mtu != want => Err(Error::MtuNotApplied {
            ifname: ifname.clone(),
            got: now.mtu,
            want,
        }),
        _ => Ok(now),
    }
}

#[cfg(test)]
mod tests;
