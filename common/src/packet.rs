// SPDX-License-Identifier: Apache-2.0
//! A packet socket on one link (`packet(7)`), for frames that cannot enter or leave a pod otherwise:
//! announcements and probes.
//!
//! Invariant: a socket receives only frames of its own link, of one protocol, and of no VLAN on the link. It is bound before
//! it can receive anything.

use crate::poll::poll_until;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, recvmsg, socket};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Instant;

/// A packet without its link-layer header, which the kernel adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// `ETH_P_*`: the protocol of `bytes`.
    pub protocol: u16,
    /// Hardware address of the destination; as long as the link's own address.
    pub destination: Vec<u8>,
    /// The packet.
    pub bytes: Vec<u8>,
}

/// `struct sockaddr_ll` of `packet(7)` with room for an InfiniBand address. The C type ends after 8 bytes,
/// but the kernel reads `halen` bytes if the length of the whole structure covers them.
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

/// `AF_PACKET` with the width of the field.
const AF_PACKET: u16 = 17;
const _: () = assert!(AF_PACKET as libc::c_int == libc::AF_PACKET);

pub(crate) const ETH_P_ARP: u16 = 0x0806;
pub(crate) const ETH_P_IPV6: u16 = 0x86dd;

/// The type of a frame for another host (`if_packet.h`).
const PACKET_OTHERHOST: u8 = 3;
const _: () = assert!(PACKET_OTHERHOST as libc::c_uchar == libc::PACKET_OTHERHOST);

/// Longer than any ARP packet or neighbour advertisement.
const FRAME_BYTES: usize = 2048;

/// A packet socket on one link.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    index: u32,
}

impl PacketSocket {
    /// Opens a socket that sends over the link `index` of the calling thread's namespace and receives nothing.
    /// Call it inside [`Netns::run`](crate::netns::Netns::run).
    ///
    /// # Errors
    /// `EPERM`: `CAP_NET_RAW` is missing.
    pub fn sender(index: u32) -> io::Result<Self> {
        // Without a protocol the kernel delivers nothing to the socket.
        let fd = socket(
            AddressFamily::Packet,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC,
            None,
        )?;
        Ok(Self { fd, index })
    }

    /// Opens a socket that also receives the ARP packets of the link.
    ///
    /// # Errors
    /// As [`Self::sender`]. `ENODEV`: the link does not exist.
    pub fn arp_receiver(index: u32) -> io::Result<Self> {
        Self::receiver_of(index, ETH_P_ARP)
    }

    /// Opens a socket that also receives the IPv6 packets of the link.
    ///
    /// # Errors
    /// As [`Self::arp_receiver`].
    pub fn ipv6_receiver(index: u32) -> io::Result<Self> {
        Self::receiver_of(index, ETH_P_IPV6)
    }

    fn receiver_of(index: u32, protocol: u16) -> io::Result<Self> {
        let opened = Self::sender(index)?;
        opened.bind(&LinkAddress::to(index, protocol, &[])?)?;
        Ok(opened)
    }

    /// Sends one frame.
    ///
    /// # Errors
    /// `ENETDOWN`: the link is down. `ENXIO`: it does not exist. `InvalidInput`: the destination is longer than 20 bytes.
    pub fn send(&self, frame: &Frame) -> io::Result<()> {
        let address = LinkAddress::to(self.index, frame.protocol, &frame.destination)?;
        loop {
            match self.send_once(&address, &frame.bytes) {
                Err(Errno::EINTR) => {}
                other => return Ok(other?),
            }
        }
    }

    /// Returns the next frame of one of `sockets`, or `None` at `deadline`. The kernel delivers no frame that this host sends,
    /// unless the network returns it.
    ///
    /// # Errors
    /// The kernel's own: `ENETDOWN` if a link went down.
    pub fn receive(sockets: &[&Self], deadline: Instant) -> io::Result<Option<Vec<u8>>> {
        let mut polled: Vec<PollFd<'_>> = sockets
            .iter()
            .map(|socket| PollFd::new(socket.fd.as_fd(), PollFlags::POLLIN))
            .collect();
        while poll_until(&mut polled, deadline)? {
            for socket in sockets {
                match socket.receive_waiting() {
                    Ok(Some(frame)) => return Ok(Some(frame)),
                    Ok(None) | Err(Errno::EAGAIN | Errno::EINTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(None)
    }

    /// Returns a frame that has arrived, or `None` if it belongs to another host.
    ///
    /// On a trunk, a link receives the frames of every VLAN that it does not have, and the kernel gives them that type
    /// (`__netif_receive_skb_core` of `net/core/dev.c`). Its own ARP ignores them too.
    fn receive_waiting(&self) -> Result<Option<Vec<u8>>, Errno> {
        let mut buffer = vec![0; FRAME_BYTES];
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let message = recvmsg::<LinkAddr>(self.fd.as_raw_fd(), &mut parts, None, MsgFlags::MSG_DONTWAIT)?;
        // nix returns no address of InfiniBand, which has no VLANs.
        let of_another_host = message
            .address
            .is_some_and(|sender| sender.pkttype() == PACKET_OTHERHOST);
        let length = message.bytes;
        buffer.truncate(length);
        Ok((!of_another_host).then_some(buffer))
    }

    #[expect(
        unsafe_code,
        reason = "nix knows only link addresses of 8 bytes, InfiniBand has 20"
    )]
    fn send_once(&self, address: &LinkAddress, bytes: &[u8]) -> Result<(), Errno> {
        // SAFETY: both pointers come from references that live through the call, and the kernel reads as many
        // bytes as the lengths beside them give, which are the lengths of the objects.
        let sent = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                0,
                std::ptr::from_ref(address).cast(),
                LINK_ADDRESS_BYTES,
            )
        };
        Errno::result(sent).map(|_| ())
    }

    #[expect(unsafe_code, reason = "nix cannot make a link address from an index")]
    fn bind(&self, address: &LinkAddress) -> io::Result<()> {
        // SAFETY: the pointer comes from a reference that lives through the call, and the length is that of its type.
        let bound = unsafe {
            libc::bind(
                self.fd.as_raw_fd(),
                std::ptr::from_ref(address).cast(),
                LINK_ADDRESS_BYTES,
            )
        };
        Errno::result(bound)?;
        Ok(())
    }
}

impl LinkAddress {
    fn to(index: u32, protocol: u16, destination: &[u8]) -> io::Result<Self> {
        let length = destination.len();
        let mut address = [0; ADDRESS_BYTES];
        let (Some(room), Ok(index), Ok(halen)) = (
            address.get_mut(..length),
            i32::try_from(index),
            u8::try_from(length),
        ) else {
            let text = format!("no hardware address of {length} bytes fits link {index}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        room.copy_from_slice(destination);
        Ok(Self {
            family: AF_PACKET,
            protocol: protocol.to_be(),
            index,
            hatype: 0,
            pkttype: 0,
            halen,
            address,
        })
    }
}

#[cfg(test)]
mod tests;
