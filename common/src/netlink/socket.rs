// SPDX-License-Identifier: Apache-2.0
//! A blocking socket with one outstanding request.

use super::answer::{Answers, Progress};
use super::error::{DUMP_ATTEMPTS, Error};
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

/// The first pause before a list is read again. Each later pause is twice as long, up to [`LONGEST_PAUSE`].
/// Pods change links in bursts, and a second read in the same burst is interrupted as well.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// The kernel packs a dump into messages of at most this size when the reader offers it (`netlink_dump` of
/// `net/netlink/af_netlink.c`). Only a single object can be larger: the altnames of a link may have 64 KiB
/// (`rtnl_alt_ifname`). The buffer grows then.
const BUFFER_BYTES: usize = 32 * 1024;

/// The kernel serves a request inside `send`, so the answer is ready when `recv` is called. Only an answer
/// that was dropped for lack of memory never arrives; it must cause an error, not a hang.
const ANSWER_SECONDS: i64 = 10;

/// The protocol of a [`Family`]. Private to this module, so that the codec stays inside.
pub trait Wire {
    /// The protocol number given to `socket(2)`.
    const PROTOCOL: isize;
    /// Whether the family has dump filters that old kernels ignored (`NETLINK_GET_STRICT_CHK`).
    const STRICT: bool;
    /// The message type, sent and received.
    type Message: NetlinkSerializable + NetlinkDeserializable + Clone + std::fmt::Debug;
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
    /// [`Error::Socket`]: the kernel lacks the family (`EPROTONOSUPPORT`), or memory.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that opens a raw socket, to guard its reading"
    )]
    pub fn open() -> Result<Self, Error> {
        let mut socket = netlink_sys::Socket::new(F::PROTOCOL)?;
        socket.set_ext_ack(true)?;
        // An error then repeats only the request's header, and the kernel's text follows directly.
        socket.set_cap_ack(true)?;
        if F::STRICT {
            match socket.set_netlink_get_strict_chk(true) {
                // Before Linux 4.20 filters are ignored. So each reader of a list filters once more.
                Err(e) if e.raw_os_error() == Some(libc::ENOPROTOOPT) => {}
                answer => answer?,
            }
        }
        setsockopt(&socket, ReceiveTimeout, &TimeVal::seconds(ANSWER_SECONDS)).map_err(io::Error::from)?;
        let port = socket.bind_auto()?.port_number();
        // Only the kernel (port 0) can send messages to a connected netlink socket.
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self {
            raw: socket,
            port,
            sequence: 0,
            buffer: vec![0; BUFFER_BYTES],
            family: PhantomData,
        })
    }

    /// Opens a socket that stays in `netns`. The calling thread stays in its own namespace.
    ///
    /// # Errors
    /// As [`Socket::open`], and [`Error::Netns`].
    pub fn open_in(netns: &Netns) -> Result<Self, Error>
    where
        F: Send,
    {
        netns.run(Self::open).map_err(Error::Netns)?
    }

    /// Sends a change and waits until the kernel has applied it.
    pub(super) fn change(&mut self, message: F::Message, flags: u16) -> Result<(), Error> {
        self.send(message, flags | NLM_F_ACK)?;
        self.receive().map(|_| ())
    }

    /// Requests one object. Returns `None` if the answer has none.
    pub(super) fn get(&mut self, message: &F::Message) -> Result<Option<F::Message>, Error> {
        let mut answers = whole(sleep, || {
            self.send(message.clone(), NLM_F_ACK)?;
            self.receive()
        })?;
        if let Some(reason) = answers.undecoded.pop() {
            return Err(Error::Decode(reason));
        }
        match answers.objects.len() {
            0 | 1 => Ok(answers.objects.pop()),
            n => Err(Error::Unexpected(format!("{n} objects instead of one"))),
        }
    }

    /// Requests every object that matches `message`.
    ///
    /// An object that the codec cannot read is left out with a warning: a link with a new kind of attribute
    /// must not keep a pod from starting.
    pub(super) fn dump(&mut self, message: impl Fn() -> F::Message) -> Result<Vec<F::Message>, Error> {
        let answers = whole(sleep, || {
            self.send(message(), NLM_F_DUMP)?;
            self.receive()
        })?;
        for reason in &answers.undecoded {
            tracing::warn!(error = %reason, "left an object out of a netlink list: cannot decode it");
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
                // The end of the message is lost, so the request is repeated.
                self.buffer.resize(size, 0);
                answers.interrupted = true;
                continue;
            };
            if answers.read(bytes)? == Progress::Complete {
                return Ok(answers);
            }
        }
    }
}

/// Returns the first read that is complete, and during which the list did not change. Calls `pause` before each further read.
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
