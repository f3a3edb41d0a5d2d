// SPDX-License-Identifier: Apache-2.0
//! The process: flags, logs, signals.

use agent::config::Config;
use agent::daemon;
use clap::Parser;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

fn main() -> ExitCode {
    let config = Config::parse();
    start_logging(&config.log);
    // A node has better things to do with its processors; the agent waits for others nearly all the time.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(run(config)),
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
    let mut terminate =
        signal(SignalKind::terminate()).map_err(|e| format!("cannot wait for SIGTERM: {e}"))?;
    let mut interrupt =
        signal(SignalKind::interrupt()).map_err(|e| format!("cannot wait for SIGINT: {e}"))?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
        on_signal.cancel();
    });
    let client = kube::Client::try_default().await.map_err(|e| {
        format!("no way to the API server: {e}; set KUBECONFIG, or run in a pod with a service account")
    })?;
    daemon::run(config, client, stop).await.map_err(|e| e.to_string())
}
