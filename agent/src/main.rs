// SPDX-License-Identifier: Apache-2.0
//! The process: flags, logs, signals.

use agent::client;
use agent::config::Config;
use agent::daemon;
use agent::install::{self, Install, Uninstall};
use clap::{Parser, Subcommand};
use std::io::{self, Write};
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Claims blocks of addresses for this node and keeps pools in order, unless told to do something else.
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

/// Speaks plain sentences: a person reads them with `kubectl logs`, or in the description of a pod that does not start.
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
        (Ok(()), Errand::Uninstall(Uninstall { stay: true, .. })) => with_runtime(stay()),
        (Ok(()), _) => ExitCode::SUCCESS,
    }
}

/// There is nobody to tell if stderr is closed.
fn complain(sentence: &str) {
    let _ = writeln!(io::stderr(), "rdmanet-agent: {sentence}");
}

async fn stay() -> Result<(), String> {
    ended()?.await;
    Ok(())
}

fn run_daemon(config: Config) -> ExitCode {
    start_logging(&config.log);
    with_runtime(run(config))
}

fn with_runtime(work: impl Future<Output = Result<(), String>>) -> ExitCode {
    // A node has better things to do with its processors; the agent waits for others nearly all the time.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(work),
        Err(e) => Err(format!("cannot start threads: {e}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            tracing::error!(error = e, "the agent ends");
            ExitCode::FAILURE
        }
    }
}

/// Waits for SIGTERM or SIGINT.
fn ended() -> Result<impl Future<Output = ()>, String> {
    let mut terminate =
        signal(SignalKind::terminate()).map_err(|e| format!("cannot wait for SIGTERM: {e}"))?;
    let mut interrupt =
        signal(SignalKind::interrupt()).map_err(|e| format!("cannot wait for SIGINT: {e}"))?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// One JSON document a line. What libraries have to say of their connections interests nobody below a warning.
fn start_logging(level: &str) {
    let level = level.parse().unwrap_or(LevelFilter::INFO);
    let lines = tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .with_writer(std::io::stderr);
    let wanted = Targets::new()
        .with_target("agent", level)
        .with_default(level.min(LevelFilter::WARN));
    tracing_subscriber::registry().with(lines).with(wanted).init();
}

async fn run(config: Config) -> Result<(), String> {
    let stop = CancellationToken::new();
    let on_signal = stop.clone();
    let ended = ended()?;
    tokio::spawn(async move {
        ended.await;
        tracing::info!("stopping");
        on_signal.cancel();
    });
    let found = client::configuration().await?;
    let client =
        client::new(found).map_err(|e| format!("cannot speak to the API server with what was found: {e}"))?;
    daemon::run(config, client, stop).await.map_err(|e| e.to_string())
}
