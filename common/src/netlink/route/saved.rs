// SPDX-License-Identifier: Apache-2.0
//! Saves and restores the addresses, routes and neighbours of a link, as the kernel's own messages.
//!
//! The message that lists an object is also the request that creates it (`ip-address(8)` and `ip-route(8)`,
//! "save" and "restore"). So properties that this program does not model survive: labels, peers, metrics,
//! preferred sources.

use super::super::error::Error;
use super::super::socket::{Socket, request};
use super::Route;
use super::address::Added;
use super::entry::{destination, gateway, source};
use netlink_packet_core::{
    NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NetlinkBuffer, NetlinkDeserializable,
    NetlinkHeader, Parseable,
};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAttribute, RouteFlags, RouteMessage, RouteProtocol, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::net::IpAddr;

/// `RT_TABLE_LOCAL` of `include/uapi/linux/rtnetlink.h`, the kernel's own.
const TABLE_LOCAL: u32 = 255;

/// The saved objects of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// In an order in which they can be restored.
    pub saved: Vec<Saved>,
    /// Descriptions of routes over several links or next hop objects. The kernel drops a part of such a route
    /// with the link, and that part cannot be restored alone.
    pub shared: Vec<String>,
}

/// One address, route or neighbour of a link, as the kernel reported it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// Description, e.g. `address 10.7.0.1/24`.
    pub what: String,
    /// The kernel's message.
    message: Bytes,
}

/// Bytes, serialized in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bytes(Vec<u8>);

impl Socket<Route> {
    /// Reads the objects of the link `index` that must be restored.
    ///
    /// Objects that the kernel makes itself are left out: routes to local, broadcast and multicast addresses,
    /// and objects of router advertisements. So are an address with a lifetime and the routes from it: it may expire
    /// before it could be restored, and the program that leased it leases an address again. Only permanent
    /// neighbours are kept.
    pub fn save(&mut self, index: u32) -> Result<Carried, Error> {
        let addresses = self.dump(|| about_address(index))?;
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            // A kernel without IPv6 answers a request for IPv6 routes with the routes of all families.
            let is_of_family = |message: &Message| matches!(message, Message::NewRoute(m) if m.header.address_family == family);
            let answers = self.dump(|| about_routes(family))?;
            routes.extend(answers.into_iter().filter(is_of_family));
        }
        let neighbours = self.dump(|| Message::GetNeighbour(NeighbourMessage::default()))?;
        Ok(Carried::of(index, addresses, routes, neighbours))
    }

    /// Restores `saved` on the link `index`, which may differ from the index at the time of saving.
    ///
    /// An IPv6 address can be used at once, without another search for duplicates: meanwhile the kernel would refuse the routes
    /// that have it as their source (`ip6_route_info_create` in `net/ipv6/route.c`).
    ///
    /// # Errors
    /// The errors of adding the object; [`Error::Decode`] for bytes that are not such a message.
    pub fn restore(&mut self, index: u32, saved: &Saved) -> Result<Added, Error> {
        let (message, flags) = saved.request(index)?;
        let Some(usable) = usable_at_once(&message) else {
            return Added::from_answer(self.change(message, flags));
        };
        let added = Added::from_answer(self.change(usable, flags))?;
        if added == Added::New {
            // The address was in use without this flag.
            self.change(message, NLM_F_REPLACE)?;
        }
        Ok(added)
    }
}

/// The request for an IPv6 address with the flag that ends the search for duplicates. None if `message` has the flag or is about
/// something else.
pub(super) fn usable_at_once(message: &Message) -> Option<Message> {
    let Message::NewAddress(address) = message else {
        return None;
    };
    let is_v6 = address.header.family == AddressFamily::Inet6;
    let all = address.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Flags(all) => Some(*all),
        _ => None,
    });
    let flags = all.filter(|all| is_v6 && !all.contains(AddressFlags::Nodad))?;
    let mut usable = address.clone();
    usable
        .attributes
        .retain(|attribute| !matches!(attribute, AddressAttribute::Flags(_)));
    usable
        .attributes
        .push(AddressAttribute::Flags(flags | AddressFlags::Nodad));
    Some(Message::NewAddress(usable))
}

impl Carried {
    /// Selects what must be restored of the link `index` from the kernel's answers.
    pub(super) fn of(
        index: u32,
        addresses: Vec<Message>,
        routes: Vec<Message>,
        neighbours: Vec<Message>,
    ) -> Self {
        let mut carried = Self::default();
        let mut leased = Vec::new();
        for message in addresses {
            match message {
                Message::NewAddress(m) if m.header.index == index => {
                    carried.saved.extend(address(m, &mut leased));
                }
                _ => {}
            }
        }
        let mut far = Vec::new();
        for message in routes {
            if let Message::NewRoute(m) = message {
                route(m, index, &leased, &mut carried, &mut far);
            }
        }
        // A route over a next hop needs a route to that next hop first.
        carried.saved.append(&mut far);
        for message in neighbours {
            match message {
                Message::NewNeighbour(m) if m.header.ifindex == index => carried.saved.extend(neighbour(m)),
                _ => {}
            }
        }
        carried
    }
}

impl Saved {
    fn new(what: String, message: Message) -> Self {
        Self {
            what,
            message: Bytes(request(message, 0, 0)),
        }
    }

