// SPDX-License-Identifier: Apache-2.0
//! The GUIDs that a device uses now, read from its directory in sysfs. A pod cannot change them.

use common::rdma::Guid;
use std::fs;
use std::net::Ipv6Addr;
use std::path::Path;

/// The GUID of the first RDMA device of the device at `path`.
pub(super) fn node_guid(path: &Path) -> Option<Guid> {
    let directory = path.join("infiniband");
    let name = names(&directory).into_iter().next()?;
    let text = fs::read_to_string(directory.join(name).join("node_guid")).ok()?;
    text.trim().parse().ok()
}

/// Whether a port of the device at `path` has `guid`, by the first entry of its GID table.
pub(crate) fn has_port(path: &Path, guid: Guid) -> bool {
    let devices = path.join("infiniband");
    let mut ports = names(&devices).into_iter().flat_map(|name| {
        let ports = devices.join(name).join("ports");
        names(&ports).into_iter().map(move |number| ports.join(number))
    });
    ports.any(|port| {
        let text = fs::read_to_string(port.join("gids/0")).unwrap_or_default();
        let first = text.trim().parse::<Ipv6Addr>();
        first.is_ok_and(|first| first.octets()[8..] == guid.0.to_be_bytes())
    })
}

/// The names in a directory, sorted; empty if it cannot be read.
pub(super) fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
