// SPDX-License-Identifier: Apache-2.0
use super::super::error::Error;
use super::super::socket::Socket;
use super::Route;
use crate::id::Guid;
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::{LinkAttribute, LinkMessage, LinkVfInfo, VfInfo, VfInfoGuid};

impl Socket<Route> {
    /// Sets the GUIDs of the virtual function `function` of the physical function's link `index`: `node` for
    /// its InfiniBand device, `port` for its only port. They take effect when a driver is next bound to the
    /// function. If the kernel refuses `port`, `node` is set.
    ///
    /// # Errors
    /// `EINVAL`: no such function. `EOPNOTSUPP`: the link is not InfiniBand, or its driver has no virtual functions.
    pub fn set_function_guids(
        &mut self,
        index: u32,
        function: u32,
        node: Guid,
        port: Guid,
    ) -> Result<(), Error> {
        self.change(Message::SetLink(encode(index, function, node, port)), 0)
    }
}

pub(super) fn encode(index: u32, function: u32, node: Guid, port: Guid) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    // The kernel sets one GUID for each `IFLA_VF_INFO`, and ignores what follows it there (`do_setvfinfo` of
    // `net/core/rtnetlink.c`).
    let guids = vec![
        LinkVfInfo(vec![VfInfo::IbNodeGuid(VfInfoGuid::new(function, node.0))]),
        LinkVfInfo(vec![VfInfo::IbPortGuid(VfInfoGuid::new(function, port.0))]),
    ];
    message.attributes.push(LinkAttribute::VfInfoList(guids));
    message
}
