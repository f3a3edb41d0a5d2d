// SPDX-License-Identifier: Apache-2.0
//! The program `rdmanet-agent`: flags and subcommands.

use agent::config::Config;
use agent::daemon;
use agent::install::{self, Install, Uninstall};
use api::client::Clients;
use api::process;
use clap::{Args, Command, FromArgMatches, Subcommand};
use std::io::{self, Write};
use std::process::ExitCode;

/// What is done once, without Kubernetes.
#[derive(Subcommand)]
enum Errand {
    Install(Install),
    Uninstall(Uninstall),
}

fn main() -> ExitCode {
    let arguments = command().get_matches();
    let done = match arguments.subcommand_name() {
        Some(_) => Errand::from_arg_matches(&arguments).map(|errand| run_errand(&errand)),
        None => Config::from_arg_matches(&arguments).map(run_daemon),
    };
    done.unwrap_or_else(|error| error.exit())
}

/// The flags of the daemon, or a subcommand.
///
/// No type derives both: clap treats an optional group of flags as absent if another group is part of it, as the quarantines are of
/// [`Config`] (`clap_derive` 4, `derives/args.rs`).
fn command() -> Command {
    let daemon = Config::augment_args(Command::new("rdmanet-agent"));
    Errand::augment_subcommands(daemon)
        .about("Claims blocks of addresses for this node, or runs a command")
        .version(env!("CARGO_PKG_VERSION"))
        .args_conflicts_with_subcommands(true)
        .subcommand_negates_reqs(true)
}

/// Prints plain sentences: an administrator reads them with `kubectl logs`, or in the description of a pod that does not start.
fn run_errand(errand: &Errand) -> ExitCode {
    let mut out = io::stdout().lock();
    let done = match errand {
        Errand::Install(wanted) => install::install(wanted, &mut out),
        Errand::Uninstall(wanted) => install::uninstall(wanted, &mut out),
    };
    match (done, errand) {
        (Err(e), _) => {
            complain(&e.to_string());
            ExitCode::FAILURE
        }
        (Ok(()), Errand::Uninstall(Uninstall { stay: true, .. })) => process::run(stay()),
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
    process::start_logging("agent", &config.log);
    process::run(run(config))
}

async fn run(config: Config) -> Result<(), String> {
    config.quarantines.require()?;
    let stop = process::stop_on_signal()?;
    let clients = Clients::from_environment().await?;
    daemon::run(config, clients, stop)
        .await
        .map_err(|e| e.to_string())
}
