// SPDX-License-Identifier: Apache-2.0
//! Reads host-local (containernetworking/plugins): networks whose `ipam` section names it, and the files of its nodes,
//! `DIR/<network>/<address>`, which contain the container's ID. Its addresses are unique only on one node. If two nodes
//! have allocated the same address, both pods keep it.

use super::source::{
    Group, Network, SourceAllocation, SourceData, absolute, group_networks, items, networks, text,
};
use crate::args::Source;
use crate::cluster::snapshot::config_of;
use crate::output::CommandError;
use api::Range;
use ipnetwork::IpNetwork;
use kube::Client;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The type of its configurations.
const TYPE: &str = Source::HostLocal.name();

/// Reads the networks of host-local; `directories` are the data directories of its nodes (`/var/lib/cni/networks`).
///
/// # Errors
/// As [`crate::cluster::explain`], or a directory cannot be listed.
pub async fn read(client: &Client, directories: &[PathBuf]) -> Result<SourceData, CommandError> {
    let mut allocations: BTreeMap<String, Vec<SourceAllocation>> = BTreeMap::new();
    let directories = absolute(directories)?;
    for directory in &directories {
        for (network, found) in read_directory(directory)? {
            allocations.entry(network).or_default().extend(found);
        }
    }
    let (networks, refused) = networks(client, TYPE).await?;
    let mut data = interpret(networks, allocations);
    data.refused.extend(refused);
    data.files = Some(directories);
    Ok(data)
}

/// Interprets these networks.
pub fn interpret(networks: Vec<Network>, allocations: BTreeMap<String, Vec<SourceAllocation>>) -> SourceData {
    let (groups, refused) = group_networks(&networks, TYPE, group);
    SourceData {
        groups,
        allocations,
        networks,
        refused,
        files: Some(Vec::new()),
        ..SourceData::default()
    }
}

/// The allocations in the files of a node, by network. An empty file, as after a power loss, counts as an allocation.
fn read_directory(directory: &Path) -> Result<BTreeMap<String, Vec<SourceAllocation>>, CommandError> {
    let list = |dir: &Path| -> Result<Vec<PathBuf>, CommandError> {
        let cannot_list = |e| {
            CommandError(format!(
                "cannot list {}: {e}; --from takes the dataDir of host-local",
                dir.display()
            ))
        };
        let entries = std::fs::read_dir(dir).map_err(cannot_list)?;
        entries
            .map(|entry| Ok(entry.map_err(cannot_list)?.path()))
            .collect()
    };
    let mut all: BTreeMap<String, Vec<SourceAllocation>> = BTreeMap::new();
    for network in list(directory)?.into_iter().filter(|path| path.is_dir()) {
        let name = network
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        for file in list(&network)? {
            // The directory also has `lock` and `last_reserved_ip.0`.
            let address = file
                .file_name()
                .and_then(|name| name.to_str())
                .and_then(|name| name.parse::<IpAddr>().ok());
            all.entry(name.clone())
                .or_default()
                .extend(address.map(|address| SourceAllocation {
                    address,
                    pod: None,
                    reported_by: file.display().to_string(),
                }));
        }
    }
    Ok(all)
}

/// The group of one network. Its ranges belong to this network alone, under the name in the configuration.
fn group(network: &Network) -> Result<Group, String> {
    let config = config_of(&network.object).unwrap_or_default();
    let config: Value =
        serde_json::from_str(config).map_err(|e| format!("its configuration is not JSON: {e}"))?;
    let name = config["name"]
        .as_str()
        .unwrap_or_else(|| network.plain_name())
        .to_owned();
    let ipam = &network.ipam;
    let mut sets: Vec<Vec<&Value>> = items(&ipam["ranges"]).map(|set| items(set).collect()).collect();
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
        return Err("it allocates several addresses of one IP family to an attachment, and a pool allocates one of each; create pools and networks by hand".to_owned());
    }
    Ok(Group {
        keys: vec![name],
        ranges,
        routes: super::whereabouts::routes(&ipam["routes"]),
        networks: vec![network.clone()],
        ..Group::default()
    })
}

fn range(entry: &Value) -> Result<Range, String> {
    let subnet: IpNetwork = text(entry, "subnet")
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| format!("subnet {} is not a network", entry["subnet"]))?;
    Ok(Range {
        subnet: format!("{}/{}", subnet.network(), subnet.prefix()),
        start: text(entry, "rangeStart"),
        end: text(entry, "rangeEnd"),
        // Without a gateway, host-local uses the first address, and so do we.
        gateway: text(entry, "gateway"),
        exclude: Vec::new(),
    })
}
