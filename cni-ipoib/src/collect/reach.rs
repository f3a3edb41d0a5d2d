// SPDX-License-Identifier: Apache-2.0
//! What the collector may write. In its container `/proc/sys` and `/sys` are read-only, since it is not
//! privileged.
//!
//! Invariant: a link whose state the collector cannot restore completely stays as it is, for a call of the
//! runtime.

use crate::intent::Intent;
use nix::unistd::{AccessFlags, access};
use std::path::Path;

/// A sysctl that every kernel with IPv4 has.
const SYSCTL: &str = "/proc/sys/net/ipv4/ip_forward";

/// The file that binds a PCI function to a driver.
const DRIVERS: &str = "/sys/bus/pci/drivers_probe";

/// The rights of this process beyond netlink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    /// It may write sysctls.
    pub(crate) sysctls: bool,
    /// It may bind drivers.
    pub(crate) drivers: bool,
}

impl Reach {
    /// The rights of this process.
    pub(crate) fn of_process() -> Self {
        let writable = |file: &str| access(Path::new(file), AccessFlags::W_OK).is_ok();
        Self {
            sysctls: writable(SYSCTL),
            drivers: writable(DRIVERS),
        }
    }

    /// Why the attachment cannot be removed completely; `None` if it can.
    pub(crate) fn missing_for(self, intent: &Intent) -> Option<&'static str> {
        let was = intent.device.as_ref()?;
        if !self.sysctls && !was.sysctls.is_empty() {
            return Some("its link had sysctls of its own, which only a call of the runtime can restore");
        }
        if !self.drivers && was.function.is_some() {
            return Some("its virtual function gets its GUID back only by a call of the runtime");
        }
        None
    }
}
