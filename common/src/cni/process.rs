// SPDX-License-Identifier: Apache-2.0
//! The process of a plugin: its environment, its streams, its exit status.

use super::dispatch::{Plugin, Streams, dispatch};
use super::env::Env;
use super::error::Error;
use super::version::Version;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{fstat, makedev};
use std::io::{Stderr, StdinLock, StdoutLock, Write, stderr, stdin, stdout};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;

/// Serves the call that this process was started for. `RDMANET_LOG` sets the level of the log on stderr.
pub fn run_process<P: Plugin>(make: impl FnOnce(&Env) -> Result<P, Error>) -> ExitCode {
    let env = Env::of_process();
    crate::log::init(env.get("RDMANET_LOG").unwrap_or_default());
    let program = std::env::args_os().next().unwrap_or_default();
    let program = Path::new(&program)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    if env.get("CNI_COMMAND").is_ok_and(|command| command == Some("ADD")) && stdout_was_closed() {
        tracing::error!(
            %program,
            "stdout was closed at the start, so the result of ADD would be lost; nothing was done"
        );
        return ExitCode::from(1);
    }
    let status = match make(&env) {
        Ok(plugin) => dispatch(&plugin, &program, &env, streams()),
        Err(error) => {
            // If stdout is closed, the exit status alone reports the failure.
            let _ = writeln!(stdout(), "{}", error.to_json(Version::LATEST));
            1
        }
    };
    ExitCode::from(status)
}

/// The streams of this process. stderr is not locked: the call also logs from the threads that enter the pod's
/// namespace, and a locked stderr would block them for ever.
fn streams() -> Streams<StdinLock<'static>, StdoutLock<'static>, Stderr> {
    Streams {
        stdin: stdin().lock(),
        stdout: stdout().lock(),
        stderr: stderr(),
    }
}

/// Whether this process was started without stdout.
///
/// In that case std opens `/dev/null` for reading and writing (library/std/src/sys/pal/unix,
/// `sanitize_standard_fds`). Shells and Go's os/exec open it for writing only.
fn stdout_was_closed() -> bool {
    let stdout = stdout();
    let is_null = fstat(stdout.as_fd()).is_ok_and(|file| file.st_rdev == makedev(1, 3));
    let flags = fcntl(stdout.as_fd(), FcntlArg::F_GETFL).map(OFlag::from_bits_truncate);
    is_null && flags.is_ok_and(|flags| flags & OFlag::O_ACCMODE == OFlag::O_RDWR)
}

#[cfg(test)]
mod tests;
