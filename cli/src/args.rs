// SPDX-License-Identifier: Apache-2.0
//! The command line.

#[cfg(feature = "cluster")]
use crate::cluster::Access;
use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::net::IpAddr;
use std::path::PathBuf;

/// Shows the RDMA devices of this node and the addresses of a cluster.
///
/// Exit status: 0 the command succeeded and found no problem; 1 the output names a problem, or work that is left to do; 2
/// the command failed, and stderr has the reason.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "rdmanet",
    version,
    max_term_width = 120,
    arg_required_else_help = true
)]
pub struct Args {
    /// The output format
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// The command
    #[command(subcommand)]
    pub command: Command,
}

/// The output format.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A table
    Table,
    /// One JSON document
    Json,
}

/// The command.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Shows this node: HCAs, ports, links, bonds, partitions, their users, which link to use as master, and problems
    Node(Node),
    /// Tests the installed plugins on a spare port: attaches its own pods, pings, kills ADDs, detaches, and compares the node
    /// before and after. Attach its report to a bug
    Selftest(Selftest),
    /// The commands that need a cluster
    #[cfg(feature = "cluster")]
    #[command(flatten)]
    Cluster(ClusterCommand),
    /// Explains an error of a plugin and its remedy: kubectl describe pod NAME | rdmanet explain
    Explain {
        /// A code, or a text that contains the error, such as an Event; without it, or with -, stdin
        #[arg(value_name = "TEXT")]
        text: Vec<String>,
    },
    /// Prints the completion script for a shell: source <(rdmanet completion bash)
    Completion {
        /// The shell
        #[arg(value_enum)]
        shell: Shell,
    },
}

/// A command that needs a cluster.
#[cfg(feature = "cluster")]
#[derive(Subcommand, Clone, Debug)]
pub enum ClusterCommand {
    /// Shows pools: ranges, addresses, problems
    Pools {
        /// Show all details of this pool
        pool: Option<String>,
        /// The cluster
        #[command(flatten)]
        access: Access,
    },
    /// Shows blocks of addresses and their nodes
    Blocks {
        /// Only blocks of this pool
        #[arg(long)]
        pool: Option<String>,
        /// Only blocks of this node
        #[arg(long)]
        node: Option<String>,
        /// The cluster
        #[command(flatten)]
        access: Access,
    },
    /// Shows allocated addresses with pod, node and time: all of them, one address, or those of a pod
    Addresses(Addresses),
    /// Draws a pool: the part of each node, excluded and free addresses
    Map {
        /// The pool
        pool: String,
        /// Write an SVG drawing to this file instead
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
        /// The cluster
        #[command(flatten)]
        access: Access,
    },
    /// Releases an address whose pod is gone, or what a gone node has left, after a confirmation; make sure first that its machine is off
    Release(Release),
    /// Imports the pools of another IPAM plugin while their pods keep running; repeat it until nothing is left
    Import(Import),
    /// Checks the addresses of the cluster for contradictions: duplicates, leaks, orphans, overlaps
    Check {
        /// Seconds between the two reads of the cluster; only problems that both reads show are reported
        #[arg(long, value_name = "SECONDS", default_value_t = 3)]
        pause: u64,
        /// The cluster
        #[command(flatten)]
        access: Access,
    },
}

/// The directory of `rdma-ipam` on this node.
#[derive(clap::Args, Clone, Debug)]
pub struct DataDir {
    /// Where rdma-ipam stores the leases of this node
    #[arg(long, env = "RDMANET_DATA_DIR", value_name = "DIR", default_value = ipam::config::DATA_DIR)]
    pub data_dir: PathBuf,
}

/// The directories of both plugins on this node.
#[derive(clap::Args, Clone, Debug)]
pub struct Directories {
    /// Where cni-ipoib stores its journal
    #[arg(
        long,
        env = "RDMANET_STATE",
        value_name = "DIR",
        default_value = "/run/rdmanet"
    )]
    pub state: PathBuf,
    /// The leases
    #[command(flatten)]
    pub leases: DataDir,
}

