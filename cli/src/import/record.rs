// SPDX-License-Identifier: Apache-2.0
//! What a pool remembers of its move, in an annotation.

use super::group::Allocation;
use api::IpPool;
use ipam::interval::{Interval, IntervalSet};
use ipam::range::Family;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The annotation, and the label that no node has.
pub const KEY: &str = "rdmanet.io/import";

/// What a network's configuration was before it was switched.
pub const BEFORE: &str = "rdmanet.io/before-import";

/// What a pool remembers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The old system.
    pub source: String,
    /// What that called the ranges.
    pub from: Vec<String>,
    /// The entries of `exclude` that stand for living pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub living: Vec<String>,
    /// What files of nodes said of them, which nobody else may know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub told: Vec<Allocation>,
    /// The nodes that may have addresses once the pool is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
}

impl Record {
    /// What `pool` remembers; none if it did not move in.
    pub fn of(pool: &IpPool) -> Option<Self> {
        serde_json::from_str(pool.annotations().get(KEY)?).ok()
    }

    /// The addresses that stood for living pods when it was written.
    pub fn known(&self) -> BTreeMap<Family, IntervalSet> {
        let mut all: BTreeMap<Family, Vec<Interval>> = BTreeMap::new();
        for (family, at) in self
            .living
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

/// The selector of a pool that no node may have.
pub fn closed() -> LabelSelector {
    LabelSelector {
        match_labels: Some([(KEY.to_owned(), "closed".to_owned())].into()),
        match_expressions: None,
    }
}

/// Whether no node may have `pool` yet.
pub fn is_closed(pool: &IpPool) -> bool {
    pool.spec.node_selector.as_ref() == Some(&closed())
}
