// SPDX-License-Identifier: Apache-2.0
//! Reads whereabouts: networks whose `ipam` section names it, `IPPool`s whose `allocations` are offsets from the first
//! address of `range`, and `OverlappingRangeIPReservation`s (whereabouts v0.9.4, `pkg/storage/kubernetes/ipam.go`,
//! `pkg/config/config.go`).

use super::source::{
    Group, Network, Refusal, SourceAllocation, SourceData, group_networks, items, networks, text,
};
use crate::args::Source;
use crate::cluster::full_name;
use crate::cluster::list_if_known;
use crate::output::CommandError;
use api::{Range, Route};
use ipam::range::{Family, bits};
use ipnetwork::IpNetwork;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The type of its configurations.
const TYPE: &str = Source::Whereabouts.name();

/// Reads the objects of whereabouts and its networks.
///
/// # Errors
/// As [`crate::cluster::explain`].
pub async fn read(client: &Client) -> Result<SourceData, CommandError> {
    let api = |kind: &str, plural: &str| -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("whereabouts.cni.cncf.io", "v1alpha1", kind);
        Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, plural))
    };
    let pools = list_if_known(&api("IPPool", "ippools"), "IPPools of whereabouts").await?;
    let reserved = list_if_known(
        &api("OverlappingRangeIPReservation", "overlappingrangeipreservations"),
        "OverlappingRangeIPReservations of whereabouts",
    )
    .await?;
    let (networks, refused) = networks(client, TYPE).await?;
    let mut data = interpret(
        networks,
        &pools.unwrap_or_default(),
        &reserved.unwrap_or_default(),
    );
    data.refused.extend(refused);
    Ok(data)
}

/// Interprets these objects.
pub fn interpret(networks: Vec<Network>, pools: &[DynamicObject], reserved: &[DynamicObject]) -> SourceData {
    let mut allocations: BTreeMap<String, Vec<SourceAllocation>> = BTreeMap::new();
    let mut damaged: BTreeMap<String, String> = BTreeMap::new();
    for pool in pools {
        match allocations_of(pool) {
            Ok(found) => allocations.entry(pool.name_any()).or_default().extend(found),
            Err(why) => {
                damaged.insert(pool.name_any(), format!("IPPool {}: {why}", full_name(pool)));
            }
        }
    }
    let (mut groups, mut refused) = group_networks(&networks, TYPE, group);
    groups.retain(|group| {
        let sentence = group.keys.iter().find_map(|key| damaged.get(key));
        if let Some(why) = sentence {
            refused.push(Refusal::new(
                format!("network {}", group.names().join(" and ")),
                why,
            ));
        }
        sentence.is_none()
    });
    let mut of_spaces: BTreeMap<String, Vec<SourceAllocation>> = BTreeMap::new();
    for (space, one) in reserved.iter().flat_map(reservations) {
        of_spaces.entry(space).or_default().push(one);
    }
    SourceData {
        groups,
        allocations,
        reserved: of_spaces,
        networks,
        refused,
        damaged,
        files: None,
    }
}

/// The allocations of a pool.
fn allocations_of(pool: &DynamicObject) -> Result<Vec<SourceAllocation>, String> {
    let range = pool
        .data
        .pointer("/spec/range")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let net: IpNetwork = range
        .parse()
        .map_err(|_| format!("spec.range {range:?} is not a network; correct it as in the network's configuration, and run this again"))?;
    let Some(entries) = pool.data.pointer("/spec/allocations") else {
        return Ok(Vec::new());
    };
    let entries = entries
        .as_object()
        .ok_or("spec.allocations is not a map; correct it, and run this again")?;
    let reported_by = format!("IPPool {}", full_name(pool));
    let one = |(offset, entry): (&String, &Value)| {
        // The offset counts from the address as it is written, host bits included.
        let number = offset
            .parse::<u64>()
            .ok()
            .and_then(|offset| bits(net.ip()).checked_add(u128::from(offset)));
        let address = number
            .map(|number| Family::of(net.ip()).address(number))
            .filter(|ip| net.contains(*ip));
        let address = address.ok_or_else(|| {
            format!("spec.allocations[{offset:?}] ({}) is not an offset in {range}; find out which address that pod has, remove the entry, and run this again", entry["podref"].as_str().unwrap_or("no podref"))
        })?;
        Ok(SourceAllocation {
            address,
            pod: entry["podref"]
                .as_str()
                .filter(|pod| pod.contains('/'))
                .map(str::to_owned),
            reported_by: reported_by.clone(),
        })
    };
    entries.iter().map(one).collect()
}

