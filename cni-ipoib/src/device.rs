// SPDX-License-Identifier: Apache-2.0
//! `mode: device`: a whole hardware link moves from the host into a pod, with its RDMA device if the node's
//! RDMA subsystem is in exclusive mode. Its state is restored when the pod is gone.
//!
//! [`Facts`] are read once; [`moved`] is pure and has every refusal; [`move_in`] and [`restore`] change things.
//!
//! Invariant: the host's state is in the journal before the link is touched. A link is identified by its
//! hardware, never by its name or index. The attachment whose journal entry has a link owns it until the link
//! is restored.

mod compare;
pub mod facts;
#[cfg(test)]
pub(crate) mod fixture;
pub mod function;
pub(crate) mod guids;
pub mod move_in;
pub mod plan;
pub(crate) mod repair;
pub mod restore;
pub mod snapshot;

pub(crate) use compare::compare;
pub use facts::Facts;
pub use plan::{Moved, moved};

use crate::intent::{Function, Hardware, Snapshot};
use crate::journal::Written;
use crate::plan::PodInterface;
use common::rdma::{Guid, PciAddress};

/// The plan for a link.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The interface that it becomes.
    pub interface: PodInterface,
    /// The link, and its configuration in the pod.
    pub moved: Moved,
    /// The link's state on the host.
    pub snapshot: Snapshot,
    /// The PCI function.
    pub pci: Option<PciAddress>,
    /// Whether the link is all of that function.
    pub is_whole_function: bool,
    /// Other links that are in pods, which may return under this one's name.
    pub others: Vec<Hardware>,
}

/// A GUID for a virtual function.
#[derive(Clone, Debug)]
pub struct NewGuid {
    /// The function, with its own GUIDs.
    pub function: Function,
    /// Its GUID in the pod.
    pub guid: Guid,
}

impl Plan {
    /// The GUID that the virtual function of the link gets, if it gets one.
    pub fn new_guid(&self) -> Option<NewGuid> {
        let function = self.snapshot.function.clone()?;
        let guid = self.moved.guid?;
        Some(NewGuid { function, guid })
    }
}

/// The hardware of the links that are in pods.
pub(crate) fn hardware_in_pods(written: &[Written]) -> Vec<Hardware> {
    let devices = written.iter().filter_map(|of| of.intent.device.as_ref());
    devices
        .filter(|was| was.is_of_this_boot())
        .map(|was| was.hardware.clone())
        .collect()
}
