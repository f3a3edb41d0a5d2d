// SPDX-License-Identifier: Apache-2.0
//! Random changes of the kernel's answers: the parser returns objects or an error for any bytes.

use super::super::super::answer::Answers;
use super::super::super::garbled::{PORT, SEQUENCE, attribute, datagram, message};
use super::super::Link;
use crate::mutate;
use netlink_packet_route::RouteNetlinkMessage as Message;

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
    ];
    message(
        16,
        &[0, 0, 32, 0, 7, 0, 0, 0, 67, 16, 1, 0, 0, 0, 0, 0],
        &attributes,
    )
}

/// Answers of route netlink.
fn routes() -> Vec<Vec<u8>> {
    let (v4, v6) = ([10, 0, 0, 1], [0xfd; 16]);
    vec![
        link(
            "ipoib",
            &[
                attribute(1, &[0xff, 0xff]),
                attribute(2, &[0, 0]),
                attribute(3, &[0, 0]),
            ],
        ),
        link("macvlan", &[attribute(1, &4_u32.to_ne_bytes())]),
        link(
            "bond",
            &[
                attribute(1, &[1]),
                attribute(10, &[1]),
                attribute(3, &100_u32.to_ne_bytes()),
            ],
        ),
        message(
            20,
            &[2, 24, 0, 0, 7, 0, 0, 0],
            &[
                attribute(1, &v4),
                attribute(2, &v4),
                attribute(8, &[0; 4]),
                attribute(6, &[0; 16]),
            ],
        ),
        message(
            20,
            &[10, 64, 0, 0, 7, 0, 0, 0],
            &[attribute(1, &v6), attribute(6, &[0; 16])],
        ),
        message(
            24,
            &[2, 24, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0],
            &[
                attribute(1, &v4),
                attribute(4, &[7, 0, 0, 0]),
                attribute(5, &v4),
                attribute(8, &attribute(2, &[0, 1, 0, 0])),
                attribute(9, &[16, 0, 0, 0, 7, 0, 0, 0, 8, 0, 5, 0, 10, 0, 0, 1]),
            ],
        ),
        message(
            32,
            &[2, 0, 32, 0, 254, 0, 0, 1, 0, 0, 0, 0],
            &[attribute(2, &v4), attribute(6, &[1; 4]), attribute(15, &[1; 4])],
        ),
        // NLMSG_ERROR with the kernel's text, and NLMSG_DONE.
        message(
            2,
            &[0xea, 0xff, 0xff, 0xff],
            &[vec![0; 16], attribute(1, b"no such parent\0")],
        ),
        message(3, &[0; 4], &[]),
    ]
}

#[test]
fn any_route_netlink_answer_is_read_or_refused() {
    let answers = routes();
    let (mut links, mut refused) = (0, 0);
    mutate::cases("route netlink", 20_000, |_, random| {
        let mut read = Answers::<Message>::to(SEQUENCE, PORT);
        let bytes = datagram(random, &answers);
        refused += usize::from(read.read(&bytes).is_err());
        assert!(read.objects.len() + read.undecoded.len() <= bytes.len() / 16);
        for object in read.objects {
            if let Message::NewLink(link) = object {
                let link = Link::decode(link);
                assert!(link.name.len() <= bytes.len() && link.address.len() <= bytes.len());
                links += 1;
            }
        }
    });
    assert!(
        links > 0 && refused > 0,
        "{links} links were read, {refused} datagrams refused"
    );
}
