// SPDX-License-Identifier: Apache-2.0
//! The networks, ranges and allocations of a source, in types that all sources share.

use super::overlap::NamedRanges;
use crate::cluster::snapshot::{config_of, definitions, ipam_of};
use crate::cluster::{full_name, last_change, list_if_known};
use crate::output::CommandError;
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
use std::path::PathBuf;

/// The data of a source.
#[derive(Clone, Debug, Default)]
pub struct SourceData {
    /// Networks that still name the source, grouped by the ranges that they share.
    pub groups: Vec<Group>,
    /// The allocations of the source, by the name of the range.
    pub allocations: BTreeMap<String, Vec<SourceAllocation>>,
    /// Addresses that the source has reserved beside its ranges, by address space.
    pub reserved: BTreeMap<String, Vec<SourceAllocation>>,
    /// Every network of the cluster.
    pub networks: Vec<Network>,
    /// Networks and pools that cannot be imported, with the reason.
    pub refused: Vec<Refusal>,
    /// Why the allocations of a range cannot be read, by the name of the range.
    pub damaged: BTreeMap<String, String>,
    /// The absolute paths of the nodes' files, or directories, that the allocations were read from; `None` if the API server has
    /// the allocations.
    pub files: Option<Vec<PathBuf>>,
}

/// Networks that allocate from the same ranges.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// The names that the source has for the ranges, in order.
    pub keys: Vec<String>,
    /// The ranges, without the addresses of running pods in `exclude`.
    pub ranges: Vec<Range>,
    /// Routes for every attachment.
    pub routes: Vec<Route>,
    /// The address space; `None` for the default one.
    pub space: Option<String>,
    /// The nodes that may have addresses.
    pub nodes: Option<LabelSelector>,
    /// The number of addresses in a node's part, if the source has such parts.
    pub block_size: Option<u64>,
    /// The networks.
    pub networks: Vec<Network>,
}

/// The annotation that the SR-IOV network operator gives to its networks (`pkg/consts/constants.go: OwnerRefAnnotation`).
const SRIOV_OWNER: &str = "sriovnetwork.openshift.io/owner-ref";

/// A network attachment definition.
#[derive(Clone, Debug)]
pub struct Network {
    /// `namespace/name`.
    pub name: String,
    /// The object.
    pub object: DynamicObject,
    /// The first `ipam` section of its configuration.
    pub ipam: Value,
    /// The time of its last change; `None` if the API server does not report it.
    pub changed: Option<Timestamp>,
}

/// An address that the source has allocated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceAllocation {
    /// The address.
    pub address: IpAddr,
    /// `namespace/name` of the pod, if the source knows it.
    pub pod: Option<String>,
    /// Where the allocation was read.
    pub reported_by: String,
}

/// The absolute form of paths on the command line, so that a later run in another directory recognizes them.
///
/// # Errors
/// A path is empty, or the current directory is unknown.
pub fn absolute(paths: &[PathBuf]) -> Result<Vec<PathBuf>, CommandError> {
    let absolute = |path: &PathBuf| {
        std::path::absolute(path).map_err(|e| CommandError(format!("--from {}: {e}", path.display())))
    };
    paths.iter().map(absolute).collect()
}

/// A network or pool that cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// The network or pool.
    pub subject: String,
    /// The reason and the remedy.
    pub reason: String,
}

impl Refusal {
    /// `subject` is not imported because of `reason`.
    pub fn new(subject: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            subject: subject.into(),
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not imported: {}", self.subject, self.reason)
    }
}

impl Network {
    /// The network of `definition`; `None` if its configuration cannot be parsed, or none of its plugins has an `ipam`
    /// section.
    pub fn of(definition: DynamicObject) -> Option<Self> {
        let ipam = ipam_of(&definition)?;
        let changed = last_change(&definition);
        Some(Self {
            name: full_name(&definition),
            ipam,
            changed: changed.or_else(|| definition.creation_timestamp().map(|time| time.0)),
            object: definition,
        })
    }

