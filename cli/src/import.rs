// SPDX-License-Identifier: Apache-2.0
//! `rdmanet import`: imports the pools of another IPAM plugin while their pods keep running.
//!
//! ```text
//! source (CRs, networks, files) ─▶ Reading ─┐
//! our pools, pods ───────────────▶ Snapshot ┴─▶ plan (pure): steps ─▶ apply
//! ```
//!
//! A pool is imported in three steps. Each run of this command finds out which step is next:
//! 1. The pool is created *closed*, so no node may use it. The addresses in use are excluded.
//! 2. The networks that use it are switched to it. A pod that starts now waits.
//! 3. Once no network names the old plugin and its last ADD must have ended, the addresses in use are read again and the
//!    pool is opened. From then on, each run returns the addresses of ended pods to the pool.
//!
//! Invariant: the two plugins never allocate from one range at the same time.
//!
//! Invariant: nothing of the old plugin is changed.
//!
//! Input that cannot be parsed is reported and not imported. Each step can be repeated.

pub mod apply;
pub mod group;
pub mod host_local;
pub mod living;
pub mod nv_ipam;
pub mod plan;
pub mod record;
pub mod whereabouts;

use crate::answer::{Answer, Failure, Outcome};
use crate::args::{Import, Source};
use crate::cluster::snapshot::Snapshot;
use crate::table::{Table, wrapped};
use group::Reading;
use kube::Client;
use plan::{Outlook, Step, plan};
use serde_json::{Value, json};
use std::fmt::Write;

/// Does the next step of every pool that is imported.
///
/// # Errors
/// The cluster does not respond, or a pool has changed in between.
pub async fn run(client: &Client, options: &Import) -> Result<Answer, Failure> {
    let mut reading = match options.source {
        Source::Whereabouts => whereabouts::read(client).await?,
        Source::NvIpam => nv_ipam::read(client, &options.files).await?,
        Source::HostLocal => host_local::read(client, &options.files).await?,
    };
    let snapshot = Snapshot::read(client).await?;
    let outlook = Outlook {
        source: options.source.name(),
        grace: std::time::Duration::from_secs(options.grace),
        now: k8s_openapi::jiff::Timestamp::now(),
        switch: options.switch,
    };
    let (steps, refused) = plan(&reading, &snapshot, &outlook);
    reading.refused.extend(refused);
    if !options.dry_run {
        for step in &steps {
            apply::apply(client, step).await?;
        }
    }
    Ok(answer(&reading, &steps, options))
}

fn answer(reading: &Reading, steps: &[Step], options: &Import) -> Answer {
    let mut table = Table::new(&["POOL", "FROM", "STATE", "LIVING", "ENDED", "NETWORKS"]);
    for step in steps {
        table.row([
            step.pool.clone(),
            step.keys.join(", "),
            step.state().to_owned(),
            step.living.len().to_string(),
            step.ended.len().to_string(),
            step.networks
                .iter()
                .map(|network| network.name.clone())
                .collect::<Vec<_>>()
                .join(", "),
        ]);
    }
    let mut text = if table.is_empty() {
        format!("nothing of {} is left to move in\n", options.source.name())
    } else {
        table.render()
    };
    for step in steps {
        let _ = write!(
            text,
            "\n{}: {}",
            step.pool,
            wrapped(&step.tell(options.dry_run), 2, 110)
        );
        text.push('\n');
    }
    for refusal in &reading.refused {
        let _ = writeln!(text, "\nFAIL  {}", wrapped(&refusal.to_string(), 6, 110));
    }
    if options.dry_run {
        text.push_str("\nThis was a dry run: nothing is changed.\n");
    }
    let left = !reading.refused.is_empty() || steps.iter().any(Step::is_unfinished);
    Answer {
        text,
        json: json!({
            "version": 1, "source": options.source.name(), "dryRun": options.dry_run, "pools": steps.iter().map(json_step).collect::<Vec<_>>(),
            "refused": reading.refused.iter().map(ToString::to_string).collect::<Vec<_>>(),
        }),
        outcome: if left { Outcome::Found } else { Outcome::Fine },
    }
}

fn json_step(step: &Step) -> Value {
    json!({
        "pool": step.pool, "from": step.keys, "state": step.state(), "tell": step.tell(false),
        "living": step.living, "ended": step.ended,
        "networks": step.networks.iter().map(|network| &network.name).collect::<Vec<_>>(),
        "spec": step.spec,
    })
}

#[cfg(test)]
mod tests;
