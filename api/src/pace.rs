// SPDX-License-Identifier: Apache-2.0
//! Limits how often small changes are written, so that all nodes together write at a bounded rate.

use std::time::Duration;

/// The most writes per second of all nodes together. With more blocks, each block is reported less often.
const WRITES_A_SECOND: u64 = 50;

/// The shortest period in which a node reports a block, or the controller a pool's numbers, if the pool has so many
/// blocks.
pub fn report_interval(shortest: Duration, blocks: i64) -> Duration {
    let all = u64::try_from(blocks).unwrap_or_default() / WRITES_A_SECOND;
    shortest.max(Duration::from_secs(all))
}

/// The shortest pause between two rounds of a task.
const SHORTEST: Duration = Duration::from_millis(10);

/// Parses the pause between two rounds. Without a pause, a task would never rest.
///
/// # Errors
/// A sentence: `text` is not a duration, or is shorter than 10 ms.
pub fn period(text: &str) -> Result<Duration, String> {
    let pause = humantime::parse_duration(text).map_err(|e| e.to_string())?;
    if pause < SHORTEST {
        let shortest = humantime::format_duration(SHORTEST);
        return Err(format!("{text} is too short; the shortest is {shortest}"));
    }
    Ok(pause)
}
