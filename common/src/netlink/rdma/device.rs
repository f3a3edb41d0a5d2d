// SPDX-License-Identifier: Apache-2.0
use super::super::error::Error;
use super::message::{Attribute, Message};
use crate::id::Guid;
use crate::port_state::PortState;
use std::fmt;
use std::str::FromStr;

/// An RDMA device, as netlink reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaDevice {
    /// Number on this node; never reused while the node runs.
    pub index: u32,
    /// Name, e.g. `mlx5_0`.
    pub name: String,
    /// GUID of the device.
    pub node_guid: Guid,
    /// GUID that the devices of one card share.
    pub sys_image_guid: Guid,
    /// How many ports it has.
    pub ports: u32,
    /// `ib`, `roce`, `iw`, `opa` or `usnic`; `None` before Linux 5.2.
    pub protocol: Option<String>,
    /// The device carries management packets only (`RDMA_DEVICE_TYPE_SMI`): it has no queue pairs for
    /// programs.
    pub smi: bool,
}

/// A port of an RDMA device, as netlink reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaPort {
    /// Index of the device.
    pub device: u32,
    /// Number, from 1.
    pub number: u32,
    /// Logical state.
    pub state: PortState,
    /// Physical state in the kernel's words, e.g. `LinkUp`.
    pub phys_state: &'static str,
    /// Local identifier; `None` on Ethernet.
    pub lid: Option<u32>,
    /// Local identifier of the subnet manager; `None` on Ethernet.
    pub sm_lid: Option<u32>,
    /// High half of the first GID; `None` on Ethernet.
    pub subnet_prefix: Option<u64>,
    /// Index and name of the Ethernet link on this port, if it is in the socket's namespace.
    pub netdev: Option<(u32, String)>,
}

/// `RDMA_DEVICE_TYPE_SMI` of `include/uapi/rdma/rdma_netlink.h`; reported since Linux 6.11.
const TYPE_SMI: u8 = 1;

/// How namespaces see RDMA devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetnsMode {
    /// Every namespace sees every device; none can be moved.
    Shared,
    /// A device is in one namespace.
    Exclusive,
}

/// The text is not the name of a mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not one of shared, exclusive")]
pub struct NetnsModeError(String);

/// `phys_state_to_str` of `drivers/infiniband/core/sysfs.c`.
const PHYS_STATES: [&str; 8] = [
    "<unknown>",
    "Sleep",
    "Polling",
    "Disabled",
    "PortConfigurationTraining",
    "LinkUp",
    "LinkErrorRecovery",
    "Phy Test",
];

impl RdmaDevice {
    pub(super) fn decode(message: Message) -> Result<Self, Error> {
        let (mut index, mut name, mut protocol, mut smi) = (None, None, None, false);
        let (mut node_guid, mut sys_image_guid, mut ports) = (Guid(0), Guid(0), 0);
        for attribute in message.attributes {
            match attribute {
                Attribute::DeviceIndex(value) => index = Some(value),
                Attribute::DeviceName(value) => name = Some(value),
                Attribute::PortIndex(value) => ports = value,
                Attribute::NodeGuid(value) => node_guid = Guid(value),
                Attribute::SystemImageGuid(value) => sys_image_guid = Guid(value),
                Attribute::Protocol(value) => protocol = Some(value),
                Attribute::DeviceType(value) => smi = value == TYPE_SMI,
                _ => {}
            }
        }
        let (Some(index), Some(name)) = (index, name) else {
            return Err(Error::Unexpected(
                "an RDMA device without index or name".to_owned(),
            ));
        };
        Ok(Self {
            index,
            name,
            node_guid,
            sys_image_guid,
            ports,
            protocol,
            smi,
        })
    }
}

impl RdmaPort {
    pub(super) fn decode(message: Message) -> Result<Self, Error> {
        let (mut device, mut number) = (None, None);
        let (mut lid, mut sm_lid, mut subnet_prefix) = (None, None, None);
        let (mut ndev_index, mut ndev_name) = (None, None);
        let (mut state, mut phys_state) = (PortState::Unknown, PHYS_STATES[0]);
        for attribute in message.attributes {
            match attribute {
                Attribute::DeviceIndex(value) => device = Some(value),
                Attribute::PortIndex(value) => number = Some(value),
                Attribute::Lid(value) => lid = Some(value),
                Attribute::SmLid(value) => sm_lid = Some(value),
                Attribute::SubnetPrefix(value) => subnet_prefix = Some(value),
                Attribute::NetdevIndex(value) => ndev_index = Some(value),
                Attribute::NetdevName(value) => ndev_name = Some(value),
                Attribute::PortState(value) => state = PortState::from_code(value),
                Attribute::PhysState(value) => {
                    phys_state = PHYS_STATES
                        .get(usize::from(value))
                        .copied()
                        .unwrap_or(PHYS_STATES[0]);
                }
                _ => {}
            }
        }
        let (Some(device), Some(number)) = (device, number) else {
            return Err(Error::Unexpected(
                "an RDMA port without device or number".to_owned(),
            ));
        };
        Ok(Self {
            device,
            number,
            state,
            phys_state,
            lid,
            sm_lid,
            subnet_prefix,
            netdev: ndev_index.zip(ndev_name),
        })
    }
}

impl NetnsMode {
    pub(super) fn decode(code: u8) -> Self {
        if code == 0 { Self::Exclusive } else { Self::Shared }
    }

    pub(super) fn encode(self) -> u8 {
        u8::from(self == Self::Shared)
    }
}

impl fmt::Display for NetnsMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Shared => "shared",
            Self::Exclusive => "exclusive",
        })
    }
}

impl FromStr for NetnsMode {
    type Err = NetnsModeError;

    fn from_str(text: &str) -> Result<Self, NetnsModeError> {
        match text {
            "shared" => Ok(Self::Shared),
            "exclusive" => Ok(Self::Exclusive),
            _ => Err(NetnsModeError(text.to_owned())),
        }
    }
}
