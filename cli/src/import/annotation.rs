// SPDX-License-Identifier: Apache-2.0
//! The record of a pool's import, in an annotation.

use super::source::SourceAllocation;
use api::IpPool;
use ipam::interval::{Interval, IntervalSet};
use ipam::range::Family;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The key of the annotation, and of a label that no node has.
pub const KEY: &str = "rdmanet.io/import";

/// The annotation with the configuration of a network before it was switched.
pub const BEFORE: &str = "rdmanet.io/before-import";

/// The record of an import.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImportRecord {
    /// The name of the old IPAM plugin.
    pub source: String,
    /// The names that the old plugin has for the ranges.
    pub from: Vec<String>,
    /// The entries of `exclude` for addresses in use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_use: Vec<String>,
    /// Allocations that only files of nodes contain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from_files: Vec<SourceAllocation>,
    /// The nodes that may have addresses once the pool is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    /// The networks that named the old plugin.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub networks: BTreeSet<String>,
    /// When a run first found that one of `networks` names neither the old plugin nor the pool, by the clock of the API server. A
    /// person deleted or changed it at an unknown time before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_since: Option<Time>,
}

impl ImportRecord {
    /// The record of `pool`; `None` if the pool was not imported.
    pub fn of(pool: &IpPool) -> Option<Self> {
        serde_json::from_str(pool.annotations().get(KEY)?).ok()
    }

    /// The addresses that were in use when the record was written.
    pub fn known(&self) -> BTreeMap<Family, IntervalSet> {
        let mut all: BTreeMap<Family, Vec<Interval>> = BTreeMap::new();
        for (family, at) in self
            .in_use
            .iter()
            .filter_map(|entry| crate::interval::parse(entry))
        {
            all.entry(family).or_default().push(at);
        }
        all.into_iter()
            .map(|(family, at)| (family, at.into_iter().collect()))
            .collect()
    }
}

/// The node selector of a closed pool. It matches no node.
pub fn closed() -> LabelSelector {
    LabelSelector {
        match_labels: Some([(KEY.to_owned(), "closed".to_owned())].into()),
        match_expressions: None,
    }
}

/// Whether `pool` is still closed to all nodes.
pub fn is_closed(pool: &IpPool) -> bool {
    pool.spec.node_selector.as_ref() == Some(&closed())
}