    /// The request that creates the object on the link `index`.
    pub(super) fn request(&self, index: u32) -> Result<(Message, u16), Error> {
        let undecodable = |e: &dyn std::fmt::Display| Error::Decode(format!("{}: {e}", self.what));
        let buffer = NetlinkBuffer::new_checked(&self.message.0).map_err(|e| undecodable(&e))?;
        let header = NetlinkHeader::parse(&buffer).map_err(|e| undecodable(&e))?;
        let message = Message::deserialize(&header, buffer.payload()).map_err(|e| undecodable(&e))?;
        match message {
            Message::NewAddress(mut m) => {
                m.header.index = index;
                Ok((Message::NewAddress(m), NLM_F_CREATE | NLM_F_EXCL))
            }
            Message::NewRoute(mut m) => {
                for attribute in &mut m.attributes {
                    if let RouteAttribute::Oif(oif) = attribute {
                        *oif = index;
                    }
                }
                Ok((Message::NewRoute(m), NLM_F_CREATE | NLM_F_APPEND))
            }
            Message::NewNeighbour(mut m) => {
                m.header.ifindex = index;
                Ok((Message::NewNeighbour(m), NLM_F_CREATE | NLM_F_EXCL))
            }
            other => Err(undecodable(&format!("{other:?} is none of them"))),
        }
    }
}

/// Saves an address. Appends it to `leased` instead if it has a lifetime, as one of DHCP or of a router advertisement.
fn address(mut message: AddressMessage, leased: &mut Vec<IpAddr>) -> Option<Saved> {
    let mut flags = AddressFlags::from_bits_retain(message.header.flags.bits().into());
    let (mut local, mut peer) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Flags(all) => flags = *all,
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => peer = Some(*ip),
            _ => {}
        }
    }
    let ip = local.or(peer)?;
    if !flags.contains(AddressFlags::Permanent) {
        leased.push(ip);
        return None;
    }
    // The outcome of an earlier duplicate address detection does not predict the next one.
    let passing = AddressFlags::Tentative | AddressFlags::Dadfailed | AddressFlags::Deprecated;
    for attribute in &mut message.attributes {
        if let AddressAttribute::Flags(all) = attribute {
            all.remove(passing);
        }
    }
    message.header.flags.remove(
        AddressHeaderFlags::Tentative | AddressHeaderFlags::Dadfailed | AddressHeaderFlags::Deprecated,
    );
    let what = format!("address {ip}/{}", message.header.prefix_len);
    Some(Saved::new(what, Message::NewAddress(message)))
}

fn about_address(index: u32) -> Message {
    let mut message = AddressMessage::default();
    message.header.index = index;
    Message::GetAddress(message)
}

fn about_routes(family: AddressFamily) -> Message {
    let mut message = RouteMessage::default();
    message.header.address_family = family;
    Message::GetRoute(message)
}

/// Appends a user's route to `far` if it has a next hop, else to `carried.saved`. A route from a `leased` address is left
/// out.
fn route(
    mut message: RouteMessage,
    index: u32,
    leased: &[IpAddr],
    carried: &mut Carried,
    far: &mut Vec<Saved>,
) {
    let table = message.attributes.iter().find_map(|a| match a {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    let by_kernel = message.header.protocol == RouteProtocol::Ra
        || table.unwrap_or(message.header.table.into()) == TABLE_LOCAL
        || message.header.kind != RouteType::Unicast
        || message.header.flags.contains(RouteFlags::Cloned);
    if by_kernel {
        return;
    }
    let what = in_words(&message);
    let one = message
        .attributes
        .iter()
        .any(|a| matches!(a, RouteAttribute::Oif(oif) if *oif == index));
    let several = message.attributes.iter().any(|a| match a {
        RouteAttribute::MultiPath(hops) => hops.iter().any(|hop| hop.interface_index == index),
        RouteAttribute::NhId(_) => one,
        _ => false,
    });
    let is_leased = source(&message).is_some_and(|source| leased.contains(&source));
    if several {
        carried.shared.push(what);
    } else if one && !is_leased {
        // The list contains state that a request must not: ages, and the health of the next hop.
        message
            .attributes
            .retain(|a| !matches!(a, RouteAttribute::CacheInfo(_)));
        message
            .header
            .flags
            .remove(RouteFlags::Dead | RouteFlags::Linkdown);
        let over_hop = |a: &RouteAttribute| matches!(a, RouteAttribute::Gateway(_) | RouteAttribute::Via(_));
        let list = if message.attributes.iter().any(over_hop) {
            far
        } else {
            &mut carried.saved
        };
        list.push(Saved::new(what, Message::NewRoute(message)));
    }
}

fn in_words(message: &RouteMessage) -> String {
    let what = match destination(message) {
        Some(to) => format!("route to {to}/{}", message.header.destination_prefix_length),
        None => "default route".to_owned(),
    };
    gateway(&message.attributes)
        .iter()
        .fold(what, |what, over| format!("{what} via {over}"))
}

/// Saves a permanent neighbour.
fn neighbour(mut message: NeighbourMessage) -> Option<Saved> {
    if message.header.state != NeighbourState::Permanent {
        return None;
    }
    message.attributes.retain(|a| {
        !matches!(
            a,
            NeighbourAttribute::CacheInfo(_) | NeighbourAttribute::Probes(_)
        )
    });
    let who = message.attributes.iter().find_map(|a| match a {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(who)) => Some(who.to_string()),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(who)) => Some(who.to_string()),
        _ => None,
    })?;
    Some(Saved::new(
        format!("neighbour {who}"),
        Message::NewNeighbour(message),
    ))
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(2 * self.0.len());
        for byte in &self.0 {
            text.extend([byte >> 4, byte & 15].map(|half| char::from_digit(half.into(), 16).unwrap_or('0')));
        }
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || serde::de::Error::custom(format!("{text:?} is no even number of hexadecimal digits"));
        let pair = |pair: &[u8]| {
            let digits = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(digits, 16).ok()
        };
        let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(pair).collect();
        bytes
            .filter(|_| text.len().is_multiple_of(2))
            .map(Bytes)
            .ok_or_else(wrong)
    }
}
