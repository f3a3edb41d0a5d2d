// SPDX-License-Identifier: Apache-2.0
//! `rdmanet`: shows what a node and a cluster have of RDMA and of addresses, for the person who operates them.
//!
//! Invariant: a command prints one document, a table or JSON, with the same data.
//!
//! Invariant: commands that only look change nothing. `selftest` attaches its own pods and removes them.

#[cfg(feature = "cluster")]
pub mod addresses;
pub mod answer;
pub mod args;
#[cfg(feature = "cluster")]
pub mod check;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod explain;
#[cfg(feature = "cluster")]
pub mod holders;
#[cfg(feature = "cluster")]
pub mod import;
#[cfg(feature = "cluster")]
pub mod interval;
pub mod leases;
#[cfg(feature = "cluster")]
pub mod map;
pub mod node;
#[cfg(feature = "cluster")]
pub mod pools;
#[cfg(feature = "cluster")]
pub mod release;
pub mod selftest;
pub mod table;
#[cfg(all(test, feature = "cluster"))]
mod testing;

pub use answer::{Answer, Failure, Outcome};
use args::{Args, Command};
use clap::CommandFactory;

/// Runs the command in `args`.
///
/// # Errors
/// A sentence for a person, with its remedy.
pub fn run(args: &Args) -> Result<Answer, Failure> {
    match &args.command {
        Command::Node(options) => node::run(options),
        Command::Explain { text } => explain::run(text),
        Command::Selftest(options) => selftest::run(options),
        Command::Completion { shell } => Ok(completion(*shell)),
        #[cfg(feature = "cluster")]
        Command::Ask(ask) => asking::run(ask),
    }
}

/// The commands that need a cluster.
#[cfg(feature = "cluster")]
mod asking {
    use crate::args::{Access, Ask};
    use crate::cluster::connect;
    use crate::cluster::snapshot::Snapshot;
    use crate::{Answer, Failure, addresses, check, import, map, pools, release};
    use std::time::Duration;

    pub(super) fn run(what: &Ask) -> Result<Answer, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Failure(format!("cannot start: {e}")))?;
        runtime.block_on(ask(what))
    }

    async fn ask(what: &Ask) -> Result<Answer, Failure> {
        match what {
            Ask::Pools { pool, access } => pools::pools(&read(access).await?, pool.as_deref()),
            Ask::Blocks { pool, node, access } => {
                pools::blocks(&read(access).await?, pool.as_deref(), node.as_deref())
            }
            Ask::Addresses(options) => addresses::run(&connect(&options.access).await?, options).await,
            Ask::Map { pool, svg, access } => map::run(
                &Snapshot::read(&connect(access).await?).await?,
                pool,
                svg.as_deref(),
            ),
            Ask::Release(options) => release::run(&connect(&options.access).await?, options).await,
            Ask::Import(options) => import::run(&connect(&options.access).await?, options).await,
            Ask::Check { pause, access } => {
                check::run(&connect(access).await?, Duration::from_secs(*pause)).await
            }
        }
    }

    async fn read(access: &Access) -> Result<Snapshot, Failure> {
        Snapshot::of_pools(&connect(access).await?).await
    }
}

fn completion(shell: clap_complete::Shell) -> Answer {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "rdmanet", &mut script);
    let text = String::from_utf8_lossy(&script).into_owned();
    Answer {
        json: serde_json::json!({ "script": text }),
        text,
        outcome: Outcome::Fine,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn the_command_line_definition_is_valid_for_clap() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_completion_script_of_each_shell_contains_the_commands() {
        for shell in ["bash", "zsh", "fish"] {
            let script = run(&Args::parse_from(["rdmanet", "completion", shell]))
                .unwrap()
                .text;
            assert!(script.contains("node") && script.contains("data-dir"), "{shell}");
        }
    }
}
