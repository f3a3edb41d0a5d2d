// SPDX-License-Identifier: Apache-2.0
//! The errors of moving a whole link, with their CNI codes.

use common::cni::Code;
use common::rdma::Guid;
use std::time::Duration;

/// An error of moving a whole link.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The link must stay on the host.
    #[error("{link} is not moved into the pod: {reason}; {remedy}")]
    Kept {
        /// The link.
        link: String,
        /// Why it stays.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// Another pod owns it, or an ADD is about to move it.
    #[error("{link} belongs to {holder}; try again after that pod is deleted")]
    Taken {
        /// The link.
        link: String,
        /// Network and attachment.
        holder: String,
    },
    /// Another port or attachment of this node has the requested GUID.
    #[error("{link} is not given the GUID {guid}: {holder} has it; ask for another one")]
    GuidInUse {
        /// The link.
        link: String,
        /// The GUID.
        guid: Guid,
        /// The port or attachment that has it.
        holder: String,
    },
    /// It was moved and cannot be found.
    #[error("{link} is lost: {reason}; look for its driver in the kernel's log")]
    Lost {
        /// Its name on the host.
        link: String,
        /// The last operation, and the places that were searched.
        reason: String,
    },
    /// A pod that is gone had the link, and the kernel has not returned it.
    #[error(
        "{link} did not come back from the pod within {waited:?}: the kernel still removes its namespace, or a process of the pod holds it; try again once that namespace is gone"
    )]
    Away {
        /// Its name on the host.
        link: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// Its GUIDs cannot be set.
    #[error(
        "virtual function {number} of {physical} ({function}) cannot be given a GUID: {physical} has no InfiniBand link on the host to set it through; is its driver loaded, or was the link moved away?"
    )]
    NoPhysical {
        /// The PCI address of the function.
        function: String,
        /// Its number.
        number: u32,
        /// The PCI address of the physical function.
        physical: String,
    },
    /// The driver was rebound and used another GUID.
    #[error(
        "virtual function {function} was given the GUID {asked} and has {has} after its driver was bound again; look for the driver of its physical function in the kernel's log"
    )]
    GuidNotTaken {
        /// The PCI address of the function.
        function: String,
        /// The GUID that was set.
        asked: Guid,
        /// The GUID of its port.
        has: Guid,
    },
}

impl DeviceError {
    /// Its CNI code.
    pub fn code(&self) -> Code {
        match self {
            Self::Kept { .. } | Self::NoPhysical { .. } | Self::GuidInUse { .. } => Code::INVALID_CONFIG,
            Self::Taken { .. } | Self::Away { .. } => Code::TRY_AGAIN,
            Self::Lost { .. } | Self::GuidNotTaken { .. } => Code::KERNEL,
        }
    }
}

#[cfg(test)]
mod tests;
