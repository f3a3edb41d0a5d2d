// SPDX-License-Identifier: Apache-2.0
//! How large the packets are that the kernel builds for a link and joins from it (`IFLA_GSO_MAX_SIZE` and others of
//! `include/uapi/linux/if_link.h`). The limits stay on a link that moves to another namespace.

use netlink_packet_route::link::LinkAttribute;
use serde::{Deserialize, Serialize};

/// The limits of a link, with the names of `ip link`; `None` if the kernel does not report one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PacketLimits {
    /// The largest packet that the link gets for segmentation, in bytes.
    pub gso_max_size: Option<u32>,
    /// The most segments of such a packet.
    pub gso_max_segs: Option<u32>,
    /// The largest packet that the kernel joins from received ones, in bytes (Linux 5.19).
    pub gro_max_size: Option<u32>,
    /// As `gso_max_size`, for IPv4 (Linux 6.3). The kernel lowers it with `gso_max_size`.
    pub gso_ipv4_max_size: Option<u32>,
    /// As `gro_max_size`, for IPv4 (Linux 6.3). The kernel lowers it with `gro_max_size`.
    pub gro_ipv4_max_size: Option<u32>,
}

impl PacketLimits {
    /// Takes the limit in `attribute`, if it is one.
    pub(super) fn read(&mut self, attribute: &LinkAttribute) {
        match attribute {
            LinkAttribute::GsoMaxSize(bytes) => self.gso_max_size = Some(*bytes),
            LinkAttribute::GsoMaxSegs(segments) => self.gso_max_segs = Some(*segments),
            LinkAttribute::GroMaxSize(bytes) => self.gro_max_size = Some(*bytes),
            LinkAttribute::GsoIpv4MaxSize(bytes) => self.gso_ipv4_max_size = Some(*bytes),
            LinkAttribute::GroIpv4MaxSize(bytes) => self.gro_ipv4_max_size = Some(*bytes),
            _ => {}
        }
    }

    /// The attributes of a request. The kernel applies the limits for IPv4 last (`do_setlink` of
    /// `net/core/rtnetlink.c`).
    pub(super) fn encode(self) -> impl Iterator<Item = LinkAttribute> {
        let all = [
            self.gso_max_size.map(LinkAttribute::GsoMaxSize),
            self.gso_max_segs.map(LinkAttribute::GsoMaxSegs),
            self.gro_max_size.map(LinkAttribute::GroMaxSize),
            self.gso_ipv4_max_size.map(LinkAttribute::GsoIpv4MaxSize),
            self.gro_ipv4_max_size.map(LinkAttribute::GroIpv4MaxSize),
        ];
        all.into_iter().flatten()
    }
}
