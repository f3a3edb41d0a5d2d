// SPDX-License-Identifier: Apache-2.0
//! The kernel's answer to one request, assembled from its datagrams.

use super::error::Error;
use super::text::{NEW_LINK, escape_link};
use netlink_packet_core::{
    NLM_F_ACK_TLVS, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP, NLMSG_OVERRUN, NetlinkBuffer,
    NetlinkDeserializable, NetlinkHeader, NlasIterator, Parseable,
};
use nix::errno::Errno;

/// `NLMSGERR_ATTR_MSG` of `include/uapi/linux/netlink.h`.
const NLMSGERR_ATTR_MSG: u16 = 1;

/// The size of `struct nlmsghdr`, and the alignment of every message.
const HEADER_BYTES: usize = 16;
const ALIGNMENT: usize = 4;

/// Whether the answer has further datagrams.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Partial,
    Complete,
}

/// The part of an answer that has arrived.
#[derive(Debug)]
pub(super) struct Answers<M> {
    sequence: u32,
    port: u32,
    pub(super) objects: Vec<M>,
    /// The reasons why objects are missing in `objects`.
    pub(super) undecoded: Vec<String>,
    /// The list changed while the kernel sent it, or the end of a message is lost.
    pub(super) interrupted: bool,
}

impl<M: NetlinkDeserializable> Answers<M> {
    /// An empty answer to the request `sequence` of the socket `port`.
    pub(super) fn to(sequence: u32, port: u32) -> Self {
        Self {
            sequence,
            port,
            objects: Vec::new(),
            undecoded: Vec::new(),
            interrupted: false,
        }
    }

    /// Reads one datagram.
    pub(super) fn read(&mut self, datagram: &[u8]) -> Result<Progress, Error> {
        let mut rest = datagram;
        while !rest.is_empty() {
            let buffer = NetlinkBuffer::new_checked(rest).map_err(|e| Error::Decode(e.to_string()))?;
            let header = NetlinkHeader::parse(&buffer).map_err(|e| Error::Decode(e.to_string()))?;
            let step = (header.length as usize)
                .next_multiple_of(ALIGNMENT)
                .clamp(HEADER_BYTES, rest.len());
            // A message may also be the late answer to a timed-out request, or a notification of another
            // program's request.
            let ours = header.sequence_number == self.sequence && header.port_number == self.port;
            if ours && self.message(&header, buffer.payload())? == Progress::Complete {
                return Ok(Progress::Complete);
            }
            rest = &rest[step..];
        }
        Ok(Progress::Partial)
    }

    fn message(&mut self, header: &NetlinkHeader, payload: &[u8]) -> Result<Progress, Error> {
        self.interrupted |= header.flags & NLM_F_DUMP_INTR != 0;
        match header.message_type {
            NLMSG_NOOP => Ok(Progress::Partial),
            NLMSG_OVERRUN => Err(Error::Unexpected("data was lost (NLMSG_OVERRUN)".to_owned())),
            // The request's header stands between the error number and the kernel's text.
            NLMSG_ERROR => outcome(header, payload, 4 + HEADER_BYTES),
            NLMSG_DONE => outcome(header, payload, 4),
            _ => {
                let payload = match header.message_type {
                    NEW_LINK => escape_link(payload),
                    _ => payload.into(),
                };
                match M::deserialize(header, &payload) {
                    Ok(object) => self.objects.push(object),
                    Err(e) => self
                        .undecoded
                        .push(format!("message type {}: {e}", header.message_type)),
                }
                Ok(Progress::Partial)
            }
        }
    }
}

/// Success, or the kernel's error. The attributes begin at `words`.
fn outcome(header: &NetlinkHeader, payload: &[u8], words: usize) -> Result<Progress, Error> {
    let code = match payload.first_chunk::<4>() {
        Some(bytes) => i32::from_ne_bytes(*bytes),
        // NLMSG_DONE may come without a number.
        None => 0,
    };
    if code >= 0 {
        return Ok(Progress::Complete);
    }
    let words = (header.flags & NLM_F_ACK_TLVS != 0)
        .then(|| payload.get(words..))
        .flatten();
    Err(Error::Kernel {
        errno: Errno::from_raw(code.saturating_neg()),
        text: words.and_then(text),
    })
}

/// The kernel's error text among the attributes.
fn text(attributes: &[u8]) -> Option<String> {
    let message = NlasIterator::new(attributes)
        .flatten()
        .find(|nla| nla.kind() == NLMSGERR_ATTR_MSG)?;
    let words = String::from_utf8_lossy(message.value());
    let words = words.trim_end_matches('\0').trim();
    (!words.is_empty()).then(|| words.to_owned())
}

#[cfg(test)]
mod tests;
