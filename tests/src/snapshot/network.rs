// SPDX-License-Identifier: Apache-2.0
//! Links, addresses, routes, rules and permanent neighbours of the calling thread's namespace, as the kernel lists
//! them.

use super::{Object, object};
use netlink_packet_core::{NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{RouteAttribute, RouteMessage};
use netlink_packet_route::rule::RuleMessage;
use std::collections::BTreeMap;

/// Links by index.
type Names = BTreeMap<u32, String>;

pub(super) fn objects() -> Vec<Object> {
    let links = list(&Message::GetLink(LinkMessage::default()));
    let names: Names = links.iter().filter_map(name).collect();
    let lists = [
        Message::GetAddress(AddressMessage::default()),
        Message::GetRoute(RouteMessage::default()),
        Message::GetRule(RuleMessage::default()),
        Message::GetNeighbour(NeighbourMessage::default()),
    ];
    let others = lists.iter().flat_map(list);
    links
        .into_iter()
        .chain(others)
        .filter_map(|message| describe(message, &names))
        .collect()
}

fn name(message: &Message) -> Option<(u32, String)> {
    let Message::NewLink(link) = message else {
        return None;
    };
    let name = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    });
    Some((link.header.index, name?))
}

fn describe(message: Message, names: &Names) -> Option<Object> {
    match message {
        Message::NewLink(link) => Some(of_link(&link, names)),
        Message::NewAddress(address) => Some(object(of_address(&address, names))),
        Message::NewRoute(route) => Some(object(of_route(&route, names))),
        Message::NewRule(rule) => Some(object(format!("rule {:?} {:?}", rule.header, rule.attributes))),
        Message::NewNeighbour(neighbour) => of_neighbour(&neighbour, names),
        other => Some(object(format!("unexpected {other:?}"))),
    }
}

fn called(index: u32, names: &Names) -> String {
    names
        .get(&index)
        .cloned()
        .unwrap_or_else(|| format!("link {index} elsewhere"))
}

fn of_link(link: &LinkMessage, names: &Names) -> Object {
    let fact = |attribute: &LinkAttribute| match attribute {
        LinkAttribute::IfName(_)
        | LinkAttribute::Stats(_)
        | LinkAttribute::Stats64(_)
        | LinkAttribute::AfSpecUnspec(_)
        | LinkAttribute::CarrierChanges(_)
        | LinkAttribute::CarrierUpCount(_)
        | LinkAttribute::CarrierDownCount(_) => None,
        LinkAttribute::Link(parent) => Some(format!("on {}", called(*parent, names))),
        LinkAttribute::Controller(master) => Some(format!("port of {}", called(*master, names))),
        LinkAttribute::Address(address) => Some(format!("address {}", without_queue_pair(address))),
        LinkAttribute::PermAddress(address) => {
            Some(format!("made with address {}", without_queue_pair(address)))
        }
        other => Some(format!("{other:?}")),
    };
    let mut facts: Vec<_> = link.attributes.iter().filter_map(fact).collect();
    facts.push(format!("{:?}", link.header.flags));
    (
        format!("link {}", called(link.header.index, names)),
        facts.into_iter().collect(),
    )
}

/// An InfiniBand address starts with flags and the number of a queue pair, which is different after each start.
fn without_queue_pair(address: &[u8]) -> String {
    let significant = if address.len() == 20 {
        &address[4..]
    } else {
        address
    };
    let bytes: Vec<_> = significant.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

fn of_address(address: &AddressMessage, names: &Names) -> String {
    let header = &address.header;
    let attributes = address.attributes.iter();
    let facts = attributes.filter(|attribute| !matches!(attribute, AddressAttribute::CacheInfo(_)));
    format!(
        "address on {} /{} {:?} {:?}",
        called(header.index, names),
        header.prefix_len,
        header.scope,
        facts.collect::<Vec<_>>()
    )
}

fn of_route(route: &RouteMessage, names: &Names) -> String {
    let fact = |attribute: &RouteAttribute| match attribute {
        RouteAttribute::CacheInfo(_) | RouteAttribute::Expires(_) => None,
        RouteAttribute::Oif(link) => Some(format!("through {}", called(*link, names))),
        other => Some(format!("{other:?}")),
    };
    let facts: Vec<_> = route.attributes.iter().filter_map(fact).collect();
    let header = &route.header;
    format!(
        "route /{} {:?} {:?} {:?} {}",
        header.destination_prefix_length,
        header.kind,
        header.protocol,
        header.scope,
        facts.join(" ")
    )
}

/// Only permanent entries; the others change by themselves.
fn of_neighbour(neighbour: &NeighbourMessage, names: &Names) -> Option<Object> {
    let header = &neighbour.header;
    let attributes = neighbour.attributes.iter();
    let facts = attributes.filter(|attribute| {
        !matches!(
            attribute,
            NeighbourAttribute::CacheInfo(_) | NeighbourAttribute::Probes(_)
        )
    });
    let facts: Vec<_> = facts.collect();
    (header.state == NeighbourState::Permanent).then(|| {
        object(format!(
            "neighbour on {} {facts:?}",
            called(header.ifindex, names)
        ))
    })
}

/// The kernel's complete list. Reads it again if it changed meanwhile.
fn list(request: &Message) -> Vec<Message> {
    loop {
        if let Some(objects) = read(request) {
            return objects;
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the snapshot must not share the parser of the plugins"
)]
fn read(request: &Message) -> Option<Vec<Message>> {
    let mut socket = netlink_sys::Socket::new(netlink_sys::protocols::NETLINK_ROUTE).unwrap();
    socket.bind_auto().unwrap();
    socket.connect(&netlink_sys::SocketAddr::new(0, 0)).unwrap();
    let mut packet = NetlinkMessage::from(request.clone());
    packet.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    socket.send(&bytes, 0).unwrap();
    let mut objects = Vec::new();
    loop {
        let mut datagram = Vec::with_capacity(64 * 1024);
        socket.recv(&mut datagram, 0).unwrap();
        let mut rest = datagram.as_slice();
        while rest.len() >= 16 {
            let length = u32::from_ne_bytes(rest[..4].try_into().unwrap()) as usize;
            let message = NetlinkMessage::<Message>::deserialize(rest).unwrap();
            if message.header.flags & NLM_F_DUMP_INTR != 0 {
                return None;
            }
            match message.payload {
                NetlinkPayload::InnerMessage(object) => objects.push(object),
                NetlinkPayload::Done(_) => return Some(objects),
                other => panic!("{request:?} was answered by {other:?}"),
            }
            rest = &rest[length.next_multiple_of(4).min(rest.len())..];
        }
    }
}
