// SPDX-License-Identifier: Apache-2.0
use super::frame::Frame;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use std::io;
use std::mem::{offset_of, size_of};
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
        let family = libc::AF_PACKET as u16;
        Ok(Self {
            family,
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
    // The kernel wants the length to cover the link's address and no more than it must (`packet_snd`).
    let length =
        (offset_of!(LinkAddress, address) + usize::from(address.halen)).max(size_of::<libc::sockaddr_ll>());
    debug_assert!(length <= size_of::<LinkAddress>());
    loop {
        // SAFETY: both pointers come from references that live through the call, `bytes` is as long as said, and
        // `length` is at most the size of `LinkAddress`, as `halen` is at most ADDRESS_BYTES (see `to`).
        let sent = unsafe {
            libc::sendto(
                socket.as_raw_fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                0,
                std::ptr::from_ref(address).cast(),
                length as libc::socklen_t,
            )
        };
        match Errno::result(sent) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}
