// SPDX-License-Identifier: Apache-2.0
//! poll(2) until a deadline.

use nix::errno::Errno;
use nix::poll::{PollFd, PollTimeout, poll};
use std::time::Instant;

/// Waits until one of `fds` is ready, and returns `false` if none is at `deadline`. A descriptor that is ready counts
/// also after `deadline`: what came in time is not lost to a process that ran late.
///
/// # Errors
/// The kernel's own.
pub fn poll_until(fds: &mut [PollFd<'_>], deadline: Instant) -> Result<bool, Errno> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // Rounded up, so that the last fraction of a millisecond is not a busy loop.
        let timeout = PollTimeout::try_from(left.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX);
        match poll(fds, timeout) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(true),
            Err(e) => return Err(e),
        }
    }
}
