// SPDX-License-Identifier: Apache-2.0
//! XDP programs of a link (`IFLA_XDP` of `include/uapi/linux/if_link.h`). Such a program stays on a link that moves to
//! another namespace.

use netlink_packet_route::link::{LinkAttribute, LinkXdp};

/// Where an XDP program processes the packets of a link. A link may have a program in each mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the network stack (`xdpgeneric` of `ip link`).
    Generic,
    /// In the driver (`xdpdrv`).
    Driver,
    /// In the hardware (`xdpoffload`).
    Hardware,
}

impl XdpMode {
    /// The modes in which the link has a program.
    pub(super) fn decode(attributes: &[LinkXdp]) -> Vec<Self> {
        let mode = |attribute: &LinkXdp| match attribute {
            LinkXdp::SkbProgId(_) => Some(Self::Generic),
            LinkXdp::DrvProgId(_) => Some(Self::Driver),
            LinkXdp::HwProgId(_) => Some(Self::Hardware),
            _ => None,
        };
        attributes.iter().filter_map(mode).collect()
    }

    /// The request to remove the program of this mode.
    pub(super) fn removal(self) -> LinkAttribute {
        // XDP_FLAGS_SKB_MODE, XDP_FLAGS_DRV_MODE and XDP_FLAGS_HW_MODE.
        let flags = match self {
            Self::Generic => 1 << 1,
            Self::Driver => 1 << 2,
            Self::Hardware => 1 << 3,
        };
        LinkAttribute::Xdp(vec![LinkXdp::Fd(-1), LinkXdp::Flags(flags)])
    }
}
