// SPDX-License-Identifier: Apache-2.0
//! Whether the blocks in `pool.json` are still this node's.
//!
//! Others may have a block only after this node has left the cluster and a quarantine has passed. During the boot in
//! which the agent saw the blocks, its pods live on whatever the cluster thinks, and so ADD goes on. After a reboot
//! nothing lives on, and the only evidence is how long ago the agent last saw them: less than the quarantine, and
//! nobody else can have them yet.
//!
//! That age is told by the time of day, which a node without a working board clock starts with as it was when the
//! node went down: systemd takes it from the time stamp of a file. A node that was off for a week would then look as if
//! it had been off for seconds. So the age counts only once a time service has set the clock.

use super::PoolFile;
use crate::clock::Clock;
use std::time::{Duration, SystemTime};

/// What the file `confirmed` holds: a time of day as RFC 3339 has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmed(pub SystemTime);

/// Whether addresses may be given from the blocks of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// They may.
    Good,
    /// They may not until the agent has asked the cluster; the text says why.
    Unproven(String),
}

impl Confirmed {
    /// Reads the content of the file.
    pub fn read(content: &[u8]) -> Option<Self> {
        let text = str::from_utf8(content).ok()?.trim();
        humantime::parse_rfc3339(text).ok().map(Self)
    }

    /// The content of the file, in whole seconds: rounded down, so that it never claims too much.
    pub fn to_line(self) -> String {
        format!("{}\n", humantime::format_rfc3339_seconds(self.0))
    }
}

impl Standing {
    /// The standing of `pool` during boot `boot_id`. The clock and `confirmed` are asked for only if another boot wrote it.
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
            return Self::Unproven("nothing tells when the agent last saw them".to_owned());
        };
        let date = humantime::format_rfc3339_seconds(at);
        match clock.now().duration_since(at) {
            Err(_) => Self::Unproven(format!(
                "the agent last saw them at {date}, which is still to come by this node's clock"
            )),
            Ok(age) if age < Duration::from_secs(pool.quarantine_seconds.into()) => {
                match clock.is_synchronized() {
                    Ok(true) => Self::Good,
                    Ok(false) => Self::Unproven(format!(
                        "the agent last saw them at {date}, {} s ago by a clock that no time service has set since the boot (adjtimex: STA_UNSYNC), so the node may have been off for longer",
                        age.as_secs()
                    )),
                    Err(error) => Self::Unproven(error.msg),
                }
            }
            Ok(age) => Self::Unproven(format!(
                "the agent last saw them at {date}, {} s ago, and after {} s others may have them",
                age.as_secs(),
                pool.quarantine_seconds
            )),
        }
    }
}
