// SPDX-License-Identifier: Apache-2.0
//! Whether a pool has a block for each node that it selects.
//!
//! A node without a block of its own takes each address from a block of another node, by a request to the API server.
//!
//! Invariant: the numbers of a finding are those of the spec in force. The count of nodes is at most `--report-interval` old.

use super::Leader;
use super::status::{ConditionState, condition};
use api::accepted_pool::AcceptedPool;
use api::block_layout::BlockLayout;
use api::pool::condition::FEW_BLOCKS;
use api::pool::reason;
use ipam::range::Family;
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The number of nodes that each pool selects, with the number of the spec and the time of the count. Counting compares a
/// selector with the labels of all nodes.
#[derive(Default)]
pub(super) struct NodeCounts(HashMap<String, (i64, Instant, u128)>);

impl NodeCounts {
    /// Forgets a pool.
    pub(super) fn forget(&mut self, pool: &str) {
        self.0.remove(pool);
    }

    /// The number of nodes for the spec in force, counted again if the last count is older than `max_age`.
    fn of(&mut self, accepted: &AcceptedPool, max_age: Duration, count: impl FnOnce() -> u128) -> u128 {
        let name = accepted.name.as_str();
        let known = self.0.get(name);
        if let Some((_, _, nodes)) =
            known.filter(|(number, at, _)| *number == accepted.generation && at.elapsed() < max_age)
        {
            return *nodes;
        }
        let nodes = count();
        self.0
            .insert(name.to_owned(), (accepted.generation, Instant::now(), nodes));
        nodes
    }
}

impl Leader {
    /// What [`few_blocks`] finds; none before the API server has sent any Node.
    pub(super) fn compare_with_nodes(&mut self, accepted: &AcceptedPool) -> Option<ConditionState> {
        let caches = self.caches.clone().filter(|caches| !caches.nodes.is_empty())?;
        let nodes = self
            .node_counts
            .of(accepted, self.context.config.daemon.report_interval, || {
                let all = caches.nodes.state();
                let Some(selector) = accepted.spec.node_selector.clone() else {
                    return all.len() as u128;
                };
                // If a selector cannot be parsed, it selects nothing. Agents treat it the same way.
                Selector::try_from(selector).map_or(0, |selector| {
                    let selected = all.iter().filter(|node| selector.matches(node.labels()));
                    selected.count() as u128
                })
            });
        Some(few_blocks(accepted, nodes))
    }
}

/// The condition [`FEW_BLOCKS`] of a pool that selects this many `nodes`.
fn few_blocks(accepted: &AcceptedPool, nodes: u128) -> ConditionState {
    let short = accepted.layouts.iter().filter(|layout| layout.blocks() < nodes);
    let Some(layout) = short
        .min_by_key(|layout| layout.blocks())
        .filter(|_| accepted.has_blocks())
    else {
        return condition(FEW_BLOCKS, false, reason::NONE, "");
    };
    let (blocks, size) = (layout.blocks(), 1_u128 << layout.shift());
    let family = layout.family();
    let consequence = if accepted.spec.fallback.is_empty() {
        "ask the API server for each address"
    } else {
        "use the pools of spec.fallback"
    };
    let message = format!(
        "spec.ranges have {blocks} {family} blocks of {size} addresses, and the pool selects {nodes} nodes, so {} nodes have no block of their own and {consequence}; {}",
        nodes - blocks,
        remedy(accepted, layout, nodes)
    );
    condition(FEW_BLOCKS, true, reason::FEWER_BLOCKS_THAN_NODES, &message)
}

fn remedy(accepted: &AcceptedPool, layout: &BlockLayout, nodes: u128) -> String {
    let selector = if accepted.spec.node_selector.is_none() {
        "set spec.nodeSelector to the nodes that need addresses"
    } else {
        "narrow spec.nodeSelector to the nodes that need addresses"
    };
    // Blocks of this size are enough, since each but the first and last of a range is full.
    let enough = layout.addresses() / nodes;
    let member = match layout.family() {
        Family::V4 => "v4",
        Family::V6 => "v6",
    };
    match enough.checked_ilog2() {
        Some(shift) => format!(
            "{selector}, add a range, or make a new pool with blockSize.{member}: {}",
            1_u128 << shift
        ),
        None => format!(
            "{selector}, or add a range: there are {} addresses",
            layout.addresses()
        ),
    }
}

#[cfg(test)]
mod tests;
