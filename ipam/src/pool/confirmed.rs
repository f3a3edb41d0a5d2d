// SPDX-License-Identifier: Apache-2.0
//! Decides whether the blocks in `pool.json` are still this node's.
//!
//! Another node may claim a block only after this node has left the cluster and a quarantine has passed.
//! During the boot in which the agent confirmed the blocks, this node's pods keep running whatever the
//! cluster decides, so ADD continues. After a reboot no pod is left, and the only evidence is the age of the
//! last confirmation: if it is below the quarantine, no other node can own the blocks yet.
//!
//! The age is measured by the time of day. A node without a working board clock starts with the time at which
//! it went down: systemd takes it from the time stamp of a file. A node that was off for a week would then
//! seem to have been off for seconds. So the age counts only if a time service had set the clock at both of its
//! ends: when the agent wrote the record ([`crate::store::Store::confirm`]), and when the plugin reads it.

use super::PoolFile;
use crate::clock::Clock;
use std::time::{Duration, SystemTime};

/// The content of the file `confirmed`: a time of day by RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmed(pub SystemTime);

/// Whether the plugin may allocate addresses from the blocks of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It may.
    Good,
    /// It may not until the agent has asked the cluster. The text is the reason.
    Unproven(String),
}

impl Confirmed {
    /// Parses the content of the file.
    pub fn read(content: &[u8]) -> Option<Self> {
        let text = str::from_utf8(content).ok()?.trim();
        humantime::parse_rfc3339(text).ok().map(Self)
    }

    /// The content of the file, rounded down to seconds so that it never claims too late a time.
    pub fn to_line(self) -> String {
        format!("{}\n", humantime::format_rfc3339_seconds(self.0))
    }
}

impl Standing {
    /// The standing of `pool` during boot `boot_id`. Reads the clock and `confirmed` only if another boot
    /// wrote the file.
    pub fn of(
        pool: &PoolFile,
        boot_id: &str,
        clock: &dyn Clock,
        confirmed: impl FnOnce() -> Option<Confirmed>,
    ) -> Self {
        if pool.boot_id == boot_id {
            return Self::Good;
        }
        let Some(Confirmed(at)) = confirmed() else {
            return Self::Unproven("there is no record of the agent's last confirmation".to_owned());
        };
        let date = humantime::format_rfc3339_seconds(at);
        // Before the time is read: a time service may set the clock in between.
        let synchronized = clock.is_synchronized();
        match clock.now().duration_since(at) {
            Err(_) => Self::Unproven(format!(
                "the agent last confirmed them at {date}, which is in the future by this node's clock"
            )),
            Ok(age) if age < Duration::from_secs(pool.quarantine_seconds.into()) => match synchronized {
                Ok(true) => Self::Good,
                Ok(false) => Self::Unproven(format!(
                    "the agent last confirmed them at {date}, {} s ago by a clock that no time service has set since the boot (adjtimex: STA_UNSYNC), so the node may have been off for longer",
                    age.as_secs()
                )),
                Err(error) => Self::Unproven(error.msg),
            },
            Ok(age) => Self::Unproven(format!(
                "the agent last confirmed them at {date}, {} s ago, and after {} s other nodes may own them",
                age.as_secs(),
                pool.quarantine_seconds
            )),
        }
    }
}
