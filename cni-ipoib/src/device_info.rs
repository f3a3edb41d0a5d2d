// SPDX-License-Identifier: Apache-2.0
//! The device-info file: what the pod got, for Multus to put into the pod's network status
//! (Network Plumbing Working Group, device-info-spec 1.1.0).

use crate::error::Error;
use crate::plan::Child;
use crate::rdma::Grant;
use common::rdma::PciAddress;
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The file and its content, or none: where a device plugin wrote it already its word stands, and a device that is
/// not on the PCI bus has no form in the specification.
pub(crate) fn to_write(file: Option<&Path>, child: &Child, rdma: Option<&Grant>) -> Option<(PathBuf, Value)> {
    of(file, child.pci.as_ref(), rdma)
}

/// The same for a whole device, which is known by its function.
pub(crate) fn of(
    file: Option<&Path>,
    pci: Option<&PciAddress>,
    rdma: Option<&Grant>,
) -> Option<(PathBuf, Value)> {
    let (file, pci) = (file?, pci?);
    if file.exists() {
        tracing::debug!(file = %file.display(), "written by the device plugin already");
        return None;
    }
    let mut device = json!({ "pci-address": pci.to_string() });
    if let Some(grant) = rdma {
        device["rdma-device"] = json!(grant.name_in_pod());
    }
    Some((
        file.to_owned(),
        json!({ "type": "pci", "version": "1.1.0", "pci": device }),
    ))
}

/// Writes the file, whole or not at all.
pub(crate) fn write(file: &Path, content: &Value) -> Result<(), Error> {
    let io = |source| Error::Io {
        what: "write",
        path: file.to_owned(),
        remedy: "runtimeConfig.CNIDeviceInfoFile must name a file that root can write",
        source,
    };
    if let Some(dir) = file.parent() {
        fs::create_dir_all(dir).map_err(io)?;
    }
    let temporary = unfinished(file);
    let written = fs::write(&temporary, content.to_string()).and_then(|()| fs::rename(&temporary, file));
    if written.is_err() {
        // Nobody would look for it under this name; that it may not be there is no further failure.
        let _ = fs::remove_file(&temporary);
    }
    written.map_err(io)
}

/// Removes the file that [`write`] wrote, and what it left when it was killed.
pub(crate) fn remove(file: &Path) -> io::Result<()> {
    for file in [&unfinished(file), file] {
        match fs::remove_file(file) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// Where the file is written before it gets its name.
fn unfinished(file: &Path) -> PathBuf {
    file.with_extension("rdmanet-tmp")
}

#[cfg(test)]
mod tests;
