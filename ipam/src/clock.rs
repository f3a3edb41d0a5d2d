// SPDX-License-Identifier: Apache-2.0
//! Time and identity of the running kernel.
//!
//! Whether an address has rested long enough is measured by `CLOCK_BOOTTIME`: it cannot be set, and it
//! continues while the machine is suspended. The wall clock is only for people.

use common::cni::{Code, Error};
use nix::libc;
use nix::time::{ClockId, clock_gettime};
use std::time::{Duration, SystemTime};

pub(crate) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The time, as a store reads it.
pub trait Clock {
    /// An id of the current boot, the same for all processes of this kernel (random(4), `boot_id`).
    fn boot_id(&self) -> Result<String, Error>;
    /// The time since this kernel started.
    fn since_boot(&self) -> Result<Duration, Error>;
    /// The time of day.
    fn now(&self) -> SystemTime;
    /// Whether a time service has set the time of day since the kernel started (adjtimex(2): not
    /// `STA_UNSYNC`). Until then the time comes from the board's clock, or from a file that was written
    /// before the reboot.
    ///
    /// # Errors
    /// [`Code::IO`] if the kernel does not report it.
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
            Error::caused(Code::IO, format!("cannot read {BOOT_ID}, which distinguishes leases of this boot from older ones; is /proc mounted?"), &e)
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

/// `timex.status`: a set of `STA_…` bits.
#[expect(unsafe_code, reason = "neither std nor nix has adjtimex(2)")]
fn kernel_time_status() -> std::io::Result<libc::c_int> {
    // SAFETY: timex has only numbers, so all zeros is a valid value. With modes 0 the kernel changes nothing,
    // which any process may request, and writes only within the structure.
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
