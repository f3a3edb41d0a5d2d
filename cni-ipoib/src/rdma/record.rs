// SPDX-License-Identifier: Apache-2.0
//! Records of the RDMA device of each attachment, for programs that configure themselves by it, such as by
//! `NCCL_IB_HCA`.
//!
//! One file per attachment, `rdma/CONTAINER@IFNAME.json` below the state directory: a program that knows a
//! container's id finds its devices by file name. Written before ADD answers, removed by DEL and GC.

use crate::error::Error;
use crate::intent::Grant;
use common::cni::Attachment;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// The file of an attachment.
pub fn file(state: &Path, attachment: &Attachment) -> PathBuf {
    let name = format!("{}@{}.json", attachment.container_id, attachment.ifname);
    state.join("rdma").join(name)
}

/// The content of the file; `device` is the name in the pod.
pub fn content(network: &str, attachment: &Attachment, grant: &Grant) -> Value {
    let device = grant.name_in_pod();
    json!({
        "version": 1,
        "network": network,
        "containerID": attachment.container_id.to_string(),
        "ifname": attachment.ifname.to_string(),
        "device": device,
        "port": grant.port,
        "linkLayer": grant.link_layer,
        "netns": if grant.moved().is_some() { "exclusive" } else { "shared" },
        "hostDevice": grant.device.name,
        "nodeGUID": grant.device.node_guid.to_string(),
        "pciAddress": grant.device.pci.map(|pci| pci.to_string()),
        // `=` requests an exact match: mlx5_1 is a prefix of mlx5_10.
        "ncclIbHca": format!("={device}:{}", grant.port),
    })
}

/// Removes the file of an attachment to `network`, if there is one. A readable file of another network stays: the
/// file's name has no network.
pub(crate) fn remove(state: &Path, network: &str, attachment: &Attachment) -> Result<(), Error> {
    let file = file(state, attachment);
    if network_in(&file).is_some_and(|of| of != network) {
        return Ok(());
    }
    crate::device_info::remove(&file).map_err(|source| Error::Io {
        what: "remove",
        path: file,
        remedy: "the plugin must run as root",
        source,
    })
}

/// The network that `file` names; `None` if the file is missing or damaged.
fn network_in(file: &Path) -> Option<String> {
    let record: Value = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    Some(record.get("network")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests;
