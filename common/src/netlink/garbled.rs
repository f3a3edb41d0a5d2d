// SPDX-License-Identifier: Apache-2.0
//! Answers of the kernel for tests, valid or changed at random.

use crate::mutate::{self, Random};

pub(super) const SEQUENCE: u32 = 7;
pub(super) const PORT: u32 = 4242;

/// Encodes a value with its length and kind, as in an attribute.
pub(super) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = u16::try_from(4 + value.len()).unwrap().to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

pub(super) fn message(kind: u16, header: &[u8], attributes: &[Vec<u8>]) -> Vec<u8> {
    let payload = [header, &attributes.concat()].concat();
    let mut bytes = u32::try_from(16 + payload.len()).unwrap().to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(2_u16.to_ne_bytes());
    bytes.extend(SEQUENCE.to_ne_bytes());
    bytes.extend(PORT.to_ne_bytes());
    bytes.extend(payload);
    bytes
}

/// One datagram of some of `answers`, most of them changed.
pub(super) fn datagram(random: &mut Random, answers: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..=random.below(3) {
        let mut one = random.pick(answers).clone();
        if !random.one_in(4) {
            // Behind the header: its numbers decide whether the reader looks at the message.
            let mut behind = one.split_off(if random.one_in(4) { 0 } else { 16 });
            mutate::bytes(random, &mut behind);
            one.extend(behind);
        }
        if random.one_in(4) && one.len() >= 16 {
            let length = u32::try_from(one.len() + random.below(9))
                .unwrap()
                .saturating_sub(4);
            one[..4].copy_from_slice(&length.to_ne_bytes());
        }
        bytes.extend(one);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}
