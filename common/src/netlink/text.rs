// SPDX-License-Identifier: Apache-2.0
//! Texts that are not UTF-8.
//!
//! A process that may change a link may set any bytes as its name, an altname or its alias. A pod must not hide its link
//! from DEL that way. So a byte that is not UTF-8 becomes one of 256 private characters.
//!
//! Invariant: [`bytes`] of an escaped text are the bytes that the kernel sent.

use netlink_packet_core::DefaultNla;
use std::borrow::Cow;

/// `RTM_NEWLINK` of `include/uapi/linux/rtnetlink.h`.
pub(super) const NEW_LINK: u16 = 16;

/// The size of `struct ifinfomsg`, behind which the attributes begin.
const IFINFOMSG_BYTES: usize = 16;

/// The attributes with texts (`include/uapi/linux/if_link.h`).
pub(super) const IFLA_IFNAME: u16 = 3;
pub(super) const IFLA_IFALIAS: u16 = 20;
const IFLA_PROP_LIST: u16 = 52;
pub(super) const IFLA_ALT_IFNAME: u16 = 53;

/// The kind of an attribute without its flags (`NLA_TYPE_MASK`).
const KIND: u16 = 0x3fff;

/// The longest value of an attribute, whose length is 16 bits and counts its header.
const MOST: usize = u16::MAX as usize - 4;

/// The character for the byte 0.
const FIRST: u32 = 0xf700;

/// The character for the byte 255.
const LAST: u32 = FIRST + 0xff;

/// The payload of `RTM_NEWLINK` with escaped texts.
pub(super) fn escape_link(payload: &[u8]) -> Cow<'_, [u8]> {
    let (header, attributes) = payload.split_at(IFINFOMSG_BYTES.min(payload.len()));
    match escape_attributes(attributes) {
        Cow::Borrowed(_) => payload.into(),
        Cow::Owned(escaped) => [header, &escaped].concat().into(),
    }
}

/// A text with a character for each byte that is not UTF-8, and for each byte of such a character.
pub(super) fn escape(text: &[u8]) -> Cow<'_, [u8]> {
    if text.is_ascii() {
        return text.into();
    }
    let mut escaped = String::new();
    let private = |byte: u8| char::from_u32(FIRST + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER);
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            if (FIRST..=LAST).contains(&u32::from(character)) {
                escaped.extend(character.encode_utf8(&mut [0; 4]).bytes().map(private));
            } else {
                escaped.push(character);
            }
        }
        escaped.extend(chunk.invalid().iter().copied().map(private));
    }
    escaped.into_bytes().into()
}

/// The bytes of an escaped text.
pub(super) fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        match u32::from(character).checked_sub(FIRST).map(u8::try_from) {
            Some(Ok(byte)) => bytes.push(byte),
            _ => bytes.extend(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

/// An attribute with the bytes of an escaped text, which end with a zero.
pub(super) fn attribute(kind: u16, text: &str) -> DefaultNla {
    let mut value = bytes(text);
    value.push(0);
    DefaultNla::new(kind, value)
}

/// The attributes with escaped texts. Copies nothing until a text changes.
fn escape_attributes(whole: &[u8]) -> Cow<'_, [u8]> {
    let (mut rest, mut escaped) = (whole, Cow::Borrowed(&whole[..0]));
    while let Some([a, b, c, d]) = rest.first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([*a, *b]));
        let Some(value) = rest.get(4..length) else {
            break;
        };
        let text = match u16::from_ne_bytes([*c, *d]) & KIND {
            IFLA_IFNAME | IFLA_IFALIAS | IFLA_ALT_IFNAME => escape(value),
            IFLA_PROP_LIST => escape_attributes(value),
            _ => value.into(),
        };
        let behind = &rest[length.next_multiple_of(4).min(rest.len())..];
        match &mut escaped {
            Cow::Borrowed(_) if *text == *value => escaped = (&whole[..whole.len() - behind.len()]).into(),
            _ => {
                let parts = parts(&text);
                if parts.iter().any(|part| part.len() > MOST) {
                    break;
                }
                let escaped = escaped.to_mut();
                for part in parts {
                    escaped.extend(u16::try_from(4 + part.len()).unwrap_or(u16::MAX).to_ne_bytes());
                    escaped.extend([*c, *d]);
                    escaped.extend(part);
                    escaped.resize(escaped.len().next_multiple_of(4), 0);
                }
            }
        }
        rest = behind;
    }
    match escaped {
        Cow::Borrowed(_) => whole.into(),
        Cow::Owned(escaped) => [&escaped, rest].concat().into(),
    }
}

/// The value as parts that fit into an attribute each. The kernel's list of altnames may be as long as an attribute can be, and
/// the escaped list is longer. A value that fits is one part; a longer one is a list of attributes.
fn parts(value: &[u8]) -> Vec<&[u8]> {
    let (mut parts, mut begin, mut end) = (Vec::new(), 0, 0);
    while value.len() - begin > MOST {
        let Some([a, b, ..]) = value[end..].first_chunk::<4>() else {
            break;
        };
        let length = usize::from(u16::from_ne_bytes([*a, *b]))
            .max(4)
            .next_multiple_of(4);
        if end > begin && end + length - begin > MOST {
            parts.push(&value[begin..end]);
            begin = end;
        }
        end = (end + length).min(value.len());
    }
    parts.push(&value[begin..]);
    parts
}

#[cfg(test)]
mod tests;
