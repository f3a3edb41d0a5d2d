// SPDX-License-Identifier: Apache-2.0
//! The command line.

use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::path::PathBuf;

/// What this node and this cluster have of RDMA and of addresses.
///
/// Exit status: 0 all is well; 1 something is wrong or left to do, and the output says what; 2 the command could not do
/// its work, and stderr says why.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "rdmanet",
    version,
    max_term_width = 120,
    arg_required_else_help = true
)]
pub struct Args {
    /// How the answer is printed
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// How the answer is printed.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// For people
    Table,
    /// For programs: one JSON document
    Json,
}

/// What to do.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// What this node has: HCAs, ports, links, bonds, partitions, who uses them, what to take as master, what is wrong
    Node(Node),
    /// Prints the script that completes commands in a shell: source <(rdmanet completion bash)
    Completion {
        /// The shell
        #[arg(value_enum)]
        shell: Shell,
    },
}

/// Options of `rdmanet node`.
#[derive(clap::Args, Clone, Debug)]
pub struct Node {
    /// Look at a recorded node instead: a folder with sysfs, address.json and route.json (docs/cli.md says how to record one)
    #[arg(long, value_name = "DIR", conflicts_with = "sysfs")]
    pub from: Option<PathBuf>,
    /// Where sysfs is mounted
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub sysfs: PathBuf,
    /// Where cni-ipoib writes down attachments
    #[arg(
        long,
        env = "RDMANET_STATE",
        value_name = "DIR",
        default_value = "/run/rdmanet"
    )]
    pub state: PathBuf,
    /// Where rdma-ipam keeps its leases
    #[arg(long, env = "RDMANET_DATA_DIR", value_name = "DIR", default_value = ipam::config::DATA_DIR)]
    pub data_dir: PathBuf,
    /// List the GIDs of InfiniBand ports too
    #[arg(long)]
    pub gids: bool,
}
