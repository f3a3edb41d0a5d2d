// SPDX-License-Identifier: Apache-2.0
use super::super::error::Error;
use super::super::socket::Socket;
use super::Route;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The longest pause between two looks at the carrier; the first ones are shorter.
///
/// The kernel announces a carrier at most once a second (`net/core/link_watch.c`) but shows it at once to who
/// asks, so asking is quicker than listening.
pub const CARRIER_POLL: Duration = Duration::from_millis(16);

impl Socket<Route> {
    /// Waits until the link `index` has carrier; `false` if it has none after `timeout`, or is gone.
    ///
    /// Looks at least once, so that `timeout` may be zero.
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
