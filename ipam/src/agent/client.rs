// SPDX-License-Identifier: Apache-2.0
//! One request to the agent, with one time limit for connecting, sending and waiting for the answer.
//!
//! The socket never blocks: poll(2) waits for the rest of the limit. So an agent that hangs, dies, or answers
//! one byte a second delays an ADD by no more than the limit.

use super::message::{LIMIT, MESSAGE_MAX, Reply, Request};
use common::cni::{Code, Error};
use common::poll::poll_until;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The agent's socket.
pub const SOCKET: &str = "/run/rdmanet/agent/agent.sock";

/// The environment variable that replaces [`SOCKET`].
pub const SOCKET_VARIABLE: &str = "RDMANET_AGENT_SOCKET";

/// The pause before connecting again to a socket whose accept queue is full.
const FULL_QUEUE_PAUSE: Duration = Duration::from_millis(5);

/// A client of the agent.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its socket.
    pub socket: PathBuf,
    /// The time limit of one request.
    pub limit: Duration,
}

impl Default for Client {
    fn default() -> Self {
        Self {
            socket: PathBuf::from(SOCKET),
            limit: LIMIT,
        }
    }
}

impl Client {
    /// Sends a request and waits for the answer until `deadline`. The answer may be a refusal.
    ///
    /// # Errors
    /// [`Code::TRY_AGAIN`] if there is no answer, with the reason.
    pub fn ask(&self, request: &Request, deadline: Instant) -> Result<Reply, Error> {
        let left = deadline.saturating_duration_since(Instant::now());
        let line = line(&Request {
            within_ms: u64::try_from(left.as_millis()).ok(),
            ..request.clone()
        })?;
        let answer = self
            .connect(deadline)
            .and_then(|mut stream| {
                send(&mut stream, &line, deadline)?;
                receive(&mut stream, deadline)
            })
            .map_err(|e| self.failed(&e))?;
        serde_json::from_slice(&answer).map_err(|e| {
            let start: String = String::from_utf8_lossy(&answer).chars().take(80).collect();
            self.unanswered(&format!("its reply {start:?} cannot be decoded: {e}"))
        })
    }

    /// Sends a request and ignores the answer. If the agent misses the request, it finds the release by
    /// itself.
    pub fn notify(&self, request: &Request) {
        let now = Instant::now();
        let sent = line(request).map(|line| {
            self.connect(now)
                .and_then(|mut stream| send(&mut stream, &line, now))
        });
        if let Ok(Err(e)) = sent {
            tracing::debug!(socket = %self.socket.display(), error = %e, "cannot send the release to the agent; the agent finds it later");
        }
    }

    fn connect(&self, deadline: Instant) -> io::Result<UnixStream> {
        let address = UnixAddr::new(&self.socket)?;
        loop {
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            let stream = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
            match connect(stream.as_raw_fd(), &address) {
                Ok(()) => return Ok(UnixStream::from(stream)),
                // A unix socket has no connection in progress: either the queue has room, or the caller
                // retries (unix(7)).
                Err(Errno::EAGAIN) if Instant::now() < deadline => std::thread::sleep(FULL_QUEUE_PAUSE),
                Err(Errno::EAGAIN) => return Err(ErrorKind::TimedOut.into()),
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn failed(&self, error: &io::Error) -> Error {
        self.unanswered(&match error.kind() {
            ErrorKind::NotFound => "it is not there".to_owned(),
            ErrorKind::ConnectionRefused => "no process listens there".to_owned(),
            ErrorKind::PermissionDenied => "this process may not connect to it".to_owned(),
            ErrorKind::TimedOut => format!("no answer within {} ms", self.limit.as_millis()),
            ErrorKind::UnexpectedEof => "it was closed without an answer".to_owned(),
            _ => error.to_string(),
        })
    }

    fn unanswered(&self, what: &str) -> Error {
        Error::new(
            Code::TRY_AGAIN,
            format!(
                "this node's agent is needed, but its socket {}: {what}; see whether the agent's pod runs on this node, and its log",
                self.socket.display()
            ),
        )
    }
}

fn line(request: &Request) -> Result<Vec<u8>, Error> {
    let mut line = serde_json::to_vec(request).map_err(|e| {
        Error::caused(
            Code::INTERNAL,
            "cannot encode the request to the agent as JSON",
            &e,
        )
    })?;
    line.push(b'\n');
    Ok(line)
}

fn send(stream: &mut UnixStream, mut line: &[u8], deadline: Instant) -> io::Result<()> {
    while !line.is_empty() {
        match stream.write(line) {
            Ok(sent) => line = &line[sent..],
            Err(e) if e.kind() == ErrorKind::WouldBlock => wait(stream, PollFlags::POLLOUT, deadline)?,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Reads up to the first newline.
fn receive(stream: &mut UnixStream, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => wait(stream, PollFlags::POLLIN, deadline)?,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        if let Some(end) = answer.iter().position(|byte| *byte == b'\n') {
            answer.truncate(end);
            return Ok(answer);
        }
        if answer.len() > MESSAGE_MAX {
            return Err(io::Error::other(format!(
                "its answer is longer than {} KiB",
                MESSAGE_MAX >> 10
            )));
        }
    }
}

fn wait(stream: &UnixStream, events: PollFlags, deadline: Instant) -> io::Result<()> {
    if poll_until(&mut [PollFd::new(stream.as_fd(), events)], deadline)? {
        return Ok(());
    }
    Err(ErrorKind::TimedOut.into())
}
