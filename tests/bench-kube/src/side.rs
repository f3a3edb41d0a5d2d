// SPDX-License-Identifier: Apache-2.0
//! The sides of the comparison: each is a plugin with its configuration and its environment.

use crate::{POOL, SUBNET};
use apiserver::identity;
use bench_kube::call::Call;
use bench_kube::nv_ipam::{self, NvIpam};
use bench_kube::{account, whereabouts};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// rdma-ipam with its own ranges: the store of one node, and the lowest possible cost of a pool.
    Ranges,
    /// rdma-ipam with a pool, in blocks of the node. Its agent runs.
    Pool,
    /// rdma-ipam with a pool on many nodes: a directory and an agent for each.
    Nodes,
    /// whereabouts, whose pool is an API object.
    Whereabouts,
    /// nv-ipam, whose daemon allocates from the blocks that its controller assigned to the node.
    NvIpam,
    /// nv-ipam on many nodes.
    NvIpamNodes,
}

impl Kind {
    /// Its name in the report.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Ranges => "rdma-ipam, ranges",
            Self::Pool => "rdma-ipam, pool, one node",
            Self::Nodes => "rdma-ipam, pool, 50 nodes",
            Self::Whereabouts => "whereabouts v0.9.4",
            Self::NvIpam => "nv-ipam, one node",
            Self::NvIpamNodes => "nv-ipam, 50 nodes",
        }
    }

    /// The user name of its requests in the audit log.
    pub(crate) fn user(self) -> String {
        match self {
            Self::Ranges | Self::Pool | Self::Nodes => {
                format!(
                    "system:serviceaccount:{}:{}",
                    identity::NAMESPACE,
                    identity::ACCOUNT
                )
            }
            Self::Whereabouts => account::user(whereabouts::ACCOUNT),
            Self::NvIpam | Self::NvIpamNodes => account::user(nv_ipam::ACCOUNT),
        }
    }

    /// Whether the plugin may fail under many parallel calls, which is part of the result.
    pub(crate) fn may_fail(self) -> bool {
        !matches!(self, Self::Ranges | Self::Pool | Self::Nodes)
    }
}

/// A plugin with its configuration, one for each node.
pub(crate) struct Side {
    /// The kind of the plugin.
    pub(crate) kind: Kind,
    program: PathBuf,
    confs: Vec<Value>,
}

impl Side {
    /// rdma-ipam with ranges.
    pub(crate) fn ranges(program: &Path, dir: &Path) -> Self {
        let ipam = json!({"type": "rdma-ipam", "subnet": SUBNET, "gateway": "none", "cooldown": 0, "dataDir": dir.join("ranges")});
        Self::new(Kind::Ranges, program, vec![conf(&ipam)])
    }

    /// rdma-ipam with a pool, on the nodes whose leases are below `nodes`.
    pub(crate) fn pools(kind: Kind, program: &Path, nodes: &[PathBuf]) -> Self {
        let ipam = |dir: &PathBuf| json!({"type": "rdma-ipam", "pool": POOL, "dataDir": dir});
        Self::new(kind, program, nodes.iter().map(|dir| conf(&ipam(dir))).collect())
    }

    /// whereabouts with the configuration of its installation, the file `defaults`.
    pub(crate) fn whereabouts(program: &Path, defaults: &Path) -> Self {
        let ipam = json!({"type": "whereabouts", "range": SUBNET, "configuration_path": defaults});
        Self::new(Kind::Whereabouts, program, vec![conf(&ipam)])
    }

    /// nv-ipam on `nodes`.
    pub(crate) fn nv_ipam(kind: Kind, peer: &NvIpam, nodes: &[String]) -> Self {
        let confs = nodes.iter().map(|node| conf(&peer.conf(node)));
        Self::new(kind, &peer.plugin(), confs.collect())
    }

    fn new(kind: Kind, program: &Path, confs: Vec<Value>) -> Self {
        Self {
            kind,
            program: program
                .canonicalize()
                .unwrap_or_else(|e| panic!("{}: {e}", program.display())),
            confs,
        }
    }

    /// The call with number `turn`, for the container `id`.
    pub(crate) fn call(&self, verb: &'static str, id: &str, turn: usize) -> Call {
        Call {
            program: self.program.clone(),
            verb,
            id: id.to_owned(),
            pod: id.to_owned(),
            conf: self.confs[turn % self.confs.len()].to_string(),
            agent: None,
            node: None,
            netns: None,
        }
    }
}

fn conf(ipam: &Value) -> Value {
    json!({"cniVersion": "1.0.0", "name": "bench", "type": "macvlan", "ipam": ipam})
}
