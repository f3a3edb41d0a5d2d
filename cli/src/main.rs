// SPDX-License-Identifier: Apache-2.0
//! The process: command line, output, exit status.

use clap::Parser;
use cli::args::Args;
use cli::output::exit_status;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = cli::run(&args);
    let printed = cli::printed(&outcome, args.output);
    let written = match &outcome {
        Ok(_) => std::io::stdout().write_all(printed.as_bytes()),
        Err(_) => std::io::stderr().write_all(printed.as_bytes()),
    };
    match written {
        // A closed pipe is not an error: the reader, such as `head`, needs no more.
        Err(e) if e.kind() != ErrorKind::BrokenPipe => ExitCode::from(2),
        _ => ExitCode::from(exit_status(&outcome)),
    }
}
