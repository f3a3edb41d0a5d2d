// SPDX-License-Identifier: Apache-2.0
//! `rdmanet import`: imports the pools of another IPAM plugin while their pods keep running.
//!
//! ```text
//! source (CRs, networks, files) ─▶ SourceData ─┐
//! our pools, pods ───────────────▶ Snapshot ┴─▶ plan (pure): steps ─▶ apply
//! ```
//!
//! A pool is imported in three steps. Each run of this command finds out which step is next:
//! 1. The pool is created *closed*, so no node may use it. The addresses in use are excluded.
//! 2. The networks that use it are switched to it. A pod that starts now waits.
//! 3. Once no network names the old plugin and its last ADD must have ended, the addresses in use are read again and the
//!    pool is opened. From then on, each run returns the addresses of ended pods to the pool.
//!
//! Invariant: the two plugins never allocate from one range at the same time, if no ADD of the old plugin lasts longer than
//! the option `--grace`.
//!
//! Invariant: nothing of the old plugin is changed.
//!
//! Input that cannot be parsed is reported and not imported. So is a pool whose step the API server refuses, and the
//! other pools go on. Each step can be repeated.

pub mod annotation;
pub mod apply;
pub mod host_local;
pub mod in_use;
pub mod nv_ipam;
pub mod overlap;
pub mod plan;
pub mod source;
pub mod step;
pub mod whereabouts;

use crate::args::{Import, Source};
use crate::cluster::server_time;
use crate::cluster::snapshot::Snapshot;
use crate::output::{CommandError, Outcome, Output};
use crate::table::{Table, wrapped};
use kube::Client;
use plan::{PlanOptions, plan};
use serde_json::{Value, json};
use source::{Refusal, SourceData};
use std::fmt::Write;
use step::{Action, Step};

/// Does the next step of every pool that is imported.
///
/// # Errors
/// The cluster does not respond.
pub async fn run(client: &Client, options: &Import) -> Result<Output, CommandError> {
    // An ADD that has ended by now has left its allocation in what is read afterwards.
    let now = server_time(client).await?;
    let mut data = match options.source {
        Source::Whereabouts => whereabouts::read(client).await?,
        Source::NvIpam => nv_ipam::read(client, &options.files).await?,
        Source::HostLocal => host_local::read(client, &options.files).await?,
    };
    let snapshot = Snapshot::read(client).await?;
    let outlook = PlanOptions {
        source: options.source.name(),
        grace: std::time::Duration::from_secs(options.grace),
        now,
        switch: options.switch,
    };
    let (mut steps, refused) = plan(&data, &snapshot, &outlook);
    data.refused.extend(refused);
    if !options.dry_run {
        let refused;
        (steps, refused) = apply_all(client, steps).await?;
        data.refused.extend(refused);
    }
    Ok(answer(&data, &steps, options))
}

/// Applies the steps. Returns those that were done, and the reasons for the others.
async fn apply_all(client: &Client, steps: Vec<Step>) -> Result<(Vec<Step>, Vec<Refusal>), CommandError> {
    let (mut done, mut refused) = (Vec::new(), Vec::new());
    for mut step in steps {
        match apply_one(client, &mut step).await {
            Ok(()) => done.push(step),
            Err(why) => {
                // Without a response, no other step can be done.
                server_time(client).await?;
                refused.push(Refusal::new(format!("pool {}", step.pool), why.to_string()));
            }
        }
    }
    Ok((done, refused))
}

async fn apply_one(client: &Client, step: &mut Step) -> Result<(), CommandError> {
    apply::apply(client, step).await?;
    if step.action == Action::Write && step.state() != "closed" {
        step.unready = apply::wait_accepted(client, &step.pool).await?;
    }
    Ok(())
}

fn answer(data: &SourceData, steps: &[Step], options: &Import) -> Output {
    let mut table = Table::new(&["POOL", "FROM", "STATE", "IN USE", "ENDED", "NETWORKS"]);
    for step in steps {
        table.row([
            step.pool.clone(),
            step.keys.join(", "),
            step.state().to_owned(),
            step.in_use.len().to_string(),
            step.ended.len().to_string(),
            step.networks
                .iter()
                .map(|network| network.name.clone())
                .collect::<Vec<_>>()
                .join(", "),
        ]);
    }
    let mut text = if table.is_empty() && data.refused.is_empty() {
        format!("nothing of {} is left to import\n", options.source.name())
    } else {
        table.render()
    };
    for step in steps {
        let _ = write!(
            text,
            "\n{}: {}",
            step.pool,
            wrapped(&step.describe(options.dry_run), 2, 110)
        );
        text.push('\n');
    }
    for refusal in &data.refused {
        let _ = writeln!(text, "\nFAIL  {}", wrapped(&refusal.to_string(), 6, 110));
    }
    if options.dry_run {
        text.push_str("\nDry run: nothing was changed.\n");
    }
    let is_unfinished = !data.refused.is_empty() || steps.iter().any(Step::is_unfinished);
    Output {
        text,
        json: json!({
            "version": 1, "source": options.source.name(), "dryRun": options.dry_run, "pools": steps.iter().map(|step| json_step(step, options.dry_run)).collect::<Vec<_>>(),
            "refused": data.refused.iter().map(ToString::to_string).collect::<Vec<_>>(),
        }),
        outcome: Outcome::of(is_unfinished),
    }
}

fn json_step(step: &Step, dry_run: bool) -> Value {
    json!({
        "pool": step.pool, "from": step.keys, "state": step.state(), "message": step.describe(dry_run),
        "inUse": step.in_use, "late": step.late, "ended": step.ended,
        "networks": step.networks.iter().map(|network| &network.name).collect::<Vec<_>>(),
        "spec": step.spec,
    })
}

#[cfg(test)]
mod tests;
