// SPDX-License-Identifier: Apache-2.0
//! The process: command line, output, exit status.

use clap::Parser;
use cli::answer::exit_status;
use cli::args::{Args, Output};
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = cli::run(&args);
    let written = match &outcome {
        Ok(answer) => {
            let text = match args.output {
                Output::Table => answer.text.clone(),
                Output::Json => format!("{:#}\n", answer.json),
            };
            std::io::stdout().write_all(text.as_bytes())
        }
        Err(failure) => writeln!(std::io::stderr(), "rdmanet: {failure}"),
    };
    match written {
        // A closed pipe is not an error: the reader, such as `head`, needs no more.
        Err(e) if e.kind() != ErrorKind::BrokenPipe => ExitCode::from(2),
        _ => ExitCode::from(exit_status(&outcome)),
    }
}