/// Options of `rdmanet node`.
#[derive(clap::Args, Clone, Debug)]
pub struct Node {
    /// Show a recorded node: a directory with sysfs, address.json and route.json (docs/cli.md has the recording commands)
    #[arg(long, value_name = "DIR", conflicts_with = "sysfs")]
    pub from: Option<PathBuf>,
    /// Where sysfs is mounted
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub sysfs: PathBuf,
    /// The directories of the plugins
    #[command(flatten)]
    pub directories: Directories,
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
    /// Also ping this address and measure the bandwidth to it; a listener on another node prints it
    #[arg(long, value_name = "ADDRESS")]
    pub peer: Option<IpAddr>,
    /// Attach one pod that answers the self-test of another node, until Enter is pressed
    #[arg(long, conflicts_with = "peer")]
    pub listen: bool,
    /// Where the plugins are installed
    #[arg(long, value_name = "DIR", default_value = "/opt/cni/bin")]
    pub plugins: PathBuf,
    /// The directories of the plugins; the self-test has its own for its leases
    #[command(flatten)]
    pub directories: Directories,
}

impl Selftest {
    /// The same node for `rdmanet node`.
    pub fn node(&self) -> Node {
        Node {
            from: None,
            sysfs: PathBuf::from("/sys"),
            directories: self.directories.clone(),
            gids: false,
        }
    }
}

/// Options of `rdmanet addresses`.
#[cfg(feature = "cluster")]
#[derive(clap::Args, Clone, Debug)]
pub struct Addresses {
    /// An address, or a pod: NAME or NAMESPACE/NAME
    #[arg(value_name = "ADDRESS|POD")]
    pub subject: Option<String>,
    /// Only addresses of this pool
    #[arg(long)]
    pub pool: Option<String>,
    /// Only addresses of this node
    #[arg(long)]
    pub node: Option<String>,
    /// The leases of this node, which are read too
    #[command(flatten)]
    pub leases: DataDir,
    /// The cluster
    #[command(flatten)]
    pub access: Access,
}

/// Options of `rdmanet release`.
#[cfg(feature = "cluster")]
#[derive(clap::Args, Clone, Debug)]
pub struct Release {
    /// The address
    #[arg(required_unless_present = "node")]
    pub address: Option<IpAddr>,
    /// Release all blocks and addresses of this node, whose Node object is gone and whose machine is off
    #[arg(long, value_name = "NAME", conflicts_with_all = ["address", "pool"])]
    pub node: Option<String>,
    /// The pool, if several address spaces have the address
    #[arg(long)]
    pub pool: Option<String>,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub yes: bool,
    /// The leases of this node, which are released too
    #[command(flatten)]
    pub leases: DataDir,
    /// The cluster
    #[command(flatten)]
    pub access: Access,
}

/// The longest ADD, in seconds: kubelet gives a sandbox 4 minutes, CRI-O gives its network 5 more, and whereabouts, which
/// outlives a Multus that the runtime has killed, ends after 2.
///
/// Source: Kubernetes, `cri-client/pkg/remote_runtime.go: RunPodSandbox`; CRI-O, `server/sandbox_network.go: networkStart`;
/// whereabouts, `pkg/types/types.go: AddTimeLimit`.
#[cfg(feature = "cluster")]
const GRACE: u64 = (4 + 5 + 2) * 60;

/// Options of `rdmanet import`.
#[cfg(feature = "cluster")]
#[derive(clap::Args, Clone, Debug)]
pub struct Import {
    /// The IPAM plugin that has the pools now
    #[arg(value_enum)]
    pub source: Source,
    /// Show the next step and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Also switch the networks to their pools
    #[arg(long)]
    pub switch: bool,
    /// How long an ADD of the old plugin may still run after its network was switched (docs/migrate.md)
    #[arg(long, value_name = "SECONDS", default_value_t = GRACE)]
    pub grace: u64,
    /// Files copied from nodes: stores of nv-ipam, or data directories of host-local; repeatable
    #[arg(long = "from", value_name = "PATH")]
    pub files: Vec<PathBuf>,
    /// The cluster
    #[command(flatten)]
    pub access: Access,
}

/// An IPAM plugin whose pools can be imported.
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
    pub const fn name(self) -> &'static str {
        match self {
            Self::Whereabouts => "whereabouts",
            Self::NvIpam => "nv-ipam",
            Self::HostLocal => "host-local",
        }
    }
}
