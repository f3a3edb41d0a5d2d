// SPDX-License-Identifier: Apache-2.0
//! Measures rdmanet's plugins beside the reference plugins, at the cost for a container runtime: whole processes, from
//! the start to the exit, delegate included.
//!
//! Invariant: both sides run interleaved in one random order on the same machine, in namespaces of this run. Every
//! result is checked. A call that fails ends the run with the plugin's message. The program reports numbers and sets no
//! limits.
#![deny(unsafe_op_in_unsafe_fn)]

mod arena;
mod attach;
mod error;
mod leases;
mod load;
mod options;
mod order;
mod plugin;
mod process;
mod report;
mod sides;
mod signals;
mod stats;

use std::io::{self, Write};
use std::process::ExitCode;

use arena::Arena;
use clap::Parser;
use error::{Error, IoContext, Result};
use load::Load;
use options::Options;
use order::Order;
use report::Report;

/// The argument with which the program starts itself to measure a process that does nothing.
const NOOP: &str = "--noop";

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|arg| arg == NOOP) {
        return ExitCode::SUCCESS;
    }
    match measure(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            progress(&format!("bench: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::NotRoot);
    }
    let programs = plugin::find(options)?;
    signals::install()?;
    progress(&format!("bench: random order from seed {}", options.seed));

    let mut order = Order::new(options.seed);
    let load = Load::watch()?;
    let mut arena = Arena::enter()?;
    let attach = attach::measure(&mut arena, &programs, options.runs, &mut order)?;
    let leases = leases::measure(&mut arena, &programs, options, &mut order)?;

    let report = Report {
        options,
        arena: arena.describe(),
        programs: &programs,
        others_percent: load.others_percent()?,
        attach,
        leases,
    };
    let text = report.render();
    print(&text)?;
    if let Some(file) = &options.markdown {
        std::fs::write(file, &text).context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

fn print(text: &str) -> Result<()> {
    io::stdout()
        .lock()
        .write_all(text.as_bytes())
        .context(|| "cannot write to stdout".into())
}

/// Prints a progress message to stderr. A closed stderr does not end the run.
fn progress(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
