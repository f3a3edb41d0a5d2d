// SPDX-License-Identifier: Apache-2.0
//! How long the addresses of a gone node stay unused. Agent and controller have the same flags.
//!
//! Invariant: a process that judges an object waits for the longer one of two quarantines: its own, and the one that the object
//! records. A block records that of its owner when it claimed the block, an address that of the controller that marked it as
//! orphaned.

use block::orphan::Quarantine;
use clap::Args;
use std::str::FromStr;
use std::time::Duration;

/// The shortest quarantine. A request to the API server may take effect a minute after its sender timed out, and
/// responses are used for up to a quarter of the quarantine.
const SHORTEST: Duration = Duration::from_secs(120);

/// The quarantines from the command line.
#[derive(Args, Clone, Copy, Debug)]
pub struct Quarantines {
    /// How long the blocks of a deleted node are kept from other nodes, at least 2m
    #[arg(long = "quarantine", value_name = "QUARANTINE", env = "RDMANET_QUARANTINE", default_value = "10m", value_parser = humantime::parse_duration)]
    pub unused: Duration,
    /// The same for blocks with addresses in use in the node's last report: a time or `never`. Set a time only if Node objects are deleted
    /// only after their machines were switched off, as cloud controllers do
    #[arg(
        long = "quarantine-in-use",
        value_name = "QUARANTINE_IN_USE",
        env = "RDMANET_QUARANTINE_IN_USE",
        default_value = "never"
    )]
    pub in_use: AfterUse,
    /// Lets tests use a quarantine below two minutes, with which two pods may get the same address
    #[arg(long = "short-quarantine-for-tests", hide = true)]
    pub short_for_tests: bool,
}

/// When addresses that a gone node had in use become free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterUse {
    /// When a person states that the machine is off (`rdmanet release`).
    Never,
    /// After this time.
    After(Duration),
}

impl FromStr for AfterUse {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "never" {
            return Ok(Self::Never);
        }
        let time = humantime::parse_duration(text);
        time.map(Self::After)
            .map_err(|e| format!("{text:?} is neither `never` nor a time such as 24h: {e}"))
    }
}

impl Quarantines {
    /// Checks that `--quarantine` is long enough to be safe.
    ///
    /// # Errors
    /// A sentence that names the flag, its value, the cause and the remedy.
    pub fn require_unused(&self) -> Result<(), String> {
        let shortest = if self.short_for_tests {
            Duration::from_secs(1)
        } else {
            SHORTEST
        };
        if self.unused >= shortest {
            return Ok(());
        }
        let why = "a late request of a node could give an address to a second pod";
        Err(too_short("quarantine", self.unused, shortest, why))
    }

    /// Checks that `--quarantine-in-use` is not the shorter one. An agent does not act on that flag and does not check it:
    /// a wrong value must not keep pods from their addresses.
    ///
    /// # Errors
    /// A sentence that names the flag, its value, the cause and the remedy.
    pub fn require_in_use(&self) -> Result<(), String> {
        match self.in_use {
            AfterUse::After(time) if time < self.unused => {
                let why = "it must not be shorter than --quarantine";
                Err(too_short("quarantine-in-use", time, self.unused, why))
            }
            _ => Ok(()),
        }
    }

    /// How long an object of a gone node must stay unchanged. `recorded` is the quarantine in seconds that the object records.
    /// The longer one counts, because the file of a block's owner may still carry the old one.
    pub fn of(&self, recorded: Option<i64>) -> Quarantine {
        let recorded = recorded.and_then(|seconds| u64::try_from(seconds).ok());
        let unused = self.unused.max(Duration::from_secs(recorded.unwrap_or_default()));
        Quarantine {
            unused,
            in_use: match self.in_use {
                AfterUse::Never => None,
                AfterUse::After(time) => Some(time.max(unused)),
            },
        }
    }
}

fn too_short(flag: &str, time: Duration, least: Duration, why: &str) -> String {
    let [time, least] = [time, least].map(humantime::format_duration);
    format!("--{flag} {time} is too short: {why}; set {least} or more")
}

#[cfg(test)]
mod tests;
