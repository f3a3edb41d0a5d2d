// SPDX-License-Identifier: Apache-2.0
//! A blocking socket that holds one conversation at a time.

use super::answer::{Answers, Progress};
use super::error::Error;
use crate::netns::Netns;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable,
};
use netlink_sys::SocketAddr;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, setsockopt, sockopt::ReceiveTimeout};
use nix::sys::time::{TimeVal, TimeValLike};
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::thread::sleep;
use std::time::Duration;

/// How often a list is read before the reader gives up. The pauses between them add up to about two seconds, so that a list
/// changes during each reading only on a node whose links never come to rest.
pub(super) const DUMP_ATTEMPTS: usize = 12;

/// The first pause before a list is read again; each later one is twice as long, up to [`LONGEST_PAUSE`]. Links that pods
/// make change in bursts, and a reading in the same burst is interrupted as well.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// The kernel packs a dump into messages of at most this size when the reader offers it (`netlink_dump` of
/// `net/netlink/af_netlink.c`); a single object is far smaller, as virtual functions are never asked for.
const BUFFER_BYTES: usize = 32 * 1024;

/// Requests are served inside `send`, so their answer is there when `recv` is called. Only an answer dropped for
/// want of memory takes longer; that must be an error, not a hang.
const ANSWER_SECONDS: i64 = 10;

/// What a [`Family`] speaks; out of reach for other modules, so that the codec stays in here.
pub trait Wire {
    /// The protocol number given to `socket(2)`.
    const PROTOCOL: isize;
    /// Whether the family has dump filters that old kernels ignored (`NETLINK_GET_STRICT_CHK`).
    const STRICT: bool;
    /// What is sent and received.
    type Message: NetlinkSerializable + NetlinkDeserializable + std::fmt::Debug;
}

/// A netlink family: [`Route`](super::Route) or [`Rdma`](super::Rdma).
pub trait Family: Wire {}

/// See the [module](super).
pub struct Socket<F> {
    raw: netlink_sys::Socket,
    port: u32,
    sequence: u32,
    buffer: Vec<u8>,
    family: PhantomData<F>,
}

impl<F: Family> Socket<F> {
    /// Opens a socket in the namespace of the calling thread.
    ///
    /// # Errors
    /// [`Error::Socket`]: the kernel has no such family (`EPROTONOSUPPORT`), or no memory.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that opens a raw socket, to guard its reading"
    )]
    pub fn open() -> Result<Self, Error> {
        let mut socket = netlink_sys::Socket::new(F::PROTOCOL)?;
        socket.set_ext_ack(true)?;
        // Refusals then repeat only the request's header, so that the kernel's words are found behind it.
        socket.set_cap_ack(true)?;
        if F::STRICT {
            match socket.set_netlink_get_strict_chk(true) {
                // Before Linux 4.20 filters are ignored, so every list is filtered once more where it is read.
                Err(e) if e.raw_os_error() == Some(libc::ENOPROTOOPT) => {}
                answer => answer?,
            }
        }
        setsockopt(&socket, ReceiveTimeout, &TimeVal::seconds(ANSWER_SECONDS)).map_err(io::Error::from)?;
        let port = socket.bind_auto()?.port_number();
        // Nobody but the kernel (port 0) can put messages into a connected netlink socket.
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self {
            raw: socket,
            port,
            sequence: 0,
            buffer: vec![0; BUFFER_BYTES],
            family: PhantomData,
        })
    }

    /// Opens a socket that speaks with `netns` for life; the calling thread stays where it is.
    ///
    /// # Errors
    /// As [`Socket::open`], and [`Error::Netns`].
    pub fn open_in(netns: &Netns) -> Result<Self, Error>
    where
        F: Send,
    {
        netns.run(Self::open).map_err(Error::Netns)?
    }

    /// Sends a change and waits until the kernel has made it.
    pub(super) fn change(&mut self, message: F::Message, flags: u16) -> Result<(), Error> {
        self.send(message, flags | NLM_F_ACK)?;
        self.receive().map(|_| ())
    }

    /// Asks for one object; `None` stands for an answer without any.
    pub(super) fn get(&mut self, message: F::Message) -> Result<Option<F::Message>, Error> {
        self.send(message, NLM_F_ACK)?;
        let mut answers = self.receive()?;
        if let Some(reason) = answers.undecoded.pop() {
            return Err(Error::Decode(reason));
        }
        match answers.objects.len() {
            0 | 1 => Ok(answers.objects.pop()),
            n => Err(Error::Unexpected(format!("{n} objects instead of one"))),
        }
    }

    /// Asks for every object that matches `message`.
    ///
    /// An object that the codec cannot read is left out with a warning: a link of some other subsystem with a new
    /// kind of attribute must not keep a pod from starting.
    pub(super) fn dump(&mut self, message: impl Fn() -> F::Message) -> Result<Vec<F::Message>, Error> {
        let answers = whole(sleep, || {
            self.send(message(), NLM_F_DUMP)?;
            self.receive()
        })?;
        for reason in &answers.undecoded {
            tracing::warn!("netlink: an object is left out of a list: {reason}");
        }
        Ok(answers.objects)
    }

    fn send(&mut self, message: F::Message, flags: u16) -> Result<(), Error> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = request(message, flags, self.sequence);
        loop {
            match self.raw.send(&bytes, 0) {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Reads up to the acknowledgement or the end of the list.
    fn receive(&mut self) -> Result<Answers<F::Message>, Error> {
        let mut answers = Answers::to(self.sequence, self.port);
        loop {
            let size = match recv(self.raw.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_TRUNC) {
                Ok(size) => size,
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => {
                    let text = format!("no answer within {ANSWER_SECONDS} s");
                    return Err(io::Error::new(io::ErrorKind::TimedOut, text).into());
                }
                Err(e) => return Err(io::Error::from(e).into()),
            };
            let Some(bytes) = self.buffer.get(..size) else {
                return Err(Error::Decode(format!(
                    "{size} bytes do not fit into {BUFFER_BYTES}"
                )));
            };
            if answers.read(bytes)? == Progress::Complete {
                return Ok(answers);
            }
        }
    }
}

/// The first reading during which the list did not change. `pause` is called before each further one.
fn whole<M>(
    mut pause: impl FnMut(Duration),
    mut read: impl FnMut() -> Result<Answers<M>, Error>,
) -> Result<Answers<M>, Error> {
    let mut length = FIRST_PAUSE;
    for attempt in 0..DUMP_ATTEMPTS {
        if attempt > 0 {
            pause(length);
            length = (length * 2).min(LONGEST_PAUSE);
        }
        let answers = read()?;
        if !answers.interrupted {
            return Ok(answers);
        }
    }
    Err(Error::Interrupted)
}

/// The bytes of one request.
pub(super) fn request<M: NetlinkSerializable>(message: M, flags: u16, sequence: u32) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    header.sequence_number = sequence;
    let mut packet = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests;
