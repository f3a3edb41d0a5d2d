// SPDX-License-Identifier: Apache-2.0
//! The next step of a pool, and its description for the administrator.
//!
//! Invariant: the description of an unfinished step names what the administrator does next.

use super::annotation::{ImportRecord, closed, is_closed};
use super::source::{Network, SourceAllocation};
use api::{IpPool, IpPoolSpec};
use std::fmt::Write;

/// The most entries in `exclude` of a range (conf/crds/ippools.yaml).
pub(super) const EXCLUSIONS: usize = 32;

/// What the step does to the pool.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The pool is created, closed to all nodes.
    Create,
    /// The pool is updated.
    Write,
    /// The pool stays as it is.
    Keep,
}

/// The next step of a pool.
#[derive(Clone, Debug)]
pub struct Step {
    /// The pool.
    pub pool: String,
    /// The names that the source has for the ranges of the pool.
    pub keys: Vec<String>,
    /// The action.
    pub action: Action,
    /// The spec of the pool after the step.
    pub spec: IpPoolSpec,
    /// The record in the pool's annotation after the step.
    pub record: ImportRecord,
    /// The pool before the step.
    pub object: Option<IpPool>,
    /// Addresses of the old plugin that are still in use.
    pub in_use: Vec<SourceAllocation>,
    /// Addresses of `in_use` that the old plugin allocated after the pool was opened.
    pub late: Vec<SourceAllocation>,
    /// Addresses of the old plugin whose pods are gone.
    pub ended: Vec<SourceAllocation>,
    /// Networks that still name the old plugin.
    pub networks: Vec<Network>,
    /// Whether this step switches those networks.
    pub switch: bool,
    /// The network of the old plugin that allocates addresses of the open pool by a range of its own.
    pub overlap: Option<String>,
    /// Seconds until the pool can be opened.
    pub wait: Option<u64>,
    /// Why the controller has not accepted the spec of the pool; `None` if it has, or if there is no pool yet.
    pub unready: Option<String>,
    /// The number of addresses that are excluded besides the ones in use, because a range has a limited number of
    /// entries.
    pub rounded: u128,
}

impl Step {
    /// The state of the pool after the step.
    pub fn state(&self) -> &'static str {
        if self.spec.node_selector.as_ref() == Some(&closed()) {
            "closed"
        } else if !self.networks.is_empty() || !self.late.is_empty() || self.overlap.is_some() {
            "conflict"
        } else if self.unready.is_some() {
            "not ready"
        } else {
            "open"
        }
    }

    /// Whether the administrator or a later run still has a step to do.
    pub fn is_unfinished(&self) -> bool {
        self.state() != "open"
    }

    /// Describes the step and what comes next.
    pub fn describe(&self, dry: bool) -> String {
        let mut text = self.describe_action(dry);
        if self.rounded > 0 {
            let _ = write!(
                text,
                " {} more addresses are excluded for now, because a range has at most {EXCLUSIONS} exclusions.",
                self.rounded
            );
        }
        for one in &self.late {
            let _ = write!(
                text,
                " {} allocated {} for {} ({}) after the pool was opened; the pool excludes the address from now on.",
                self.record.source,
                one.address,
                one.pod.as_deref().unwrap_or("an unknown pod"),
                one.reported_by
            );
        }
        if let Some(why) = &self.overlap {
            let _ = write!(
                text,
                " The pool is open, and {why}. So both plugins allocate these addresses: change that network at once."
            );
        }
        for (network, owner) in self.networks.iter().filter_map(|one| Some((one, one.owner()?))) {
            let _ = write!(
                text,
                " Network {} belongs to {owner}, whose operator would undo a switch, so --switch switches no network of this pool: give {owner} the ipam section {}, or replace it by a network of your own (docs/networks.md).",
                network.name,
                self.ipam()
            );
        }
        text.push_str(&self.describe_next(dry));
        text
    }

    /// The `ipam` section of a network of the pool.
    fn ipam(&self) -> String {
        format!(r#"{{"type": "rdma-ipam", "pool": "{}"}}"#, self.pool)
    }

    /// What comes next.
    fn describe_next(&self, dry: bool) -> String {
        let names = |wanted: fn(&&Network) -> bool| -> String {
            let names = self
                .networks
                .iter()
                .filter(wanted)
                .map(|network| network.name.as_str());
            names.collect::<Vec<_>>().join(" and ")
        };
        let (all, own) = (names(|_| true), names(|network| network.owner().is_none()));
        match (self.state(), self.switch, self.wait) {
            ("closed", false, _) if !own.is_empty() => format!(
                " Next: give network {own} the ipam section {}, by hand{}; new pods then wait until the pool is open.",
                self.ipam(),
                if are_own(&self.networks) { " or with --switch" } else { "" }
            ),
            ("closed", true, _) if !own.is_empty() => format!(
                " Network {own} {} switched; new pods wait until the pool is open. Next: run this command again.",
                if dry { "would be" } else { "is" }
            ),
            ("closed", _, _) if !all.is_empty() => " Next: run this command again after that; new pods then wait until the pool is open.".to_owned(),
            ("closed", _, Some(seconds)) => format!(
                " {}; an ADD of {} may still run for {seconds} s. Next: run this command again after that time.",
                match self.record.missing_since {
                    Some(_) => "A network of the import was deleted or changed",
                    None => "Its networks are switched",
                },
                self.record.source
            ),
            ("conflict", _, _) if all.is_empty() => {
                " Next: run rdmanet check, and delete one of two pods that have one address.".to_owned()
            }
            ("conflict", switch, _) => format!(
                " Network {all} uses {} while the pool is open, so both plugins allocate its addresses{}; then run rdmanet check.",
                self.record.source,
                match switch {
                    true => ": the network is switched now",
                    false if are_own(&self.networks) => ": switch the network at once with --switch",
                    false => ": change it at once",
                }
            ),
            ("closed" | "not ready", _, _) => format!(
                " The pool is not ready: {}. Next: run this command again when its condition Ready is True.",
                self.unready.as_deref().unwrap_or_default()
            ),
            _ if self.in_use.is_empty() => format!(" Nothing of {} is left.", self.record.source),
            _ => " Next: run this command again when these pods have ended; the pool then gets their addresses.".to_owned(),
        }
    }

    fn describe_action(&self, dry: bool) -> String {
        let is = if dry { "would be " } else { "is " };
        let excluded = match self.in_use.len() {
            0 => "no address is in use".to_owned(),
            1 => "1 address in use is excluded".to_owned(),
            n => format!("{n} addresses in use are excluded"),
        };
        match (&self.action, &self.object) {
            (Action::Create, _) => format!("the pool {is}created, closed to all nodes; {excluded}."),
            (Action::Write, Some(before)) if is_closed(before) && self.state() != "closed" => {
                format!("the pool {is}opened; {excluded}.")
            }
            (Action::Write, _) => format!("the pool {is}updated; {excluded}."),
            (Action::Keep, _) => format!("nothing changes; {excluded}."),
        }
    }
}

/// Whether no operator would undo a switch of these networks. If it would for one of them, none is switched: the pods of the
/// others would wait until that one is switched too.
pub(super) fn are_own(networks: &[Network]) -> bool {
    networks.iter().all(|network| network.owner().is_none())
}
