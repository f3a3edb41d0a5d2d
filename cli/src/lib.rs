// SPDX-License-Identifier: Apache-2.0
//! `rdmanet`: shows the RDMA devices of a node and the addresses of a cluster, for administrators.
//!
//! Invariant: a command prints one document, a table or JSON, with the same data.
//!
//! Invariant: commands that only show something change nothing. `selftest` attaches its own pods and removes them.
//!
//! Floors: a module imports only modules of lower floors (`tests/floors`).
//!
//! ```text
//! addresses check import map release selftest | the commands
//! explain node pools
//! allocations
//! args interval leases
//! cluster                                     | the API server
//! output
//! table
//! terminal
//! ```

#[cfg(feature = "cluster")]
pub mod addresses;
#[cfg(feature = "cluster")]
pub mod allocations;
pub mod args;
#[cfg(feature = "cluster")]
pub mod check;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod explain;
#[cfg(feature = "cluster")]
pub mod import;
#[cfg(feature = "cluster")]
pub mod interval;
pub mod leases;
#[cfg(feature = "cluster")]
pub mod map;
pub mod node;
pub mod output;
#[cfg(feature = "cluster")]
pub mod pools;
#[cfg(feature = "cluster")]
pub mod release;
pub mod selftest;
pub mod table;
pub mod terminal;
#[cfg(all(test, feature = "cluster"))]
mod testing;

use args::{Args, Command, Format};
use clap::CommandFactory;
pub use output::{CommandError, Outcome, Output};

/// Runs the command in `args`.
///
/// # Errors
/// A sentence with the cause and the remedy.
pub fn run(args: &Args) -> Result<Output, CommandError> {
    match &args.command {
        Command::Node(options) => node::run(options),
        Command::Explain { text } => explain::run(text),
        Command::Selftest(options) => selftest::run(options),
        Command::Completion { shell } => Ok(completion(*shell)),
        #[cfg(feature = "cluster")]
        Command::Cluster(command) => cluster_commands::run(command),
    }
}

/// What the process prints: an output to stdout, an error to stderr.
pub fn printed(outcome: &Result<Output, CommandError>, format: Format) -> String {
    match (outcome, format) {
        (Ok(output), Format::Table) => terminal::lines(&output.text),
        (Ok(output), Format::Json) => format!("{:#}\n", output.json),
        (Err(error), _) => format!("rdmanet: {}\n", terminal::line(&error.to_string())),
    }
}

/// The commands that need a cluster.
#[cfg(feature = "cluster")]
mod cluster_commands {
    use crate::args::ClusterCommand;
    use crate::cluster::snapshot::Snapshot;
    use crate::cluster::{Access, connect};
    use crate::{CommandError, Output, addresses, check, import, map, pools, release};
    use std::time::Duration;

    pub(super) fn run(command: &ClusterCommand) -> Result<Output, CommandError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| CommandError(format!("cannot start the async runtime: {e}")))?;
        runtime.block_on(execute(command))
    }

    async fn execute(command: &ClusterCommand) -> Result<Output, CommandError> {
        match command {
            ClusterCommand::Pools { pool, access } => pools::pools(&read(access).await?, pool.as_deref()),
            ClusterCommand::Blocks { pool, node, access } => {
                pools::blocks(&read(access).await?, pool.as_deref(), node.as_deref())
            }
            ClusterCommand::Addresses(options) => {
                addresses::run(&connect(&options.access).await?, options).await
            }
            ClusterCommand::Map { pool, svg, access } => map::run(
                &Snapshot::read(&connect(access).await?).await?,
                pool,
                svg.as_deref(),
            ),
            ClusterCommand::Release(options) => release::run(&connect(&options.access).await?, options).await,
            ClusterCommand::Import(options) => import::run(&connect(&options.access).await?, options).await,
            ClusterCommand::Check { pause, access } => {
                check::run(&connect(access).await?, Duration::from_secs(*pause)).await
            }
        }
    }

    async fn read(access: &Access) -> Result<Snapshot, CommandError> {
        Snapshot::of_pools(&connect(access).await?).await
    }
}

fn completion(shell: clap_complete::Shell) -> Output {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "rdmanet", &mut script);
    let text = String::from_utf8_lossy(&script).into_owned();
    Output {
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
    #[test]
    fn a_printed_text_or_error_has_no_control_character_except_line_breaks() {
        let odd = "one\u{1b}[2J\ntwo\r\n".to_owned();
        let output = Output {
            text: odd.clone(),
            json: serde_json::json!({ "text": odd }),
            outcome: Outcome::Fine,
        };
        let output = Ok(output);
        assert_eq!(printed(&output, Format::Table), "one\\u{1b}[2J\ntwo\\r\n");
        let document: serde_json::Value = serde_json::from_str(&printed(&output, Format::Json)).unwrap();
        assert_eq!(document["text"], odd);
        let error = Err(CommandError(odd));
        assert_eq!(
            printed(&error, Format::Table),
            "rdmanet: one\\u{1b}[2J\\ntwo\\r\\n\n"
        );
    }
}
