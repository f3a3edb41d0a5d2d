// SPDX-License-Identifier: Apache-2.0
//! Time and identity of the running kernel.
//!
//! Whether an address has rested long enough is told by `CLOCK_BOOTTIME`, which nobody sets and which goes on while
//! the machine sleeps; the wall clock is only ever shown to people.

use common::cni::{Code, Error};
use nix::time::{ClockId, clock_gettime};
use std::time::{Duration, SystemTime};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What a store must know of time.
pub trait Clock {
    /// A name for the time since this kernel started, the same for all its processes (random(4), `boot_id`).
    fn boot_id(&self) -> Result<String, Error>;
    /// How long ago this kernel started.
    fn since_boot(&self) -> Result<Duration, Error>;
    /// The time of day.
    fn now(&self) -> SystemTime;
}

/// The kernel's own clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelClock;

impl Clock for KernelClock {
    fn boot_id(&self) -> Result<String, Error> {
        let text = std::fs::read_to_string(BOOT_ID).map_err(|e| {
            Error::caused(Code::IO, format!("cannot read {BOOT_ID}, which tells leases of this boot from older ones; is /proc mounted?"), &e)
        })?;
        let id = text.trim();
        let plain = !id.is_empty() && id.len() <= 64 && id.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
        if plain {
            Ok(id.to_owned())
        } else {
            Err(Error::new(
                Code::IO,
                format!("{BOOT_ID} holds {id:?}, which is no boot id"),
            ))
        }
    }

    fn since_boot(&self) -> Result<Duration, Error> {
        let time = clock_gettime(ClockId::CLOCK_BOOTTIME);
        time.map(Duration::from)
            .map_err(|e| Error::caused(Code::IO, "cannot read CLOCK_BOOTTIME", &e))
    }

    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}
