// SPDX-License-Identifier: Apache-2.0
use super::super::error::Error;
use super::super::socket::Socket;
use super::Route;
use crate::id::Guid;
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::{
    LinkAttribute, LinkExtentMask, LinkMessage, LinkVfInfo, VfInfo, VfInfoGuid, VfInfoLinkState, VfLinkState,
};
use serde::{Deserialize, Serialize};

/// The link state that a physical function gives to the port of its virtual function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FunctionState {
    /// The port follows the port of the physical function.
    Auto,
    /// The port is up.
    Enable,
    /// The port is down.
    Disable,
}

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

    /// The link state of the virtual function `function` of the physical function's link `index`. `None` if the
    /// driver does not report it, or its answer cannot be decoded.
    ///
    /// # Errors
    /// The kernel refuses, or the link is gone.
    pub fn function_state(&mut self, index: u32, function: u32) -> Result<Option<FunctionState>, Error> {
        let mut request = LinkMessage::default();
        request.header.index = index;
        // Each counter of a function would be a request to the firmware.
        let mask = vec![LinkExtentMask::Vf, LinkExtentMask::SkipStats];
        request.attributes.push(LinkAttribute::ExtMask(mask));
        match self.get(&Message::GetLink(request)) {
            Ok(Some(Message::NewLink(link))) => Ok(state_of(&link, function)),
            Ok(other) => Err(Error::Unexpected(format!("{other:?} to RTM_GETLINK"))),
            Err(Error::Decode(reason)) => {
                tracing::warn!(error = %reason, "cannot decode the link states of virtual functions");
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Sets the link state of the virtual function `function` of the physical function's link `index`.
    ///
    /// # Errors
    /// `EINVAL`: no such function. `EOPNOTSUPP`: the driver gives its functions no link state.
    pub fn set_function_state(
        &mut self,
        index: u32,
        function: u32,
        state: FunctionState,
    ) -> Result<(), Error> {
        self.change(Message::SetLink(encode_state(index, function, state)), 0)
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

pub(super) fn encode_state(index: u32, function: u32, state: FunctionState) -> LinkMessage {
    let state = match state {
        FunctionState::Auto => VfLinkState::Auto,
        FunctionState::Enable => VfLinkState::Enable,
        FunctionState::Disable => VfLinkState::Disable,
    };
    let mut message = LinkMessage::default();
    message.header.index = index;
    let info = VfInfo::LinkState(VfInfoLinkState::new(function, state));
    let list = LinkAttribute::VfInfoList(vec![LinkVfInfo(vec![info])]);
    message.attributes.push(list);
    message
}

/// The link state of `function` in the kernel's message about the link of its physical function.
pub(super) fn state_of(link: &LinkMessage, function: u32) -> Option<FunctionState> {
    let lists = link.attributes.iter().filter_map(|attribute| match attribute {
        LinkAttribute::VfInfoList(list) => Some(list),
        _ => None,
    });
    let mut states = lists
        .flatten()
        .flat_map(|info| &info.0)
        .filter_map(|info| match info {
            VfInfo::LinkState(of) if of.vf_id == function => Some(of.state),
            _ => None,
        });
    match states.next()? {
        VfLinkState::Auto => Some(FunctionState::Auto),
        VfLinkState::Enable => Some(FunctionState::Enable),
        VfLinkState::Disable => Some(FunctionState::Disable),
        _ => None,
    }
}
