// SPDX-License-Identifier: Apache-2.0
use crate::packet::{Frame, PacketSocket};
use std::io;

/// Sends `frames` over the link `index` of the calling thread's namespace; call it inside
/// [`Netns::run`](crate::netns::Netns::run).
///
/// # Errors
/// `EPERM`: `CAP_NET_RAW` is missing. `ENETDOWN`: the link is down. `ENXIO`: there is no such link.
/// `InvalidInput`: a destination is longer than 20 bytes. Frames before the failed one have been sent.
pub fn send(index: u32, frames: &[Frame]) -> io::Result<()> {
    if frames.is_empty() {
        return Ok(());
    }
    let socket = PacketSocket::sender(index)?;
    frames.iter().try_for_each(|frame| socket.send(frame))
}

#[cfg(test)]
pub(crate) mod tests;