    /// Kind and name of the object whose operator writes this network; `None` if there is none.
    ///
    /// Source: NVIDIA's network operator sets a controller reference and renders the network again (`pkg/state/state_skel.go:
    /// createOrUpdateObjs`). The SR-IOV network operator sets its annotation, or a reference that names no controller, and
    /// restores each change at once (`controllers/generic_network_controller.go: Reconcile`).
    pub fn owner(&self) -> Option<String> {
        let mut references = self.object.owner_references().iter();
        let owner = references.find(|owner| {
            owner.controller == Some(true) || owner.api_version.starts_with("sriovnetwork.openshift.io/")
        });
        let owner = owner.map(|owner| format!("{} {}", owner.kind, owner.name));
        owner.or_else(|| {
            // For example `SriovNetwork.sriovnetwork.openshift.io/namespace/name`.
            let (kind, name) = self.object.annotations().get(SRIOV_OWNER)?.split_once('/')?;
            Some(format!("{} {name}", kind.split('.').next().unwrap_or(kind)))
        })
    }

    /// Its name without the namespace.
    pub fn plain_name(&self) -> &str {
        self.name
            .split_once('/')
            .map_or(self.name.as_str(), |(_, name)| name)
    }
}

/// All networks of the cluster with an IPAM plugin, and a refusal for each unreadable one that seems to use `source`.
///
/// # Errors
/// As [`crate::cluster::explain`].
pub async fn networks(client: &Client, source: &str) -> Result<(Vec<Network>, Vec<Refusal>), CommandError> {
    let all = list_if_known(&definitions(client), "NetworkAttachmentDefinitions").await?;
    let all = all.unwrap_or_default();
    let refused = all
        .iter()
        .filter_map(|definition| unreadable(definition, source))
        .collect();
    Ok((all.into_iter().filter_map(Network::of).collect(), refused))
}

fn unreadable(definition: &DynamicObject, source: &str) -> Option<Refusal> {
    let text = config_of(definition)?;
    let error = serde_json::from_str::<Value>(text).err()?;
    text.contains(source).then(|| {
        Refusal::new(
            format!("network {}", full_name(definition)),
            format!("its configuration is not JSON: {error}"),
        )
    })
}

/// The text of a member of an object of a source; `None` if it is absent, empty, or of another type.
pub(super) fn text(object: &Value, key: &str) -> Option<String> {
    let text = object[key].as_str().filter(|text| !text.is_empty());
    text.map(str::to_owned)
}

/// The items of a list of a source; none if `value` is not a list.
pub(super) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Reads each network of a source with `group`. Returns the groups and the networks that cannot be imported.
pub fn group_networks(
    networks: &[Network],
    source: &str,
    group: impl Fn(&Network) -> Result<Group, String>,
) -> (Vec<Group>, Vec<Refusal>) {
    let (mut found, mut refused) = (Vec::new(), Vec::new());
    for network in networks.iter().filter(|network| network.ipam["type"] == source) {
        match group(network) {
            Ok(group) => found.push(group),
            Err(why) => refused.push(Refusal::new(format!("network {}", network.name), why)),
        }
    }
    let groups = merge_groups(found, &mut refused);
    (groups, refused)
}

/// Merges networks with the same ranges. Refuses networks that share only some ranges, or have different settings for one
/// range.
fn merge_groups(all: Vec<Group>, refused: &mut Vec<Refusal>) -> Vec<Group> {
    let mut groups: Vec<(Group, Option<String>)> = Vec::new();
    for one in all {
        let Some((group, conflict)) = groups.iter_mut().find(|(group, _)| group.keys == one.keys) else {
            groups.push((one, None));
            continue;
        };
        if settings(group) != settings(&one) {
            *conflict = Some("their ranges, gateways, routes or exclusions differ; make them equal, or create the pools by hand".to_owned());
        }
        group.networks.extend(one.networks);
    }
    let keys: Vec<Vec<String>> = groups.iter().map(|(group, _)| group.keys.clone()).collect();
    for (group, conflict) in &mut groups {
        let shares =
            |other: &Vec<String>| *other != group.keys && other.iter().any(|key| group.keys.contains(key));
        if keys.iter().any(shares) {
            *conflict = Some(
                "another network has some of these ranges but not all; create the pools by hand".to_owned(),
            );
        }
    }
    let mut kept = Vec::new();
    for (group, conflict) in groups {
        match conflict {
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

    /// The name of its address space.
    pub fn space(&self) -> &str {
        self.space.as_deref().unwrap_or("default")
    }

    /// Its ranges, to compare them with others.
    pub(super) fn named_ranges(&self) -> NamedRanges<'_> {
        NamedRanges {
            name: format!("network {}", self.names().join(" and ")),
            space: self.space(),
            ranges: &self.ranges,
        }
    }
}

/// The settings of a group, for comparison.
fn settings(group: &Group) -> Value {
    serde_json::json!([group.ranges, group.routes, group.space, group.nodes])
}
