// SPDX-License-Identifier: Apache-2.0
//! Time and identity of the running kernel.
//!
//! Whether an address has rested long enough is told by `CLOCK_BOOTTIME`, which nobody sets and which goes on while
//! the machine sleeps; the wall clock is only ever shown to people.

use common::cni::{Code, Error};
use nix::libc;
use nix::time::{ClockId, clock_gettime};
use std::time::{Duration, SystemTime};

pub(crate) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What a store must know of time.
pub trait Clock {
    /// A name for the time since this kernel started, the same for all its processes (random(4), `boot_id`).
    fn boot_id(&self) -> Result<String, Error>;
    /// How long ago this kernel started.
    fn since_boot(&self) -> Result<Duration, Error>;
    /// The time of day.
    fn now(&self) -> SystemTime;
    /// Whether a time service has set the time of day since the kernel started (adjtimex(2): not `STA_UNSYNC`). Until then
    /// it is what the board's clock or a file from before the reboot says.
    ///
    /// # Errors
    /// [`Code::IO`] when the kernel does not tell.
    fn is_synchronized(&self) -> Result<bool, Error>;
}

/// Whether `text` has the form of a boot id: 32 hexadecimal digits in five groups (random(4)).
pub(crate) fn is_boot_id(text: &str) -> bool {
    let groups = text.split('-').map(str::len);
    groups.eq([8, 4, 4, 4, 12]) && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
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
        if is_boot_id(id) {
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

    fn is_synchronized(&self) -> Result<bool, Error> {
        kernel_time_status()
            .map(|status| status & libc::STA_UNSYNC == 0)
            .map_err(|e| Error::caused(Code::IO, "cannot read the clock's status (adjtimex)", &e))
    }
}

/// `timex.status`: a word of `STA_…` bits.
#[expect(unsafe_code, reason = "neither std nor nix has adjtimex(2)")]
fn kernel_time_status() -> std::io::Result<libc::c_int> {
    // Safety: timex has numbers only, for which all zeros is a value; with modes 0 the kernel changes nothing, which any
    // process may ask for, and writes no further than the structure that it is given.
    let (state, status) = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&raw mut timex), timex.status)
    };
    if state == -1 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(status)
}

#[cfg(test)]
mod tests;
