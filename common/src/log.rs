// SPDX-License-Identifier: Apache-2.0
//! Logs go to stderr, which the runtime keeps. stdout carries only the CNI result.

use tracing::level_filters::LevelFilter;

/// Starts logging at the level named by `level` (`error`, `warn`, `info`, `debug`, `trace`; default `warn`).
///
/// A plugin runs for a few milliseconds and writes few lines, so logging is unbuffered and has no thread.
pub fn init(level: Option<&str>) {
    let level = level.and_then(|l| l.parse().ok()).unwrap_or(LevelFilter::WARN);
    // A second call, as in tests that share a process, changes nothing.
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .try_init();
}