/// Parses a name such as `[network_name-]10.0.0.5` or `[network_name-]fd00--5`, and returns each reading with its address
/// space. An IPv6 address contains `-`, so a `network_name` of hexadecimal digits may be a part of it. A reading too many
/// only excludes an address.
fn reservations(object: &DynamicObject) -> Vec<(String, SourceAllocation)> {
    let name = object.name_any();
    let starts = std::iter::once(0).chain(name.match_indices('-').map(|(at, _)| at + 1));
    let address = |text: &str| text.parse().or_else(|_| text.replace('-', ":").parse()).ok();
    let pod = object.data.pointer("/spec/podref").and_then(Value::as_str);
    let readings = starts.filter_map(|start| Some((start, address(&name[start..])?)));
    let of_space = |(start, address): (usize, _)| {
        let space = name[..start].strip_suffix('-').unwrap_or("default").to_owned();
        let one = SourceAllocation {
            address,
            pod: pod.map(str::to_owned),
            reported_by: format!("OverlappingRangeIPReservation {}", full_name(object)),
        };
        (space, one)
    };
    readings.map(of_space).collect()
}

/// The group of one network.
fn group(network: &Network) -> Result<Group, String> {
    let ipam = &network.ipam;
    if !ipam["node_slice_size"].is_null() {
        return Err("it gives each node a slice (node_slice_size); create an IPPool with its range by hand once no pod uses it".to_owned());
    }
    if items(&ipam["addresses"]).next().is_some() {
        return Err(
            "it adds fixed addresses (ipam.addresses), which no allocation records; remove them first"
                .to_owned(),
        );
    }
    let space = text(ipam, "network_name");
    let mut entries: Vec<&Value> = items(&ipam["ipRanges"]).collect();
    if ipam["range"].is_string() {
        entries.push(ipam);
    }
    if entries.is_empty() {
        return Err("its configuration names no range; if whereabouts.conf on the nodes has one, write it into the network first".to_owned());
    }
    let mut parts: Vec<(String, Range)> = Vec::new();
    for entry in entries {
        parts.push(range(entry, ipam["gateway"].as_str(), space.as_deref())?);
    }
    parts.sort_by(|a, b| a.0.cmp(&b.0));
    let family = |range: &Range| range.subnet.contains(':');
    let of_v6 = parts.iter().filter(|(_, range)| family(range)).count();
    if of_v6 > 1 || parts.len() - of_v6 > 1 {
        return Err("it allocates several addresses of one IP family to an attachment, and a pool allocates one of each; create pools and networks by hand".to_owned());
    }
    let (keys, ranges) = parts.into_iter().unzip();
    Ok(Group {
        keys,
        ranges,
        routes: routes(&ipam["routes"]),
        space,
        networks: vec![network.clone()],
        ..Group::default()
    })
}

/// The name of the pool of a range, and the range.
fn range(entry: &Value, gateway: Option<&str>, space: Option<&str>) -> Result<(String, Range), String> {
    let written = entry["range"].as_str().unwrap_or_default();
    let unreadable =
        || format!("range {written:?} is not a range; write it like 10.0.0.0/16 or 10.0.0.5-10.0.0.9/16");
    let (first, rest) = match written.split_once('-') {
        Some((first, rest)) => (Some(first.trim()), rest.trim()),
        None => (None, written),
    };
    let net: IpNetwork = rest.parse().map_err(|_| unreadable())?;
    let subnet = IpNetwork::new(net.network(), net.prefix()).map_err(|_| unreadable())?;
    let start = text(entry, "range_start").or_else(|| first.map(str::to_owned));
    let end = text(entry, "range_end").or_else(|| first.map(|_| net.ip().to_string()));
    for limit in [&start, &end].into_iter().flatten() {
        let ip: IpAddr = limit
            .parse()
            .map_err(|_| format!("{limit:?} is not an address"))?;
        if !subnet.contains(ip) {
            return Err(format!("{limit} lies outside {subnet}"));
        }
    }
    let exclude: Vec<String> = items(&entry["exclude"])
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    if let Some(wrong) = exclude
        .iter()
        .find(|entry| crate::interval::parse(entry).is_none())
    {
        return Err(format!("exclude {wrong:?} is neither an address nor a network"));
    }
    // The configuration has one gateway for all ranges. It belongs to the range that contains it.
    let gateway = gateway.filter(|text| text.parse().is_ok_and(|ip| subnet.contains(ip)));
    Ok((
        key(&subnet.to_string(), space),
        Range {
            subnet: subnet.to_string(),
            start,
            end,
            gateway: Some(gateway.unwrap_or("none").to_owned()),
            exclude,
        },
    ))
}

/// The name that whereabouts gives to the pool of a range.
fn key(range: &str, space: Option<&str>) -> String {
    let plain = range.replace([':', '/'], "-");
    space.map_or_else(|| plain.clone(), |space| format!("{space}-{plain}"))
}

/// Parses routes in the format of CNI.
pub(super) fn routes(value: &Value) -> Vec<Route> {
    let one = |route: &Value| {
        Some(Route {
            dst: route["dst"].as_str()?.to_owned(),
            gw: route["gw"].as_str().map(str::to_owned),
        })
    };
    items(value).filter_map(one).collect()
}
