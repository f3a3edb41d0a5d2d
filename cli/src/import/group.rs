// SPDX-License-Identifier: Apache-2.0
//! What a source has, in words that all sources share.

use crate::answer::Failure;
use crate::cluster::list_if_known;
use crate::cluster::snapshot::{definitions, ipam_of};
use api::{Range, Route};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use kube::{Client, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// Everything that a source has.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Networks that still name the source, by the ranges that they share.
    pub groups: Vec<Group>,
    /// What the source says is given, by the name of the range.
    pub allocations: BTreeMap<String, Vec<Allocation>>,
    /// Every network of the cluster.
    pub networks: Vec<Network>,
    /// What cannot be moved in, with the reason.
    pub refused: Vec<Refusal>,
    /// From how many files of nodes the allocations were read; none where the API server has them.
    pub files: Option<usize>,
}

/// Networks that take their addresses from the same ranges.
#[derive(Clone, Debug)]
pub struct Group {
    /// The names that the source has for the ranges, in order.
    pub keys: Vec<String>,
    /// The ranges, without any living pod's address in `exclude`.
    pub ranges: Vec<Range>,
    /// Routes for every attachment.
    pub routes: Vec<Route>,
    /// The address space; none for the usual one.
    pub space: Option<String>,
    /// The nodes that may have addresses.
    pub nodes: Option<LabelSelector>,
    /// The addresses of a node's part, where the source has such.
    pub block_size: Option<u64>,
    /// The networks.
    pub networks: Vec<Network>,
}

/// A network attachment definition.
#[derive(Clone, Debug)]
pub struct Network {
    /// `namespace/name`.
    pub name: String,
    /// The object.
    pub object: DynamicObject,
    /// The first `ipam` section of its configuration.
    pub ipam: Value,
    /// When it was changed last; none if the API server does not tell.
    pub changed: Option<Timestamp>,
}

/// An address that the source says is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Allocation {
    /// The address.
    pub address: IpAddr,
    /// `namespace/name` of the pod, if the source knows it.
    pub pod: Option<String>,
    /// Who says so.
    pub told_by: String,
}

/// Something that cannot be moved in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// What.
    pub what: String,
    /// Why, and what to do.
    pub why: String,
}

impl Refusal {
    /// `what` is not moved in because of `why`.
    pub fn new(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            why: why.into(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not moved in: {}", self.what, self.why)
    }
}

impl Network {
    /// The network of `definition`; none if its configuration cannot be read, or no plugin of it has an `ipam` section.
    pub fn of(definition: DynamicObject) -> Option<Self> {
        let ipam = ipam_of(&definition)?;
        let fields = definition.metadata.managed_fields.iter().flatten();
        let changed = fields
            .filter_map(|field| field.time.as_ref())
            .map(|time| time.0)
            .max();
        Some(Self {
            name: format!(
                "{}/{}",
                definition.namespace().unwrap_or_default(),
                definition.name_any()
            ),
            ipam,
            changed: changed.or_else(|| definition.creation_timestamp().map(|time| time.0)),
            object: definition,
        })
    }

    /// Its name without the namespace.
    pub fn plain_name(&self) -> &str {
        self.name
            .split_once('/')
            .map_or(self.name.as_str(), |(_, name)| name)
    }
}

/// Every network of the cluster that has an IPAM plugin, and a refusal for each that cannot be read and seems to be of `source`.
///
/// # Errors
/// As [`crate::cluster::explain`].
pub async fn networks(client: &Client, source: &str) -> Result<(Vec<Network>, Vec<Refusal>), Failure> {
    let all = list_if_known(&definitions(client), "NetworkAttachmentDefinitions").await?;
    let all = all.unwrap_or_default();
    let refused = all
        .iter()
        .filter_map(|definition| unreadable(definition, source))
        .collect();
    Ok((all.into_iter().filter_map(Network::of).collect(), refused))
}

fn unreadable(definition: &DynamicObject, source: &str) -> Option<Refusal> {
    let text = definition.data.pointer("/spec/config").and_then(Value::as_str)?;
    let error = serde_json::from_str::<Value>(text).err()?;
    text.contains(source).then(|| {
        let name = format!(
            "{}/{}",
            definition.namespace().unwrap_or_default(),
            definition.name_any()
        );
        Refusal::new(
            format!("network {name}"),
            format!("its configuration is no JSON: {error}"),
        )
    })
}

/// What the networks of a source want, as `group` reads each of them, and which of them cannot be moved in.
pub fn gather(
    networks: &[Network],
    source: &str,
    group: impl Fn(&Network) -> Result<Group, String>,
) -> (Vec<Group>, Vec<Refusal>) {
    let (mut wanted, mut refused) = (Vec::new(), Vec::new());
    for network in networks.iter().filter(|network| network.ipam["type"] == source) {
        match group(network) {
            Ok(group) => wanted.push(group),
            Err(why) => refused.push(Refusal::new(format!("network {}", network.name), why)),
        }
    }
    let groups = together(wanted, &mut refused);
    (groups, refused)
}

/// Puts networks with the same ranges together, and refuses those that share only some, or want different things of one range.
fn together(all: Vec<Group>, refused: &mut Vec<Refusal>) -> Vec<Group> {
    let mut groups: Vec<(Group, Option<String>)> = Vec::new();
    for one in all {
        let Some((group, trouble)) = groups.iter_mut().find(|(group, _)| group.keys == one.keys) else {
            groups.push((one, None));
            continue;
        };
        if wants(group) != wants(&one) {
            *trouble = Some("they want different parts of it, or different gateways, routes or exclusions; make them the same, or make pools by hand".to_owned());
        }
        group.networks.extend(one.networks);
    }
    let keys: Vec<Vec<String>> = groups.iter().map(|(group, _)| group.keys.clone()).collect();
    for (group, trouble) in &mut groups {
        let shares =
            |other: &Vec<String>| *other != group.keys && other.iter().any(|key| group.keys.contains(key));
        if keys.iter().any(shares) {
            *trouble = Some(
                "another network has some of these ranges and not all of them; make pools by hand".to_owned(),
            );
        }
    }
    let mut kept = Vec::new();
    for (group, trouble) in groups {
        match trouble {
            None => kept.push(group),
            Some(why) => refused.push(Refusal::new(
                format!("{} of {}", group.keys.join(", "), group.names().join(" and ")),
                why,
            )),
        }
    }
    kept
}

impl Group {
    /// The names of its networks.
    pub fn names(&self) -> Vec<&str> {
        self.networks
            .iter()
            .map(|network| network.name.as_str())
            .collect()
    }
}

/// What a group asks of its ranges, to be compared.
fn wants(group: &Group) -> Value {
    serde_json::json!([group.ranges, group.routes, group.space, group.nodes])
}
