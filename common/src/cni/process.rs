// SPDX-License-Identifier: Apache-2.0
//! The process that a plugin is: its environment, its streams, its exit status.

use super::dispatch::{Plugin, Streams, dispatch};
use super::env::Env;
use super::error::Error;
use super::version::Version;
use std::io::{Write, stderr, stdin, stdout};
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
    let status = match make(&env) {
        Ok(plugin) => {
            let streams = Streams {
                stdin: stdin().lock(),
                stdout: stdout().lock(),
                stderr: stderr().lock(),
            };
            dispatch(&plugin, &program, &env, streams)
        }
        Err(error) => {
            // With stdout closed there is nobody to tell; the status says it failed.
            let _ = writeln!(stdout(), "{}", error.to_json(Version::LATEST));
            1
        }
    };
    ExitCode::from(status)
}
