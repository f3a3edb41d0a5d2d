// SPDX-License-Identifier: Apache-2.0
//! The command line.

use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::net::IpAddr;
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
    /// Tries the installed plugins on a spare port: attaches pods of its own, pings, kills, detaches, and compares the node before
    /// and after; attach its report to a bug
    Selftest(Selftest),
    /// The commands that ask a cluster
    #[cfg(feature = "cluster")]
    #[command(flatten)]
    Ask(Ask),
    /// What an error of a plugin means and what to do: kubectl describe pod NAME | rdmanet explain
    Explain {
        /// A code, or the text that has the error, such as an Event; without it, or with -, stdin
        #[arg(value_name = "TEXT")]
        text: Vec<String>,
    },
    /// Prints the script that completes commands in a shell: source <(rdmanet completion bash)
    Completion {
        /// The shell
        #[arg(value_enum)]
        shell: Shell,
    },
}

/// What to ask a cluster.
#[cfg(feature = "cluster")]
#[derive(Subcommand, Clone, Debug)]
pub enum Ask {
    /// Pools: ranges, how many addresses they have, what is wrong with them
    Pools {
        /// Everything about this one
        pool: Option<String>,
        /// Which cluster
        #[command(flatten)]
        access: Access,
    },
    /// Blocks of addresses, and the node that each belongs to
    Blocks {
        /// Those of a pool
        #[arg(long)]
        pool: Option<String>,
        /// Those of a node
        #[arg(long)]
        node: Option<String>,
        /// Which cluster
        #[command(flatten)]
        access: Access,
    },
    /// Who has which address, on which node, since when: all, one address, or those of a pod
    Addresses(Addresses),
    /// A pool as a picture: who owns which part, what is excluded, what is free
    Map {
        /// The pool
        pool: String,
        /// Draw it into this file instead
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
        /// Which cluster
        #[command(flatten)]
        access: Access,
    },
    /// Ends the hold of an address whose pod is gone, after a question; refuses while anybody may use it
    Release(Release),
    /// Moves the pools of another IPAM plugin in, without restarting a pod; to be run again until nothing is left
    Import(Import),
    /// Whether what the cluster says of its addresses fits together: duplicates, leaks, orphans, overlaps
    Check {
        /// Seconds between the two looks; what is reported was seen both times
        #[arg(long, value_name = "SECONDS", default_value_t = 3)]
        pause: u64,
        /// Which cluster
        #[command(flatten)]
        access: Access,
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

/// Options of `rdmanet selftest`.
#[derive(clap::Args, Clone, Debug)]
pub struct Selftest {
    /// The link of the spare port, e.g. ib2; without it the first InfiniBand port that the node and its pods do not use
    #[arg(long, value_name = "LINK")]
    pub master: Option<String>,
    /// Also ping this address and measure to it; a listener on another node prints it
    #[arg(long, value_name = "ADDRESS")]
    pub peer: Option<IpAddr>,
    /// Attach one pod that answers a self-test of another node, until Enter is pressed
    #[arg(long, conflicts_with = "peer")]
    pub listen: bool,
    /// Where the plugins are installed
    #[arg(long, value_name = "DIR", default_value = "/opt/cni/bin")]
    pub plugins: PathBuf,
    /// Where cni-ipoib keeps its journal
    #[arg(
        long,
        env = "RDMANET_STATE",
        value_name = "DIR",
        default_value = "/run/rdmanet"
    )]
    pub state: PathBuf,
    /// Where rdma-ipam keeps the node's leases; the self-test keeps its own elsewhere
    #[arg(long, env = "RDMANET_DATA_DIR", value_name = "DIR", default_value = ipam::config::DATA_DIR)]
    pub data_dir: PathBuf,
}

impl Selftest {
    /// The same node for `rdmanet node`.
    pub fn node(&self) -> Node {
        Node {
            from: None,
            sysfs: PathBuf::from("/sys"),
            state: self.state.clone(),
            data_dir: self.data_dir.clone(),
            gids: false,
        }
    }
}

/// Which cluster, and as whom.
#[cfg(feature = "cluster")]
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Access {
    /// The file with the credentials; without it the variable KUBECONFIG, ~/.kube/config or, in a pod, the pod's own
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of that file
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// Options of `rdmanet addresses`.
#[cfg(feature = "cluster")]
#[derive(clap::Args, Clone, Debug)]
pub struct Addresses {
    /// An address, or a pod: NAME or NAMESPACE/NAME
    pub what: Option<String>,
    /// Those of a pool
    #[arg(long)]
    pub pool: Option<String>,
    /// Those of a node
    #[arg(long)]
    pub node: Option<String>,
    /// Where rdma-ipam keeps its leases, which are read too if this is a node
    #[arg(long, env = "RDMANET_DATA_DIR", value_name = "DIR", default_value = ipam::config::DATA_DIR)]
    pub data_dir: PathBuf,
    /// Which cluster
    #[command(flatten)]
    pub access: Access,
}

/// Options of `rdmanet release`.
#[cfg(feature = "cluster")]
#[derive(clap::Args, Clone, Debug)]
pub struct Release {
    /// The address
    #[arg(required_unless_present = "node")]
    pub address: Option<std::net::IpAddr>,
    /// All that a node has left whose Node object is gone and whose machine is off
    #[arg(long, value_name = "NAME", conflicts_with_all = ["address", "pool"])]
    pub node: Option<String>,
    /// The pool, where several address spaces have the address
    #[arg(long)]
    pub pool: Option<String>,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// Where rdma-ipam keeps its leases, if this is a node
    #[arg(long, env = "RDMANET_DATA_DIR", value_name = "DIR", default_value = ipam::config::DATA_DIR)]
    pub data_dir: PathBuf,
    /// Which cluster
    #[command(flatten)]
    pub access: Access,
}

/// Options of `rdmanet import`.
#[cfg(feature = "cluster")]
#[derive(clap::Args, Clone, Debug)]
pub struct Import {
    /// Where the pools are now
    #[arg(value_enum)]
    pub source: Source,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Switch the networks to their pools as well, instead of leaving that to you
    #[arg(long)]
    pub switch: bool,
    /// How long after a network was switched an ADD of the old plugin may still be under way
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub grace: u64,
    /// Further witnesses, copied from nodes: stores of nv-ipam, or data folders of host-local; repeatable
    #[arg(long = "from", value_name = "PATH")]
    pub files: Vec<PathBuf>,
    /// Which cluster
    #[command(flatten)]
    pub access: Access,
}

/// What pools can move in from.
#[cfg(feature = "cluster")]
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// whereabouts
    Whereabouts,
    /// NVIDIA's nv-ipam
    NvIpam,
    /// host-local of the CNI project
    HostLocal,
}

#[cfg(feature = "cluster")]
impl Source {
    /// The `type` in its configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Whereabouts => crate::import::whereabouts::TYPE,
            Self::NvIpam => crate::import::nv_ipam::TYPE,
            Self::HostLocal => crate::import::host_local::TYPE,
        }
    }
}
