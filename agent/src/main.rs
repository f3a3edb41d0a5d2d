// SPDX-License-Identifier: Apache-2.0
//! The program `rdmanet-agent`: flags and subcommands.

use agent::config::Config;
use agent::daemon;
use agent::install::{self, Install, Uninstall};
use api::client::Clients;
use api::process;
use clap::{Parser, Subcommand};
use std::io::{self, Write};
use std::process::ExitCode;

/// Claims blocks of addresses for this node, or runs a command.
#[derive(Parser)]
#[command(
    name = "rdmanet-agent",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
struct Cli {
    #[command(subcommand)]
    errand: Option<Errand>,
    #[command(flatten)]
    daemon: Option<Config>,
}

/// What is done once, without Kubernetes.
#[derive(Subcommand)]
enum Errand {
    Install(Install),
    Uninstall(Uninstall),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match (cli.errand, cli.daemon) {
        (Some(errand), _) => run_errand(&errand),
        (None, Some(config)) => run_daemon(config),
        (None, None) => {
            complain("--node (RDMANET_NODE) is missing: the name of this node");
            ExitCode::FAILURE
        }
    }
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
