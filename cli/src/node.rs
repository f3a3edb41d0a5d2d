// SPDX-License-Identifier: Apache-2.0
//! `rdmanet node`: shows one node in one table, which link to use as master, and what is wrong.
//!
//! ```text
//! sysfs, netlink, journal, leases ─▶ collect (NodeFacts, read once) ─▶ advice, check (pure) ─▶ show
//! ```

pub mod advice;
pub mod attachments;
pub mod check;
pub mod collect;
pub mod facts;
pub mod namespaces;
mod reader;
mod recording;
pub mod show;

use crate::args;
use crate::output::{CommandError, Outcome, Output, Severity};

/// Reads and describes the node.
///
/// # Errors
/// The node or its record cannot be read.
pub fn run(options: &args::Node) -> Result<Output, CommandError> {
    let facts = collect::collect(options)?;
    Ok(output(&facts, options.gids))
}

fn output(facts: &facts::NodeFacts, gids: bool) -> Output {
    let advice = advice::advise(facts);
    let findings = check::findings(facts, &advice);
    let wrong = findings.iter().any(|finding| finding.level == Severity::Fail);
    Output {
        text: show::text(facts, &advice, &findings, gids),
        json: show::json(facts, &advice, &findings),
        outcome: Outcome::of(wrong),
    }
}

#[cfg(test)]
mod tests;
