// SPDX-License-Identifier: Apache-2.0
//! `NETLINK_ROUTE`: links, addresses and routes (`rtnetlink(7)`).

pub(super) mod address;
pub(super) mod carrier;
pub(super) mod entry;
pub(super) mod kind;
pub(super) mod limits;
pub(super) mod link;
pub(super) mod new_link;
mod property;
pub(super) mod rule;
pub(super) mod saved;
pub(super) mod virtual_function;
pub(super) mod xdp;

use super::error::Error;
use super::socket::{Family, Socket, Wire};
use super::text::{self, IFLA_ALT_IFNAME, IFLA_IFNAME};
use kind::IpoibMode;
use link::Link;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkMessage};
use new_link::{LinkChange, NewLink};
use nix::errno::Errno;

/// `IFNAMSIZ` and `ALTIFNAMSIZ` of `include/uapi/linux/if.h` without the final zero.
const NAME_BYTES: usize = 15;
const ALTNAME_BYTES: usize = 127;

/// With any bit in the mask, the kernel allocates the buffer of a list by its largest link (`rtnl_calcit` of
/// `net/core/rtnetlink.c`). Otherwise a link with hundreds of altnames ends the list. This bit changes only lists of
/// bridges.
const SIZED: LinkExtentMask = LinkExtentMask::Mrp;

/// The family of links, addresses and routes.
pub enum Route {}

impl Wire for Route {
    const PROTOCOL: isize = netlink_sys::protocols::NETLINK_ROUTE;
    const STRICT: bool = true;
    type Message = Message;
}

impl Family for Route {}

impl Socket<Route> {
    /// The link that has `name` as its name or as one of its altnames.
    ///
    /// # Errors
    /// Any error of the kernel except `ENODEV`, which is `None`.
    pub fn link(&mut self, name: &str) -> Result<Option<Link>, Error> {
        if name.is_empty() || text::bytes(name).len() > ALTNAME_BYTES || name.contains('\0') {
            return Ok(None);
        }
        let mut request = LinkMessage::default();
        // Either attribute finds names and altnames (`rtnl_dev_get`), but the first has no room for long ones.
        let is_short = text::bytes(name).len() <= NAME_BYTES;
        let kind = if is_short { IFLA_IFNAME } else { IFLA_ALT_IFNAME };
        request
            .attributes
            .push(LinkAttribute::Other(text::attribute(kind, name)));
        match self.one_link(request) {
            // Linux before 5.5 has no altnames.
            Err(e) if e.is(Errno::EINVAL) && !is_short => Ok(None),
            answer => answer,
        }
    }

    /// The link with this index. `None` if it does not exist.
    pub fn link_by_index(&mut self, index: u32) -> Result<Option<Link>, Error> {
        let mut request = LinkMessage::default();
        request.header.index = index;
        self.one_link(request)
    }

    fn one_link(&mut self, request: LinkMessage) -> Result<Option<Link>, Error> {
        match self.get(&Message::GetLink(request)) {
            Ok(Some(Message::NewLink(link))) => Ok(Some(Link::decode(link))),
            Ok(other) => Err(Error::Unexpected(format!("{other:?} to RTM_GETLINK"))),
            Err(e) if e.is(Errno::ENODEV) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Every link of the namespace, by ascending index.
    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        let request = || {
            let mut request = LinkMessage::default();
            request.attributes.push(LinkAttribute::ExtMask(vec![SIZED]));
            Message::GetLink(request)
        };
        let answers = self.dump(request)?;
        let links = answers.into_iter().filter_map(|message| match message {
            Message::NewLink(link) => Some(Link::decode(link)),
            _ => None,
        });
        let mut links: Vec<Link> = links.collect();
        links.sort_by_key(|link| link.index);
        Ok(links)
    }

    /// Creates a link, down, in the socket's namespace or directly in [`NewLink::netns`].
    ///
    /// # Errors
    /// `EEXIST`: the name is in use in the namespace of the new link, or, on older kernels, in the socket's
    /// own namespace (Linux 6.1 refuses, 6.18 does not). Nothing was made or changed. Further errors depend
    /// on the kind: `EINVAL` for an IPoIB child of a child or a macvlan on InfiniBand, `EBUSY` for a macvlan
    /// on a parent that an ipvlan or bridge holds.
    pub fn add_link(&mut self, link: &NewLink<'_>) -> Result<(), Error> {
        self.change(Message::NewLink(link.encode()), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Changes a link in one request.
    ///
    /// The kernel applies the changes in its own order: address, MTU, group, name, alias, flags and up or down, and
    /// then the address generation and the IPv4 settings (`do_setlink` of `net/core/rtnetlink.c`). To keep a
    /// link from generating an address when it comes up, set `addr_gen_mode` in a request before the one that
    /// sets `up`; likewise `ipv4`, whose settings the kernel reads when the link comes up.
    ///
    /// # Errors
    /// `ENODEV`: no such link. `EAFNOSUPPORT`: `ipv4` of a link that has no IPv4, because its MTU is below 68
    /// bytes. The changes before a refused one stay.
    pub fn change_link(&mut self, index: u32, change: &LinkChange<'_>) -> Result<(), Error> {
        self.change(Message::SetLink(change.encode(index)), 0)
    }

    /// Changes the transport of the IPoIB link `index`. The link may lose its multicast groups for a moment,
    /// and its MTU becomes that of the mode.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: the link is of another kind. `EBUSY`: the kernel released its lock of links in the middle of the request,
    /// and another process has it (`ipoib_set_mode` of `ipoib_main.c`).
    pub fn change_ipoib(&mut self, index: u32, mode: IpoibMode, umcast: bool) -> Result<(), Error> {
        self.change(Message::NewLink(new_link::ipoib_change(index, mode, umcast)), 0)
    }

    /// Deletes a link. Returns `false` if it does not exist.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: the link belongs to hardware.
    pub fn delete_link(&mut self, index: u32) -> Result<bool, Error> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        match self.change(Message::DelLink(link), 0) {
            Ok(()) => Ok(true),
            Err(e) if e.is(Errno::ENODEV) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
