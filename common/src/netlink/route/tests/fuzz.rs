// SPDX-License-Identifier: Apache-2.0
//! Random changes of the kernel's answers: the parser returns objects or an error for any bytes, and what it returns is read
//! without a panic by each reader of the product.

use super::super::super::answer::Answers;
use super::super::super::garbled::{PORT, SEQUENCE, attribute, datagram, message};
use super::super::address::Address;
use super::super::saved::{Carried, Saved, usable_at_once};
use super::super::{Link, entry, rule, virtual_function};
use crate::mutate;
use netlink_packet_route::RouteNetlinkMessage as Message;
use std::collections::BTreeMap;

/// The link that all answers are about.
const INDEX: u32 = 7;

/// `RTM_NEWLINK` of a kind, with the attributes that are read.
fn link(kind: &str, data: &[Vec<u8>]) -> Vec<u8> {
    let info = [attribute(1, kind.as_bytes()), attribute(2, &data.concat())].concat();
    let attributes = [
        attribute(3, b"net1\0"),
        attribute(1, &[7; 20]),
        attribute(2, &[0xff; 20]),
        attribute(4, &2044_u32.to_ne_bytes()),
        attribute(5, &5_u32.to_ne_bytes()),
        attribute(16, &[6]),
        attribute(18, &info),
        attribute(20, b"an alias"),
        attribute(27, &9_u32.to_ne_bytes()),
        attribute(52, &attribute(53, b"an-alternative-name\0")),
        attribute(54, &[7; 20]),
        attribute(23, &[1; 192]),
        attribute(26, &attribute(10, &attribute(8, &[0]))),
        // IFLA_VFINFO_LIST with the link state of function 1, and IFLA_XDP with programs in two modes.
        attribute(22, &attribute(1, &attribute(5, &[1, 0, 0, 0, 2, 0, 0, 0]))),
        attribute(
            43,
            &[
                attribute(2, &[4]),
                attribute(5, &3_u32.to_ne_bytes()),
                attribute(6, &3_u32.to_ne_bytes()),
            ]
            .concat(),
        ),
    ];
    message(
        16,
        &[0, 0, 32, 0, 7, 0, 0, 0, 67, 16, 1, 0, 0, 0, 0, 0],
        &attributes,
    )
}

/// Links of three kinds.
fn links() -> Vec<Vec<u8>> {
    let ipoib = [
        attribute(1, &[0xff, 0xff]),
        attribute(2, &[0, 0]),
        attribute(3, &[0, 0]),
    ];
    let bond = [
        attribute(1, &[1]),
        attribute(10, &[1]),
        attribute(3, &100_u32.to_ne_bytes()),
    ];
    vec![
        link("ipoib", &ipoib),
        link("macvlan", &[attribute(1, &4_u32.to_ne_bytes())]),
        link("bond", &bond),
    ]
}

const V4: [u8; 4] = [10, 0, 0, 1];
const V6: [u8; 16] = [0xfd; 16];

/// A permanent address of each family, and one with a lifetime.
fn addresses() -> Vec<Vec<u8>> {
    let v4 = |flags: u32| {
        let attributes = [
            attribute(1, &V4),
            attribute(2, &V4),
            attribute(8, &flags.to_ne_bytes()),
            attribute(6, &[0; 16]),
        ];
        message(20, &[2, 24, 0, 0, 7, 0, 0, 0], &attributes)
    };
    let v6 = [
        attribute(1, &V6),
        attribute(8, &0xc0_u32.to_ne_bytes()),
        attribute(6, &[0; 16]),
    ];
    vec![v4(0x80), v4(0), message(20, &[10, 64, 0xc0, 0, 7, 0, 0, 0], &v6)]
}

/// A route over a next hop, one from an address, one over several links, and one of IPv6.
fn routes() -> Vec<Vec<u8>> {
    let (v4, v6) = (
        [2, 24, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0],
        [10, 64, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0],
    );
    let far = [
        attribute(1, &V4),
        attribute(4, &[7, 0, 0, 0]),
        attribute(5, &V4),
        attribute(6, &77_u32.to_ne_bytes()),
        attribute(8, &attribute(2, &[0, 1, 0, 0])),
    ];
    let near = [
        attribute(1, &V4),
        attribute(4, &[7, 0, 0, 0]),
        attribute(7, &V4),
        attribute(15, &254_u32.to_ne_bytes()),
    ];
    let hops = [16, 0, 0, 0, 7, 0, 0, 0, 8, 0, 5, 0, 10, 0, 0, 1];
    let several = [attribute(1, &V4), attribute(9, &hops)];
    let sixth = [
        attribute(1, &V6),
        attribute(4, &[7, 0, 0, 0]),
        attribute(5, &V6),
        attribute(12, &[0; 32]),
    ];
    vec![
        message(24, &v4, &far),
        message(24, &v4, &near),
        message(24, &v4, &several),
        message(24, &v6, &sixth),
    ]
}

