// SPDX-License-Identifier: Apache-2.0
//! The plan of an ADD, of whatever kind its interface is.

use super::AddContext;
use crate::attach::Attachable;
use crate::device_info::Hardware;
use crate::intent::Intent;
use crate::kernel::Side;
use crate::{device, plan};
use common::collector::PodId;
use common::netlink::{Link, NewLinkKind};
use common::rdma::PciAddress;
use std::path::PathBuf;

/// A planned interface, and the choice behind it.
pub(super) struct Planned {
    /// The parent, or the link that moves.
    pub(super) master: Link,
    /// The link of the host that the kernel takes as the parent, if it is not the master.
    pub(super) parent: Option<String>,
    /// Why this master was chosen, if there was a choice.
    pub(super) why: Option<String>,
    pub(super) kind: Kind,
}

/// The kinds of interface.
#[derive(Debug)]
pub(super) enum Kind {
    /// A child, or a bond of children.
    Child(Box<plan::Plan>),
    /// A whole link.
    Device(Box<device::Plan>),
}

impl Planned {
    pub(super) fn attachable(&self) -> &dyn Attachable {
        match &self.kind {
            Kind::Child(plan) => &**plan,
            Kind::Device(plan) => &**plan,
        }
    }

    /// The names of a bond's ports in the pod.
    pub(super) fn port_names(&self) -> Vec<String> {
        match &self.kind {
            Kind::Child(plan) => plan.port_names().collect(),
            Kind::Device(_) => Vec::new(),
        }
    }

    /// The PCI function, if the pod gets the whole function.
    pub(super) fn whole_function(&self) -> Option<PciAddress> {
        match &self.kind {
            Kind::Child(_) => None,
            Kind::Device(plan) => plan.pci.filter(|_| plan.is_whole_function),
        }
    }

    /// The hardware of the interface, for the device-info file.
    pub(super) fn hardware(&self) -> Option<Hardware<'_>> {
        match &self.kind {
            Kind::Child(plan) => plan.child.pci.as_ref().map(Hardware::PartOf),
            Kind::Device(plan) if plan.is_whole_function => plan.pci.as_ref().map(Hardware::Function),
            Kind::Device(plan) => plan.pci.as_ref().map(Hardware::PartOf),
        }
    }

    /// The child of a link of the host, if it is one.
    fn kind_on_host(&self) -> Option<NewLinkKind<'static>> {
        match &self.kind {
            Kind::Child(plan) if plan.child.side == Side::Host => Some(plan.child.kind),
            _ => None,
        }
    }

    /// The intent that the journal gets before the first effect.
    pub(super) fn intent(&self, context: &AddContext<'_>, device_info: Option<PathBuf>) -> Intent {
        let kind = self.kind_on_host();
        Intent {
            netns: context.path.to_owned(),
            netns_id: context.netns.id(),
            pod: PodId::of(&context.call.args),
            master: self.master.name.clone(),
            parent: self.parent.clone(),
            why: self.why.clone(),
            ipam: context.config.ipam.clone(),
            device_info,
            rdma: self.attachable().interface().rdma.clone(),
            device: match &self.kind {
                Kind::Child(_) => None,
                Kind::Device(plan) => Some(plan.snapshot.clone()),
            },
            restored: false,
            ipvlan: match kind {
                Some(NewLinkKind::Ipvlan { mode }) => Some(mode.to_string()),
                _ => None,
            },
            macvlan: match kind {
                Some(NewLinkKind::Macvlan { mode, .. }) => Some(mode.to_string()),
                _ => None,
            },
            made: Vec::new(),
        }
    }
}
