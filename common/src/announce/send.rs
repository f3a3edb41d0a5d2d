// SPDX-License-Identifier: Apache-2.0
use super::frame::Frame;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// `struct sockaddr_ll` of `packet(7)` with room for InfiniBand's address: the C type ends after 8 bytes, but the
/// kernel reads on as far as `halen` says and the length given to `sendto(2)` covers.
#[repr(C)]
struct LinkAddress {
    family: u16,
    /// Network byte order.
    protocol: u16,
    index: i32,
    hatype: u16,
    pkttype: u8,
    halen: u8,
    address: [u8; ADDRESS_BYTES],
}

const ADDRESS_BYTES: usize = 20;

const LINK_ADDRESS_BYTES: libc::socklen_t = 32;
const _: () = assert!(size_of::<LinkAddress>() == LINK_ADDRESS_BYTES as usize);

/// `AF_PACKET` in the width it has in an address.
const AF_PACKET: u16 = 17;
const _: () = assert!(AF_PACKET as libc::c_int == libc::AF_PACKET);

/// Sends `frames` over the link `index` of the calling thread's namespace; call it inside
/// [`Netns::run`](crate::netns::Netns::run).
///
/// # Errors
/// `EPERM`: `CAP_NET_RAW` is missing. `ENETDOWN`: the link is down. `ENXIO`: there is no such link.
/// `InvalidInput`: a destination longer than 20 bytes. The frames before the failed one are out.
pub fn send(index: u32, frames: &[Frame]) -> io::Result<()> {
    if frames.is_empty() {
        return Ok(());
    }
    // Protocol none: this socket never receives anything.
    let socket = socket(
        AddressFamily::Packet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    frames.iter().try_for_each(|frame| {
        let address = LinkAddress::to(index, frame)?;
        send_one(socket.as_fd(), &address, &frame.bytes)
    })
}

impl LinkAddress {
    fn to(index: u32, frame: &Frame) -> io::Result<Self> {
        let length = frame.destination.len();
        let mut address = [0; ADDRESS_BYTES];
        let (Some(room), Ok(index), Ok(halen)) = (
            address.get_mut(..length),
            i32::try_from(index),
            u8::try_from(length),
        ) else {
            let text = format!("no hardware address of {length} bytes fits link {index}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        room.copy_from_slice(&frame.destination);
        Ok(Self {
            family: AF_PACKET,
            protocol: frame.protocol.to_be(),
            index,
            hatype: 0,
            pkttype: 0,
            halen,
            address,
        })
    }
}

#[expect(
    unsafe_code,
    reason = "nix knows only link addresses of 8 bytes, InfiniBand has 20"
)]
fn send_one(socket: BorrowedFd<'_>, address: &LinkAddress, bytes: &[u8]) -> io::Result<()> {
    loop {
        // SAFETY: both pointers come from references that live through the call and are read as far as the lengths
        // beside them say, which are the lengths of what they point to.
        let sent = unsafe {
            libc::sendto(
                socket.as_raw_fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                0,
                std::ptr::from_ref(address).cast(),
                LINK_ADDRESS_BYTES,
            )
        };
        match Errno::result(sent) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests;
