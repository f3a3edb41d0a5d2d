// SPDX-License-Identifier: Apache-2.0
use super::super::error::Error;
use super::super::socket::Socket;
use super::Route;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The longest pause between two reads of the carrier. The first pauses are shorter.
///
/// The kernel announces a carrier at most once a second (`net/core/link_watch.c`) but answers a request at
/// once, so polling is faster than listening.
pub const CARRIER_POLL: Duration = Duration::from_millis(16);

impl Socket<Route> {
    /// Waits until the link `index` has carrier. Returns `false` if it has none after `timeout`, or does not
    /// exist.
    ///
    /// Reads the carrier at least once, so `timeout` may be zero.
    pub fn wait_for_carrier(&mut self, index: u32, timeout: Duration) -> Result<bool, Error> {
        let start = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            match self.link_by_index(index)? {
                Some(link) if link.carrier => return Ok(true),
                Some(_) => {}
                None => return Ok(false),
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            sleep(pause.min(left));
            pause = (pause * 2).min(CARRIER_POLL);
        }
    }
}
