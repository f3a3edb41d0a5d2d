// SPDX-License-Identifier: Apache-2.0
//! The process around a daemon: logs, threads, signals.

use crate::client::Clients;
use crate::flags::DaemonFlags;
use std::fmt::Display;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Runs `daemon` with the clients that the environment names, until SIGTERM or SIGINT. `program` is the name of its library.
pub fn run_daemon<F, E>(
    program: &str,
    flags: &DaemonFlags,
    daemon: impl FnOnce(Clients, CancellationToken) -> F,
) -> ExitCode
where
    F: Future<Output = Result<(), E>>,
    E: Display,
{
    start_logging(program, flags.log);
    run(async {
        flags.quarantines.require_unused()?;
        let stop = stop_on_signal()?;
        let clients = Clients::from_environment().await?;
        daemon(clients, stop).await.map_err(|e| e.to_string())
    })
}

/// Logs to stderr, one JSON document per line. `program` (the name of its library) and this crate log from `level` on;
/// other libraries log only warnings and errors.
fn start_logging(program: &str, level: LevelFilter) {
    let lines = tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .with_writer(std::io::stderr);
    let wanted = Targets::new()
        .with_target(program, level)
        .with_target("api", level)
        .with_default(level.min(LevelFilter::WARN));
    tracing_subscriber::registry().with(lines).with(wanted).init();
}

/// Runs `work` on two threads and logs why it failed. Two are enough, since tasks wait for I/O nearly all the time.
pub fn run(work: impl Future<Output = Result<(), String>>) -> ExitCode {
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
            tracing::error!(error = e, "process failed");
            ExitCode::FAILURE
        }
    }
}

/// Waits for SIGTERM or SIGINT.
///
/// # Errors
/// A sentence, if a signal handler cannot be installed.
pub fn ended() -> Result<impl Future<Output = ()>, String> {
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

/// Returns a token that SIGTERM or SIGINT cancels.
///
/// # Errors
/// Those of [`ended`].
fn stop_on_signal() -> Result<CancellationToken, String> {
    let ended = ended()?;
    Ok(cancelled_after(async {
        ended.await;
        tracing::info!("stopping");
    }))
}

/// Returns a token that is cancelled when `work` ends, in a panic too: a process that no signal can stop is killed.
fn cancelled_after(work: impl Future<Output = ()> + Send + 'static) -> CancellationToken {
    let done = CancellationToken::new();
    let guard = done.clone().drop_guard();
    tokio::spawn(async move {
        work.await;
        drop(guard);
    });
    done
}

#[cfg(test)]
mod tests;
