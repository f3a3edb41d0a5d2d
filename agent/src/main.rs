// SPDX-License-Identifier: Apache-2.0
//! The program `rdmanet-agent`.

use agent::command_line::{CommandLine, PluginCommand};
use agent::config::Config;
use agent::daemon;
use agent::install::{self, Uninstall};
use api::process;
use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    match CommandLine::parse(std::env::args_os()) {
        Ok(CommandLine::Daemon(config)) => run_daemon(*config),
        Ok(CommandLine::Plugins(command)) => change_plugins(&command),
        Err(error) => error.exit(),
    }
}

/// Prints plain sentences: an administrator reads them with `kubectl logs`, or in the description of a pod that does not start.
fn change_plugins(command: &PluginCommand) -> ExitCode {
    let mut out = io::stdout().lock();
    let done = match command {
        PluginCommand::Install(wanted) => install::install(wanted, &mut out),
        PluginCommand::Uninstall(wanted) => install::uninstall(wanted, &mut out),
    };
    match (done, command) {
        (Err(e), _) => {
            complain(&e.to_string());
            ExitCode::FAILURE
        }
        (Ok(()), PluginCommand::Uninstall(Uninstall { stay: true, .. })) => process::run(stay()),
        (Ok(()), _) => ExitCode::SUCCESS,
    }
}

/// If stderr is closed, the error cannot be reported.
fn complain(sentence: &str) {
    let _ = writeln!(io::stderr(), "rdmanet-agent: {sentence}");
}

async fn stay() -> Result<(), String> {
    process::ended()?.await;
    Ok(())
}

fn run_daemon(config: Config) -> ExitCode {
    let flags = config.daemon.clone();
    process::run_daemon("agent", &flags, |clients, stop| {
        daemon::run(config, clients, stop)
    })
}
