// SPDX-License-Identifier: Apache-2.0
//! The errors of a pod's RDMA device, with their CNI codes.

use common::cni::Code;
use common::netlink::NetnsMode;
use std::time::Duration;

/// An error of an attachment's RDMA device.
#[derive(Debug, thiserror::Error)]
pub enum RdmaError {
    /// The node's RDMA subsystem is not in the requested mode.
    #[error(
        "rdma.netns is {asked}, but this node's RDMA subsystem is in {is} mode; set rdma.netns to {is} or auto, or change the node: \
         'options ib_core netns_mode={}' in /etc/modprobe.d, and a restart, since the kernel changes it only while there is no pod",
        u8::from(*asked == NetnsMode::Shared)
    )]
    Mode {
        /// The requested mode.
        asked: NetnsMode,
        /// The node's mode.
        is: NetnsMode,
    },
    /// No single RDMA device belongs to the link.
    #[error(
        "cannot choose the RDMA device of {link}: {reason}; if rdma.required is false, the pod gets no RDMA device"
    )]
    Missing {
        /// The link.
        link: String,
        /// The reason.
        reason: String,
    },
    /// The RDMA device must stay where it is.
    #[error("RDMA device {device} is not moved into the pod: {reason}; {remedy}")]
    Kept {
        /// The device.
        device: String,
        /// Why it stays.
        reason: String,
        /// What to do.
        remedy: &'static str,
    },
    /// Another pod has the RDMA device.
    #[error(
        "RDMA device {device} is not moved into the pod: {by} has it; wait until that pod is gone, or name another master"
    )]
    Held {
        /// The device.
        device: String,
        /// The attachment that has it.
        by: String,
    },
    /// RDMA netlink does not list the device under the name and GUID that sysfs shows.
    #[error(
        "RDMA device {device} is not moved into the pod: RDMA netlink lists no such device; its driver still starts, or udev renames it; try again"
    )]
    Unlisted {
        /// The device.
        device: String,
    },
    /// A pod that is gone had the device, and the kernel has not returned it.
    #[error(
        "RDMA device {device} did not come back from the pod within {waited:?}: the kernel still removes its namespace, or the pod moved the device on; try again once that namespace is gone"
    )]
    Lost {
        /// The device.
        device: String,
        /// How long it was waited for.
        waited: Duration,
    },
}

impl RdmaError {
    /// Its CNI code.
    pub fn code(&self) -> Code {
        match self {
            Self::Mode { .. } | Self::Missing { .. } | Self::Kept { .. } => Code::INVALID_CONFIG,
            Self::Held { .. } | Self::Unlisted { .. } | Self::Lost { .. } => Code::TRY_AGAIN,
        }
    }
}

#[cfg(test)]
mod tests;
