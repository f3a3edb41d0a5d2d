// SPDX-License-Identifier: Apache-2.0
//! The process of a plugin: its environment, its streams, its exit status.

use super::dispatch::{Plugin, Streams, dispatch};
use super::env::Env;
use super::error::Error;
use super::reader::Reader;
use super::version::Version;
use std::io::{Stderr, StdinLock, StdoutLock, Write, stderr, stdin, stdout};
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
    let adds = env.get("CNI_COMMAND").is_ok_and(|command| command == Some("ADD"));
    if adds && let Err(error) = Reader::OF_STDOUT.require() {
        tracing::error!(%program, error = %error.msg, "refused ADD");
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
        reader: Reader::OF_STDOUT,
    }
}

#[cfg(test)]
mod tests;
