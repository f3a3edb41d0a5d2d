// SPDX-License-Identifier: Apache-2.0
//! The process: parses flags and starts the controller.

use api::process;
use clap::Parser;
use controller::config::Config;
use controller::daemon;
use std::process::ExitCode;

fn main() -> ExitCode {
    let config = Config::parse();
    let flags = config.daemon.clone();
    process::run_daemon("controller", &flags, |clients, stop| {
        daemon::run(config, clients, stop)
    })
}
