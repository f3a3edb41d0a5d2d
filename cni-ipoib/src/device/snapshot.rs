// SPDX-License-Identifier: Apache-2.0
//! Reads the state of a link on the host, for the journal.

use crate::error::Error;
use crate::intent::{Hardware, PacketSettings, Snapshot, boot};
use crate::kernel::Kernel;
use common::netlink::{Link, Saved};
use std::io;
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
    let tcx = has_tcx(kernel, link)?;
    let ipoib = Snapshot::transport_of(link).map(|(mode, umcast)| (mode.to_string(), umcast));
    Ok(Snapshot {
        boot: boot()?,
        hardware: Hardware::of(link, path),
        port: None,
        name: link.name.clone(),
        altnames: link.altnames.clone(),
        alias: link.alias.clone(),
        group: link.group,
        address: link.address.clone(),
        mtu: link.mtu,
        up: link.up,
        packets: Some(PacketSettings::of(link, tcx)),
        addr_gen_mode: link.addr_gen_mode.map(|mode| mode.to_string()),
        ipoib,
        carried,
        sysctls,
        function: None,
    })
}

/// Whether `link` runs programs by tcx; `None` if this process must not ask, as under a seccomp profile.
fn has_tcx(kernel: &mut dyn Kernel, link: &Link) -> Result<Option<bool>, Error> {
    match kernel.has_tcx(link.index) {
        Ok(has) => Ok(Some(has)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            tracing::warn!(link = link.name, %error, "cannot look for tcx programs of the link; those of the pod will stay on it");
            Ok(None)
        }
        Err(source) => Err(Error::Io {
            what: "look for tcx programs of",
            path: PathBuf::from(format!("/sys/class/net/{}", link.name)),
            remedy: "see BPF_PROG_QUERY in bpf(2)",
            source,
        }),
    }
}

#[cfg(test)]
mod tests;
