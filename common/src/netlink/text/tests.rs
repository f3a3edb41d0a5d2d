// SPDX-License-Identifier: Apache-2.0
use super::super::garbled::attribute;
use super::{NEW_LINK, bytes, escape, escape_link};
use crate::mutate;
use netlink_packet_core::{NetlinkDeserializable, NetlinkHeader};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::{LinkAttribute, Prop};

fn escaped(text: &[u8]) -> String {
    String::from_utf8(escape(text).into_owned()).unwrap()
}

#[test]
fn only_bytes_that_are_not_utf8_are_escaped() {
    for (text, expected) in [
        (&b"rail0\0"[..], "rail0\0"),
        ("r\u{e4}il".as_bytes(), "r\u{e4}il"),
        (b"\xffa\xfe\xfd", "\u{f7ff}a\u{f7fe}\u{f7fd}"),
        (b"\xe2\x82", "\u{f7e2}\u{f782}"),
        // The character of the byte 255 itself.
        (b"\xef\x9f\xbf", "\u{f7ef}\u{f79f}\u{f7bf}"),
        (b"", ""),
    ] {
        assert_eq!(escaped(text), expected);
        assert_eq!(bytes(expected), text);
    }
}

#[test]
fn the_bytes_of_any_text_are_found_again() {
    mutate::cases("text", 3000, |case, random| {
        let parts: [&[u8]; 6] = [b"a", b"\xff", b"\xef", b"\x9f", b"\xbf", "\u{f7ff}".as_bytes()];
        let text: Vec<u8> = (0..random.below(8))
            .flat_map(|_| random.pick(&parts).to_vec())
            .collect();
        assert_eq!(bytes(&escaped(&text)), text, "{case}");
    });
}

/// The payload of `RTM_NEWLINK` with these texts.
fn payload(name: &[u8], altname: &[u8], alias: &[u8]) -> Vec<u8> {
    [
        vec![0; 16],
        attribute(3, name),
        attribute(
            0x8000 + 52,
            &[attribute(53, altname), attribute(53, b"b\0")].concat(),
        ),
        attribute(4, &[0xff; 4]),
        attribute(20, alias),
    ]
    .concat()
}

#[test]
fn a_link_with_texts_that_are_not_utf8_is_read() {
    let odd = payload(b"n\xff\0", b"alt\xfe\0", b"\xc0of a pod");
    let read = payload(
        "n\u{f7ff}\0".as_bytes(),
        "alt\u{f7fe}\0".as_bytes(),
        "\u{f7c0}of a pod".as_bytes(),
    );
    assert_eq!(escape_link(&odd), read);
    assert_eq!(escape_link(&read[..16]), &read[..16]);
    let mut header = NetlinkHeader::default();
    header.message_type = NEW_LINK;
    Message::deserialize(&header, &odd).unwrap_err();
    Message::deserialize(&header, &read).unwrap();
}

/// Each byte that is not UTF-8 becomes three, so the escaped list does not fit into one attribute.
#[test]
fn a_link_with_hundreds_of_altnames_that_are_not_utf8_is_read() {
    let name = |at: usize| [&[0xff; 120][..], format!("{at:03}\0").as_bytes()].concat();
    let list = (0..400)
        .flat_map(|at| attribute(53, &name(at)))
        .collect::<Vec<u8>>();
    let link = [
        vec![0; 16],
        attribute(3, b"net1\0"),
        attribute(0x8000 + 52, &list),
        attribute(20, b"mine"),
    ]
    .concat();
    let mut header = NetlinkHeader::default();
    header.message_type = NEW_LINK;
    let Ok(Message::NewLink(read)) = Message::deserialize(&header, &escape_link(&link)) else {
        panic!("the link is not decoded");
    };
    assert_eq!(
        read.attributes.last(),
        Some(&LinkAttribute::IfAlias("mine".to_owned()))
    );
    let lists = read.attributes.iter().filter_map(|attribute| match attribute {
        LinkAttribute::PropList(list) => Some(list),
        _ => None,
    });
    let names = lists.flatten().filter_map(|property| match property {
        Prop::AltIfName(name) => Some([bytes(name), vec![0]].concat()),
        _ => None,
    });
    assert_eq!(names.collect::<Vec<_>>(), (0..400).map(name).collect::<Vec<_>>());
}

#[test]
fn damaged_attributes_stay_as_they_are() {
    for end in [&[][..], &[1], &[0, 0, 3, 0], &[3, 0, 3, 0], &[200, 0, 3, 0, 0xff]] {
        let damaged = [&[0; 16], end].concat();
        assert_eq!(escape_link(&damaged), damaged);
    }
    assert_eq!(escape_link(&[0xff; 5]), &[0xff; 5][..]);
}
