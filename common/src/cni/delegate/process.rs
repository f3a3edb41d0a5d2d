// SPDX-License-Identifier: Apache-2.0
//! Runs a child process: one thread writes its stdin, reads its stdout and bounds its time.
//!
//! The output ends when the child has closed its stdout or has exited. A process that the child leaves behind
//! may keep stdout open.

use crate::poll::poll_until;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How many times a program that is being replaced (`ETXTBSY`) is started, 10 ms apart. libcni does the same.
/// On a busy machine, the test of this takes longer to replace a program.
const BUSY_ATTEMPTS: u32 = if cfg!(test) { 1000 } else { 5 };

/// The longest pause between two looks whether the child has exited with its stdout still open.
const LOOK: Duration = Duration::from_millis(20);

/// The most that is read from a delegate's stdout, in bytes.
const STDOUT_MAX: usize = 4 << 20;

pub(super) struct Output {
    pub(super) success: bool,
    pub(super) status: ExitStatus,
    pub(super) stdout: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ProcessError {
    #[error("cannot be started: {0}")]
    Spawn(io::Error),
    #[error("communication failed: {0}")]
    Pipe(io::Error),
    #[error("cannot be recorded before it starts work: {0}")]
    Note(io::Error),
    #[error("did not end within {0:?} and was killed")]
    Timeout(Duration),
    #[error("wrote more than {} MiB to stdout and was killed", STDOUT_MAX >> 20)]
    TooMuch,
}

impl From<Errno> for ProcessError {
    fn from(errno: Errno) -> Self {
        Self::Pipe(errno.into())
    }
}

/// Runs `command` with `input` on stdin until it ends. The child inherits our stderr. `started` gets the
/// child's process id before the child gets any of `input`.
pub(super) fn run(
    mut command: Command,
    input: &[u8],
    timeout: Duration,
    started: impl FnOnce(u32) -> io::Result<()>,
) -> Result<Output, ProcessError> {
    // A process group of its own, so that a plugin that forked is killed together with its children.
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0);
    let mut child = spawn(&mut command)?;
    let deadline = Instant::now() + timeout;
    let talked = started(child.id())
        .map_err(ProcessError::Note)
        .and_then(|()| talk(&mut child, input, deadline, timeout));
    match talked.and_then(|stdout| Ok((wait(&mut child, deadline, timeout)?, stdout))) {
        Ok((status, stdout)) => Ok(Output {
            success: status.success(),
            status,
            stdout,
        }),
        Err(failure) => {
            // The group may be gone already. The child is reaped in any case.
            if let Ok(pid) = i32::try_from(child.id()) {
                let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
            }
            let _ = child.wait();
            Err(failure)
        }
    }
}

fn spawn(command: &mut Command) -> Result<Child, ProcessError> {
    let mut attempt = 1;
    loop {
        match command.spawn() {
            Err(e) if e.raw_os_error() == Some(Errno::ETXTBSY as i32) && attempt < BUSY_ATTEMPTS => {
                attempt += 1;
                sleep(Duration::from_millis(10));
            }
            other => return other.map_err(ProcessError::Spawn),
        }
    }
}

/// Writes `input` and reads stdout, until its end or until the child has exited.
fn talk(
    child: &mut Child,
    input: &[u8],
    deadline: Instant,
    timeout: Duration,
) -> Result<Vec<u8>, ProcessError> {
    let mut stdin = child.stdin.take();
    let Some(mut stdout) = child.stdout.take() else {
        return Ok(Vec::new());
    };
    fcntl(&stdout, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    if let Some(stdin) = &stdin {
        fcntl(stdin, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    }
    let (mut rest, mut answer) = (input, Vec::new());
    loop {
        if rest.is_empty() {
            stdin = None;
        }
        let (writable, readable) = ready(stdin.as_ref(), &stdout, deadline, timeout)?;
        if let (true, Some(pipe)) = (writable, &mut stdin) {
            match pipe.write(rest) {
                Ok(size) => rest = &rest[size..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock || e.kind() == io::ErrorKind::Interrupted => {
                }
                // The child closed stdin before reading all of it. Its answer on stdout decides.
                Err(_) => rest = &[],
            }
        }
        // The pipe has all that an exited child wrote, so this look comes before the read.
        let exited = has_exited(child)?;
        if readable && read_some(&mut stdout, &mut answer)? == Some(0) {
            return Ok(answer);
        }
        if exited {
            while read_some(&mut stdout, &mut answer)?.is_some_and(|size| size > 0) {}
            return Ok(answer);
        }
    }
}

/// Whether the child has exited. It stays to be reaped, so that its process id is not reused.
fn has_exited(child: &Child) -> Result<bool, ProcessError> {
    let Ok(pid) = i32::try_from(child.id()) else {
        return Ok(false);
    };
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    match waitid(Id::Pid(Pid::from_raw(pid)), look) {
        Ok(status) => Ok(status != WaitStatus::StillAlive),
        Err(Errno::EINTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Waits until stdin accepts more input, or stdout has more output, at most for [`LOOK`].
fn ready(
    stdin: Option<&ChildStdin>,
    stdout: &ChildStdout,
    deadline: Instant,
    timeout: Duration,
) -> Result<(bool, bool), ProcessError> {
    let mut fds = vec![PollFd::new(stdout.as_fd(), PollFlags::POLLIN)];
    if let Some(stdin) = stdin {
        fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLOUT));
    }
    // A child that never stops writing does not extend its time.
    let now = Instant::now();
    if now >= deadline {
        return Err(ProcessError::Timeout(timeout));
    }
    poll_until(&mut fds, deadline.min(now + LOOK))?;
    let any = |fd: &PollFd| fd.any().unwrap_or(false);
    Ok((fds.get(1).is_some_and(any), any(&fds[0])))
}

/// Reads once and returns the size: `Some(0)` at the end of the output, `None` if there is none now.
fn read_some(stdout: &mut ChildStdout, answer: &mut Vec<u8>) -> Result<Option<usize>, ProcessError> {
    let mut buffer = [0; 16 * 1024];
    let size = match stdout.read(&mut buffer) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(Some(1)),
        other => other.map_err(ProcessError::Pipe)?,
    };
    answer.extend_from_slice(&buffer[..size]);
    if answer.len() > STDOUT_MAX {
        Err(ProcessError::TooMuch)
    } else {
        Ok(Some(size))
    }
}

/// Waits for a child that has exited, or that has closed its stdout and so ends within moments.
fn wait(child: &mut Child, deadline: Instant, timeout: Duration) -> Result<ExitStatus, ProcessError> {
    let mut pause = Duration::from_micros(20);
    loop {
        if let Some(status) = child.try_wait().map_err(ProcessError::Pipe)? {
            return Ok(status);
        }
        if Instant::now() >= deadline {
            return Err(ProcessError::Timeout(timeout));
        }
        sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}
