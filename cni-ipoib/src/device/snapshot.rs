// SPDX-License-Identifier: Apache-2.0
//! Reads the state of a link on the host, for the journal.

use crate::error::Error;
use crate::intent::{Hardware, PacketSettings, Snapshot, boot};
use crate::kernel::Kernel;
use common::netlink::{Link, Saved};
use std::path::PathBuf;

/// Reads the state of `link`, a link of the host. `path` is its device's directory in sysfs.
///
/// # Errors
/// The kernel refuses a request.
pub fn take(
    kernel: &mut dyn Kernel,
    link: &Link,
    path: Option<PathBuf>,
    carried: Vec<Saved>,
) -> Result<Snapshot, Error> {
    let sysctls = kernel.sysctls(&link.name).map_err(|source| Error::Io {
        what: "read the settings of",
        path: PathBuf::from(format!("/proc/sys/net/ipv4/conf/{}", link.name)),
        remedy: "is /proc mounted?",
        source,
    })?;
    let ipoib = Snapshot::transport_of(link).map(|(mode, umcast)| (mode.to_string(), umcast));
    Ok(Snapshot {
        boot: boot()?,
        hardware: Hardware::of(link, path),
        name: link.name.clone(),
        altnames: link.altnames.clone(),
        alias: link.alias.clone(),
        group: link.group,
        address: link.address.clone(),
        mtu: link.mtu,
        up: link.up,
        packets: Some(PacketSettings::of(link)),
        addr_gen_mode: link.addr_gen_mode.map(|mode| mode.to_string()),
        ipoib,
        carried,
        sysctls,
        function: None,
    })
}

#[cfg(test)]
mod tests;