/// All answers of route netlink that the product reads.
fn answers() -> Vec<Vec<u8>> {
    let rule = [
        attribute(2, &V4),
        attribute(6, &[1; 4]),
        attribute(14, &u32::MAX.to_ne_bytes()),
        attribute(15, &[1; 4]),
        attribute(21, &[4]),
    ];
    let neighbour = |state: u8, who: &[u8]| {
        let family = if who.len() == 4 { 2 } else { 10 };
        let attributes = [
            attribute(1, who),
            attribute(2, &[2, 0, 0, 0, 0, 99]),
            attribute(3, &[0; 16]),
            attribute(4, &[0; 4]),
        ];
        message(28, &[family, 0, 0, 0, 7, 0, 0, 0, state, 0, 0, 1], &attributes)
    };
    let others = vec![
        message(32, &[2, 0, 32, 0, 254, 0, 0, 1, 0, 0, 0, 0], &rule),
        neighbour(0x80, &V4),
        neighbour(0x80, &V6),
        neighbour(2, &V4),
        // NLMSG_ERROR with the kernel's text, and NLMSG_DONE.
        message(
            2,
            &[0xea, 0xff, 0xff, 0xff],
            &[vec![0; 16], attribute(1, b"no such parent\0")],
        ),
        message(3, &[0; 4], &[]),
    ];
    [links(), addresses(), routes(), others].concat()
}

/// How often each reader returned something.
#[derive(Default)]
struct Tally(BTreeMap<&'static str, usize>);

impl Tally {
    fn count(&mut self, what: &'static str, number: usize) {
        *self.0.entry(what).or_default() += number;
    }

    /// Reads an object as the product does. `size`: the bytes of its datagram.
    fn read(&mut self, object: Message, size: usize) {
        match object {
            Message::NewLink(message) => {
                let state = (0..3).find_map(|function| virtual_function::state_of(&message, function));
                self.count("states of a function", usize::from(state.is_some()));
                let link = Link::decode(message);
                assert!(link.name.len() <= size && link.address.len() <= size);
                self.count("links", 1);
                self.count("links with XDP programs", usize::from(!link.xdp.is_empty()));
            }
            Message::NewAddress(message) => {
                let address = Address::decode(&message);
                self.count("addresses", usize::from(address.is_some()));
            }
            Message::NewRoute(message) => {
                let mut routes = Vec::new();
                entry::decode(&message, INDEX, &mut routes);
                assert!(routes.len() <= size && routes.iter().all(|route| route.index == INDEX));
                self.count("routes", routes.len());
            }
            Message::NewRule(message) => {
                self.count("rules", usize::from(rule::decode(&message).is_some()));
            }
            _ => {}
        }
    }

    /// Selects what must be restored, as if each dump had returned all objects. The request for each can be made, also from the
    /// journal.
    fn save(&mut self, objects: &[Message]) {
        let all = || objects.to_vec();
        let carried = Carried::of(INDEX, all(), all(), all());
        self.count("routes over several links", carried.shared.len());
        for saved in carried.saved {
            let text = serde_json::to_string(&saved).unwrap();
            let read: Saved = serde_json::from_str(&text).unwrap();
            assert_eq!(read, saved);
            let (request, _) = saved.request(9).unwrap();
            let what = match &request {
                Message::NewAddress(_) => "saved addresses",
                Message::NewRoute(_) => "saved routes",
                _ => "saved neighbours",
            };
            self.count(what, 1);
            self.count(
                "addresses in use at once",
                usize::from(usable_at_once(&request).is_some()),
            );
        }
    }
}

#[test]
fn any_route_netlink_answer_is_read_or_refused() {
    let answers = answers();
    let mut tally = Tally::default();
    mutate::cases("route netlink", 20_000, |_, random| {
        let mut read = Answers::<Message>::to(SEQUENCE, PORT);
        let bytes = datagram(random, &answers);
        tally.count("refused datagrams", usize::from(read.read(&bytes).is_err()));
        assert!(read.objects.len() + read.undecoded.len() <= bytes.len() / 16);
        tally.save(&read.objects);
        for object in read.objects {
            tally.read(object, bytes.len());
        }
    });
    assert!(tally.0.values().all(|count| *count > 0), "{:?}", tally.0);
}
