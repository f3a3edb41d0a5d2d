// SPDX-License-Identifier: Apache-2.0
//! The device-info file: describes the pod's device, for Multus to put into the pod's network status (Network
//! Plumbing Working Group, device-info-spec 1.1.0).

use crate::directories;
use crate::error::Error;
use crate::intent::Grant;
use common::rdma::PciAddress;
use serde_json::{Value, json};
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// The hardware of an interface.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hardware<'a> {
    /// The pod has the function itself.
    Function(&'a PciAddress),
    /// The pod has a part of the function: a child of a link, a subfunction or one of several ports.
    PartOf(&'a PciAddress),
}

/// Refuses a file outside `dirs`. A network may set `runtimeConfig` itself, and the file is written and
/// removed as root.
///
/// # Errors
/// [`Error::BadValue`].
pub(crate) fn require_place(file: Option<&Path>, dirs: &[PathBuf]) -> Result<(), Error> {
    let Some(file) = file else { return Ok(()) };
    let is_plain = file
        .components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if is_plain && dirs.iter().any(|dir| file.starts_with(dir)) {
        return Ok(());
    }
    let dirs: Vec<_> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    Err(Error::BadValue {
        key: "runtimeConfig.CNIDeviceInfoFile",
        value: file.display().to_string(),
        want: format!("a file below {}", dirs.join(" or ")),
    })
}

/// The file and its content. `None` if a device plugin has written the file already, or if no known property
/// has a form in the specification.
///
/// `pci-address` is a function that the pod owns. Consumers assume that they may use it alone, so for a part
/// of a function the function is given as `pf-pci-address` instead.
pub(crate) fn to_write(
    file: Option<&Path>,
    hardware: Option<Hardware<'_>>,
    rdma: Option<&Grant>,
) -> Option<(PathBuf, Value)> {
    let (file, hardware) = (file?, hardware?);
    if file.exists() {
        tracing::debug!(file = %file.display(), "the device plugin has written the device-info file already");
        return None;
    }
    let mut device = match hardware {
        Hardware::Function(pci) => json!({ "pci-address": pci.to_string() }),
        Hardware::PartOf(pci) => json!({ "pf-pci-address": pci.to_string() }),
    };
    if let Some(grant) = rdma {
        device["rdma-device"] = json!(grant.name_in_pod());
    }
    Some((
        file.to_owned(),
        json!({ "type": "pci", "version": "1.1.0", "pci": device }),
    ))
}

/// Writes the file atomically, readable for all: Multus and unprivileged programs read it.
///
/// # Errors
/// [`Error::Io`]; then no file is left.
pub(crate) fn write(file: &Path, content: &Value) -> Result<(), Error> {
    let io = |source| Error::Io {
        what: "write",
        path: file.to_owned(),
        remedy: "runtimeConfig.CNIDeviceInfoFile must name a file that root can write",
        source,
    };
    if let Some(dir) = file.parent() {
        directories::public(dir).map_err(io)?;
    }
    let temporary = unfinished(file);
    let written = write_new(&temporary, content).and_then(|()| fs::rename(&temporary, file));
    if written.is_err() {
        // No reader looks for this name. If the file does not exist, that is not an error.
        let _ = fs::remove_file(&temporary);
    }
    written.map_err(io)
}

fn write_new(file: &Path, content: &Value) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut new = OpenOptions::new().write(true).create_new(true).open(file)?;
    // Sets the mode regardless of the umask.
    new.set_permissions(Permissions::from_mode(0o444))?;
    new.write_all(content.to_string().as_bytes())
}

/// Removes the file that [`write`] wrote, and the temporary file that a killed call left.
pub(crate) fn remove(file: &Path) -> io::Result<()> {
    for file in [&unfinished(file), file] {
        match fs::remove_file(file) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// The temporary name of the file.
fn unfinished(file: &Path) -> PathBuf {
    file.with_extension("rdmanet-tmp")
}

#[cfg(test)]
mod tests;
