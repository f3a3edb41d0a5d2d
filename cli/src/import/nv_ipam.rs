// SPDX-License-Identifier: Apache-2.0
//! Reads nv-ipam (NVIDIA's `nvidia-k8s-ipam`): networks whose `ipam` section names it, its `IPPool`s, and, if entries, the
//! files in which each node stores its allocations (`/var/lib/cni/nv-ipam/store`). Without these files, the status of the
//! pods shows their addresses.

use super::source::{
    Group, Network, SourceAllocation, SourceData, absolute, group_networks, items, networks, text,
};
use crate::args::Source;
use crate::cluster::list_if_known;
use crate::output::CommandError;
use api::{Range, Route};
use ipnetwork::IpNetwork;
use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The type of its configurations.
const TYPE: &str = Source::NvIpam.name();

/// Reads the objects of nv-ipam and its networks; `files` are stores of its nodes.
///
/// # Errors
/// As [`crate::cluster::explain`], or a file cannot be read or is not one of its stores.
pub async fn read(client: &Client, files: &[PathBuf]) -> Result<SourceData, CommandError> {
    let kind = GroupVersionKind::gvk("nv-ipam.nvidia.com", "v1alpha1", "IPPool");
    let api: Api<DynamicObject> = Api::all_with(
        client.clone(),
        &ApiResource::from_gvk_with_plural(&kind, "ippools"),
    );
    let pools = list_if_known(&api, "IPPools of nv-ipam").await?;
    let mut allocations: BTreeMap<String, Vec<SourceAllocation>> = BTreeMap::new();
    let files = absolute(files)?;
    for file in &files {
        let text = std::fs::read_to_string(file)
            .map_err(|e| CommandError(format!("cannot read {}: {e}", file.display())))?;
        let origin = file.display().to_string();
        for (pool, entries) in
            parse_store(&text, &origin).map_err(|why| CommandError(format!("{origin}: {why}")))?
        {
            allocations.entry(pool).or_default().extend(entries);
        }
    }
    let (networks, refused) = networks(client, TYPE).await?;
    let mut data = interpret(networks, &pools.unwrap_or_default(), allocations);
    data.refused.extend(refused);
    data.files = Some(files);
    Ok(data)
}

/// Interprets these objects.
pub fn interpret(
    networks: Vec<Network>,
    pools: &[DynamicObject],
    allocations: BTreeMap<String, Vec<SourceAllocation>>,
) -> SourceData {
    let (groups, refused) = group_networks(&networks, TYPE, |network| group(network, pools));
    SourceData {
        groups,
        allocations,
        networks,
        refused,
        files: Some(Vec::new()),
        ..SourceData::default()
    }
}

/// The allocations in the file of a node, by pool.
fn parse_store(text: &str, origin: &str) -> Result<BTreeMap<String, Vec<SourceAllocation>>, String> {
    let root: Value = serde_json::from_str(text)
        .map_err(|e| format!("is damaged: {e}; omit the file, and the status of the pods is used instead"))?;
    let pools = root["pools"]
        .as_object()
        .ok_or("has no pools: is it the store of nv-ipam (/var/lib/cni/nv-ipam/store)?")?;
    let mut all: BTreeMap<String, Vec<SourceAllocation>> = BTreeMap::new();
    for (pool, content) in pools {
        // Since its support for dual stack, the kind may precede the name of a pool.
        let name = pool.rsplit('/').next().unwrap_or(pool).to_owned();
        for (key, entry) in content["entries"].as_object().into_iter().flatten() {
            let address = entry["ip_address"].as_str().and_then(|ip| ip.parse().ok());
            let address = address.ok_or_else(|| format!("entry {key} of pool {pool} has no address; omit the file, and the status of the pods is used instead"))?;
            let (namespace, name_of_pod) = (
                entry.pointer("/metadata/pod_namespace"),
                entry.pointer("/metadata/pod_name"),
            );
            let pod = namespace
                .and_then(Value::as_str)
                .zip(name_of_pod.and_then(Value::as_str));
            all.entry(name.clone()).or_default().push(SourceAllocation {
                address,
                pod: pod
                    .filter(|(_, name)| !name.is_empty())
                    .map(|(namespace, name)| format!("{namespace}/{name}")),
                reported_by: origin.to_owned(),
            });
        }
    }
    Ok(all)
}

