// SPDX-License-Identifier: Apache-2.0
//! Reads host-local (containernetworking/plugins): networks whose `ipam` section names it, and the files of its nodes,
//! `DIR/<network>/<address>`, which contain the container's ID. Its addresses are unique only on one node. If two nodes
//! have allocated the same address, both pods keep it.

use super::group::{Allocation, Group, Network, Reading, gather, networks};
use crate::answer::Failure;
use api::Range;
use ipnetwork::IpNetwork;
use kube::Client;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The type of its configurations.
pub const TYPE: &str = "host-local";

/// Reads the networks of host-local; `folders` are the data folders of its nodes (`/var/lib/cni/networks`).
///
/// # Errors
/// As [`crate::cluster::explain`], or a folder cannot be listed.
pub async fn read(client: &Client, folders: &[PathBuf]) -> Result<Reading, Failure> {
    let mut allocations: BTreeMap<String, Vec<Allocation>> = BTreeMap::new();
    for folder in folders {
        for (network, given) in stored(folder)? {
            allocations.entry(network).or_default().extend(given);
        }
    }
    let (networks, refused) = networks(client, TYPE).await?;
    let mut reading = reading(networks, allocations);
    reading.refused.extend(refused);
    reading.files = Some(folders.len());
    Ok(reading)
}

/// Interprets these networks.
pub fn reading(networks: Vec<Network>, allocations: BTreeMap<String, Vec<Allocation>>) -> Reading {
    let (groups, refused) = gather(&networks, TYPE, group);
    Reading {
        groups,
        allocations,
        networks,
        refused,
        files: Some(0),
    }
}

/// The allocations in the files of a node, by network. An empty file, as after a power loss, counts as an allocation.
fn stored(folder: &Path) -> Result<BTreeMap<String, Vec<Allocation>>, Failure> {
    let list = |dir: &Path| -> Result<Vec<PathBuf>, Failure> {
        let unread = |e| {
            Failure(format!(
                "cannot list {}: {e}; name the folder that host-local calls dataDir",
                dir.display()
            ))
        };
        let entries = std::fs::read_dir(dir).map_err(unread)?;
        entries.map(|entry| Ok(entry.map_err(unread)?.path())).collect()
    };
    let mut all: BTreeMap<String, Vec<Allocation>> = BTreeMap::new();
    for network in list(folder)?.into_iter().filter(|path| path.is_dir()) {
        let name = network
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        for file in list(&network)? {
            // The folder also has `lock` and `last_reserved_ip.0`.
            let address = file
                .file_name()
                .and_then(|name| name.to_str())
                .and_then(|name| name.parse::<IpAddr>().ok());
            all.entry(name.clone())
                .or_default()
                .extend(address.map(|address| Allocation {
                    address,
                    pod: None,
                    told_by: file.display().to_string(),
                }));
        }
    }
    Ok(all)
}

/// The group of one network. Its ranges belong to this network alone, under the name in the configuration.
fn group(network: &Network) -> Result<Group, String> {
    let config = network
        .object
        .data
        .pointer("/spec/config")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let config: Value =
        serde_json::from_str(config).map_err(|e| format!("its configuration is no JSON: {e}"))?;
    let name = config["name"]
        .as_str()
        .unwrap_or_else(|| network.plain_name())
        .to_owned();
    let ipam = &network.ipam;
    let mut sets: Vec<Vec<&Value>> = ipam["ranges"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|set| set.as_array().into_iter().flatten().collect())
        .collect();
    if ipam["subnet"].is_string() {
        sets.push(vec![ipam]);
    }
    let mut families = Vec::new();
    let mut ranges = Vec::new();
    for set in sets {
        for entry in &set {
            ranges.push(range(entry)?);
        }
        families.push(ranges.last().is_some_and(|range| range.subnet.contains(':')));
    }
    if ranges.is_empty() {
        return Err(
            "its configuration names no range (a range of runtimeConfig is each call's own)".to_owned(),
        );
    }
    families.sort_unstable();
    let count = families.len();
    families.dedup();
    if families.len() != count {
        return Err("it gives an attachment several addresses of one IP family; a pool gives one of each; make pools and networks by hand".to_owned());
    }
    Ok(Group {
        keys: vec![name],
        ranges,
        routes: super::whereabouts::routes(&ipam["routes"]),
        space: None,
        nodes: None,
        block_size: None,
        networks: vec![network.clone()],
    })
}

fn range(entry: &Value) -> Result<Range, String> {
    let text = |key: &str| {
        entry[key]
            .as_str()
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let subnet: IpNetwork = text("subnet")
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| format!("subnet {} is no network", entry["subnet"]))?;
    Ok(Range {
        subnet: format!("{}/{}", subnet.network(), subnet.prefix()),
        start: text("rangeStart"),
        end: text("rangeEnd"),
        // Without a gateway, host-local uses the first address, and so do we.
        gateway: text("gateway"),
        exclude: Vec::new(),
    })
}
