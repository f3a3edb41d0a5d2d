// SPDX-License-Identifier: Apache-2.0
//! How often what has changed a little is written, so that the cluster as a whole writes at a bounded rate.

use std::time::Duration;

/// Writes a second that all nodes together make at most; with more blocks, each is told of less often.
const WRITES_A_SECOND: u64 = 50;

/// How often a node tells of a block, at most, and the controller of a pool's numbers, where the pool has so many blocks.
pub fn tell_every(mirror: Duration, blocks: i64) -> Duration {
    let all = u64::try_from(blocks).unwrap_or_default() / WRITES_A_SECOND;
    mirror.max(Duration::from_secs(all))
}

/// The shortest pause between two rounds of a task.
const SHORTEST: Duration = Duration::from_millis(10);

/// Reads a pause between two rounds. Without one, a task would never rest.
///
/// # Errors
/// A sentence: `text` is no time, or shorter than 10 ms.
pub fn period(text: &str) -> Result<Duration, String> {
    let pause = humantime::parse_duration(text).map_err(|e| e.to_string())?;
    if pause < SHORTEST {
        let shortest = humantime::format_duration(SHORTEST);
        return Err(format!("{text} is too short; the shortest is {shortest}"));
    }
    Ok(pause)
}
