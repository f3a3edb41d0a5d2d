// SPDX-License-Identifier: Apache-2.0
use super::super::error::Error;
use super::super::socket::Socket;
use super::super::text::{self, IFLA_ALT_IFNAME};
use super::Route;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::{LinkAttribute, LinkMessage, Prop};
use nix::errno::Errno;

impl Socket<Route> {
    /// Adds an altname of at most 127 bytes to the link `index`. Returns `false` if the link has it already.
    ///
    /// # Errors
    /// `EEXIST`: another link of the namespace has the name. `ENODEV`: no such link.
    pub fn add_altname(&mut self, index: u32, name: &str) -> Result<bool, Error> {
        let request = Message::NewLinkProp(encode(index, name));
        match self.change(request, NLM_F_CREATE | NLM_F_EXCL) {
            Ok(()) => Ok(true),
            // The kernel returns EEXIST for a name of this link and of any other.
            Err(e) if e.is(Errno::EEXIST) && self.is_called(index, name)? => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Removes an altname of the link `index`. Returns `false` if the link does not have it.
    pub fn delete_altname(&mut self, index: u32, name: &str) -> Result<bool, Error> {
        match self.change(Message::DelLinkProp(encode(index, name)), 0) {
            Ok(()) => Ok(true),
            // ENOENT: no link has it. EINVAL: it is not an altname, or another link's (`linkprop` of
            // net/core/dev.c).
            Err(e) if e.is(Errno::ENOENT) || e.is(Errno::EINVAL) && !self.is_called(index, name)? => {
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }

    fn is_called(&mut self, index: u32, name: &str) -> Result<bool, Error> {
        let link = self.link_by_index(index)?;
        Ok(link.is_some_and(|link| link.altnames.iter().any(|altname| altname == name)))
    }
}

fn encode(index: u32, name: &str) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    let names = vec![Prop::Other(text::attribute(IFLA_ALT_IFNAME, name))];
    message.attributes.push(LinkAttribute::PropList(names));
    message
}
