// SPDX-License-Identifier: Apache-2.0
//! The flags that agent and controller share.

use crate::quarantine::Quarantines;
use clap::Args;
use std::time::Duration;
use tracing::level_filters::LevelFilter;

/// The most writes per second of all nodes together. With more blocks, each block is reported less often.
const WRITES_A_SECOND: u64 = 50;

/// The shortest pause between two rounds of a task.
const SHORTEST: Duration = Duration::from_millis(10);

/// The flags of a daemon. Each has an environment variable, for a manifest.
#[derive(Args, Clone, Debug)]
pub struct DaemonFlags {
    /// How long the blocks and addresses of a deleted node are kept from other nodes
    #[command(flatten)]
    pub quarantines: Quarantines,
    /// The minimum time between the two observations that prove an address unused
    #[arg(long, env = "RDMANET_OBSERVATION_INTERVAL", default_value = "30s", value_parser = humantime::parse_duration)]
    pub observation_interval: Duration,
    /// How often pools are reconciled if nothing changes
    #[arg(long, env = "RDMANET_RECONCILE_INTERVAL", default_value = "2s", value_parser = period)]
    pub reconcile_interval: Duration,
    /// The minimum time between two reports of utilization to the API server
    #[arg(long, env = "RDMANET_REPORT_INTERVAL", default_value = "30s", value_parser = period)]
    pub report_interval: Duration,
    /// error, warn, info, debug or trace
    #[arg(long, env = "RDMANET_LOG", default_value = "info", value_parser = log_level)]
    pub log: LevelFilter,
}

impl DaemonFlags {
    /// The minimum time between two reports of a node about a block, or of the controller about a pool, if the pool has
    /// this number of blocks. All nodes together write at a bounded rate.
    pub fn report_interval_of(&self, blocks: i64) -> Duration {
        let all = u64::try_from(blocks).unwrap_or_default() / WRITES_A_SECOND;
        self.report_interval.max(Duration::from_secs(all))
    }
}

/// Parses the level of the log.
///
/// # Errors
/// A sentence: `text` is not a level.
fn log_level(text: &str) -> Result<LevelFilter, String> {
    text.parse()
        .map_err(|_| "it is not a level; use error, warn, info, debug or trace".to_owned())
}

/// Parses the pause between two rounds. Without a pause, a task would never rest.
///
/// # Errors
/// A sentence: `text` is not a duration, or is shorter than 10 ms.
fn period(text: &str) -> Result<Duration, String> {
    let pause = humantime::parse_duration(text).map_err(|e| e.to_string())?;
    if pause < SHORTEST {
        let shortest = humantime::format_duration(SHORTEST);
        return Err(format!("{text} is too short; the shortest is {shortest}"));
    }
    Ok(pause)
}
