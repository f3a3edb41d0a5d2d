// SPDX-License-Identifier: Apache-2.0
//! Runs one program from its start to its exit and measures its cost.
//!
//! The clock starts before the fork and stops when the kernel reports the exit. The input is in a pipe before that, and
//! the output is read afterwards, so this process does no work in between.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::alarm;

use crate::error::{Error, IoContext, Result};
use crate::signals::{self, Noted};

#[cfg(test)]
mod tests;

/// The time limit of a program.
const TIME_LIMIT_SECONDS: u32 = 60;
/// The capacity of a Linux pipe in bytes (pipe(7)).
const PIPE_CAPACITY: usize = 64 * 1024;

/// The cost of one process with all its descendants that were waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    pub(crate) wall: Duration,
    /// User and system time.
    pub(crate) cpu: Duration,
    /// `ru_maxrss` in KiB: of the process or its largest descendant. It includes the resident memory of this process at
    /// the fork, because the kernel counts the memory that the child shares until exec; the no-op shows that amount.
    pub(crate) peak_kib: u64,
    pub(crate) minor_faults: u64,
}

/// A program that has exited.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) cost: Cost,
}

/// A program that is running.
#[derive(Debug)]
pub(crate) struct Running {
    program: PathBuf,
    child: Child,
    stdout: PipeReader,
    stderr: PipeReader,
    begun: Instant,
}

/// Starts `program` with only `env` in its environment and `input` on its stdin.
pub(crate) fn start<K, V>(program: &Path, args: &[&str], env: &[(K, V)], input: &[u8]) -> Result<Running>
where
    K: AsRef<OsStr>,
    V: AsRef<OsStr>,
{
    if signals::noted() == Noted::Interrupt {
        return Err(Error::Interrupted);
    }
    let failed = || format!("cannot start {}", program.display());
    let (stdout, child_stdout) = io::pipe().context(failed)?;
    let (stderr, child_stderr) = io::pipe().context(failed)?;
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .envs(env.iter().map(|(key, value)| (key, value)));
    command
        .stdin(filled_pipe(input).context(failed)?)
        .stdout(child_stdout)
        .stderr(child_stderr);

    let begun = Instant::now();
    let child = command.spawn().context(failed)?;
    Ok(Running {
        program: program.to_path_buf(),
        child,
        stdout,
        stderr,
        begun,
    })
}

/// Runs `program` to its end.
pub(crate) fn run<K, V>(program: &Path, args: &[&str], env: &[(K, V)], input: &[u8]) -> Result<Finished>
where
    K: AsRef<OsStr>,
    V: AsRef<OsStr>,
{
    start(program, args, env, input)?.finish()
}

impl Running {
    /// Waits for the exit. Kills the program if it exceeds the time limit or if the run is interrupted.
    pub(crate) fn finish(mut self) -> Result<Finished> {
        alarm::set(TIME_LIMIT_SECONDS);
        let waited = self.wait();
        alarm::cancel();
        let (status, usage, ended) = waited?;
        Ok(Finished {
            status,
            stdout: whatever_arrived(self.stdout).context(|| "cannot read the plugin's stdout".into())?,
            stderr: whatever_arrived(self.stderr).context(|| "cannot read the plugin's stderr".into())?,
            cost: Cost {
                wall: ended - self.begun,
                cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
                peak_kib: unsigned(usage.ru_maxrss),
                minor_faults: unsigned(usage.ru_minflt),
            },
        })
    }

    fn wait(&mut self) -> Result<(ExitStatus, libc::rusage, Instant)> {
        loop {
            match signals::noted() {
                Noted::Nothing => {}
                Noted::Interrupt => return Err(self.end(Error::Interrupted)),
                Noted::TimeLimit => {
                    let program = self.program.clone();
                    return Err(self.end(Error::TimeLimit {
                        program,
                        seconds: TIME_LIMIT_SECONDS,
                    }));
                }
            }
            match wait4(&self.child) {
                Ok((status, usage)) => return Ok((status, usage, Instant::now())),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(Error::Io {
                        context: format!("cannot wait for {}", self.program.display()),
                        source,
                    });
                }
            }
        }
    }

    /// Kills and reaps the program. Returns `reason`, or the error of the kill.
    fn end(&mut self, reason: Error) -> Error {
        match self.child.kill().and_then(|()| self.child.wait()) {
            Ok(_) => reason,
            Err(source) => Error::Io {
                context: format!("cannot end {}", self.program.display()),
                source,
            },
        }
    }
}

/// A pipe that contains `input` and the end of the file.
fn filled_pipe(input: &[u8]) -> io::Result<PipeReader> {
    if input.len() > PIPE_CAPACITY {
        return Err(io::Error::other(format!(
            "{} bytes of input do not fit into a pipe",
            input.len()
        )));
    }
    let (reader, mut writer) = io::pipe()?;
    writer.write_all(input)?;
    Ok(reader)
}

/// Reads the content of the pipe, without waiting for a descendant that still has its other end.
fn whatever_arrived(pipe: PipeReader) -> io::Result<Vec<u8>> {
    fcntl(pipe.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    let mut output = Vec::new();
    match File::from(OwnedFd::from(pipe)).read_to_end(&mut output) {
        Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
        _ => Ok(output),
    }
}

/// Waits for `child` alone and returns its resource usage, for which std and nix have no function.
#[expect(unsafe_code, reason = "wait4(2) has no safe form")]
fn wait4(child: &Child) -> io::Result<(ExitStatus, libc::rusage)> {
    let pid = child.id().try_into().map_err(io::Error::other)?;
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are to live, writable values of the types that wait4(2) fills.
    if unsafe { libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all-zero is a valid rusage, and wait4 has overwritten it.
    Ok((ExitStatus::from_raw(status), unsafe { usage.assume_init() }))
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_secs(unsigned(time.tv_sec)) + Duration::from_micros(unsigned(time.tv_usec))
}

/// The kernel's counters are signed in C and never negative.
fn unsigned(value: i64) -> u64 {
    value.try_into().unwrap_or(0)
}
