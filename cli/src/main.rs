// SPDX-License-Identifier: Apache-2.0
//! The process: command line, output, exit status.

use clap::Parser;
use cli::args::{Args, Format};
use cli::output::exit_status;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = cli::run(&args);
    let written = match &outcome {
        Ok(output) => {
            let text = match args.output {
                Format::Table => output.text.clone(),
                Format::Json => format!("{:#}\n", output.json),
            };
            std::io::stdout().write_all(text.as_bytes())
        }
        Err(error) => writeln!(std::io::stderr(), "rdmanet: {error}"),
    };
    match written {
        // A closed pipe is not an error: the reader, such as `head`, needs no more.
        Err(e) if e.kind() != ErrorKind::BrokenPipe => ExitCode::from(2),
        _ => ExitCode::from(exit_status(&outcome)),
    }
}