/// The group of one network.
fn group(network: &Network, pools: &[DynamicObject]) -> Result<Group, String> {
    let kind = network.ipam["poolType"].as_str().unwrap_or("ippool");
    if !kind.eq_ignore_ascii_case("ippool") {
        return Err("a CIDRPool has a subnet and a gateway per node, and an IPPool of rdmanet has not; create one IPPool per subnet by hand, with a nodeSelector and a blockSize no larger than the subnet".to_owned());
    }
    let named = network.ipam["poolName"]
        .as_str()
        .unwrap_or_else(|| network.plain_name());
    let mut keys: Vec<String> = named.split(',').map(|name| name.trim().to_owned()).collect();
    keys.sort();
    let mut group = Group {
        keys: keys.clone(),
        networks: vec![network.clone()],
        ..Group::default()
    };
    for key in &keys {
        let mut found = pools.iter().filter(|pool| pool.name_any() == *key);
        let pool = found
            .next()
            .ok_or_else(|| format!("its pool {key} does not exist"))?;
        if found.next().is_some() {
            return Err(format!(
                "pool {key} exists in several namespaces; the namespace is in the configuration of nv-ipam; delete the other pool, or create the pool by hand"
            ));
        }
        add(&mut group, pool).map_err(|why| format!("IPPool {key}: {why}"))?;
    }
    Ok(group)
}

fn add(group: &mut Group, pool: &DynamicObject) -> Result<(), String> {
    let spec = &pool.data["spec"];
    let subnet: IpNetwork = text(spec, "subnet")
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| format!("spec.subnet {} is not a network", spec["subnet"]))?;
    let exclude: Vec<String> = items(&spec["exclusions"])
        .map(|one| {
            let (first, last) = (
                one["startIP"].as_str().unwrap_or_default(),
                one["endIP"].as_str().unwrap_or_default(),
            );
            let entry = if first == last {
                first.to_owned()
            } else {
                format!("{first}-{last}")
            };
            crate::interval::parse(&entry)
                .map(|_| entry.clone())
                .ok_or_else(|| format!("exclusion {entry} is not an address range"))
        })
        .collect::<Result<_, String>>()?;
    if items(&spec["perNodeExclusions"]).next().is_some() {
        return Err("spec.perNodeExclusions are relative to the blocks of nv-ipam; rdmanet has other blocks; remove them, or create the pool by hand".to_owned());
    }
    let gateway = text(spec, "gateway");
    group.ranges.push(Range {
        subnet: format!("{}/{}", subnet.network(), subnet.prefix()),
        start: None,
        end: None,
        gateway: gateway.clone().or_else(|| Some("none".to_owned())),
        exclude,
    });
    let routes = items(&spec["routes"]).filter_map(|route| route["dst"].as_str());
    group.routes.extend(routes.map(|dst| Route {
        dst: dst.to_owned(),
        gw: gateway.clone(),
    }));
    if spec["defaultGateway"] == true {
        let dst = if subnet.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
        group.routes.push(Route {
            dst: dst.to_owned(),
            gw: gateway,
        });
    }
    let size = spec["perNodeBlockSize"].as_u64().unwrap_or(1).max(1);
    group.block_size = group.block_size.max(Some(size));
    if !spec["nodeSelector"].is_null() {
        group.nodes = Some(selector(&spec["nodeSelector"])?);
    }
    Ok(())
}

/// Converts a selector of node terms into a label selector, if that can express it.
fn selector(value: &Value) -> Result<LabelSelector, String> {
    let by_hand = |what: &str| {
        format!("spec.nodeSelector {what}, which a label selector cannot express; create the pool by hand")
    };
    let selector: NodeSelector =
        serde_json::from_value(value.clone()).map_err(|e| format!("spec.nodeSelector: {e}"))?;
    let [term] = selector.node_selector_terms.as_slice() else {
        return Err(by_hand("has several terms"));
    };
    if term
        .match_fields
        .as_ref()
        .is_some_and(|fields| !fields.is_empty())
    {
        return Err(by_hand("has matchFields"));
    }
    let expressions = term.match_expressions.clone().unwrap_or_default();
    if let Some(one) = expressions
        .iter()
        .find(|one| !["In", "NotIn", "Exists", "DoesNotExist"].contains(&one.operator.as_str()))
    {
        return Err(by_hand(&format!("has the operator {}", one.operator)));
    }
    let same = expressions.into_iter().map(|one| LabelSelectorRequirement {
        key: one.key,
        operator: one.operator,
        values: one.values.filter(|values| !values.is_empty()),
    });
    Ok(LabelSelector {
        match_expressions: Some(same.collect()),
        match_labels: None,
    })
}
