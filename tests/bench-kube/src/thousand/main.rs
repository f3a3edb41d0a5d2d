// SPDX-License-Identifier: Apache-2.0
//! As many pods as addresses, on ten nodes: `rdma-ipam` with agents and a controller beside whereabouts.
//!
//!     bench-thousand RDMA-IPAM WHEREABOUTS WHEREABOUTS-CRDS [PODS [NODES [LIMIT]]]
//!
//! LIMIT is the time for the starts of one side, in seconds.
//!
//! One side after another, on the same API server: all pods start, `AT_ONCE` calls in parallel on each node. An error is
//! repeated as kubelet does. Then all pods end. The results are compared with the records on nodes and in the API server
//! after the starts, and again after the ends.
//!
//! Invariant: a call is a whole process of the plugin, without kubelet, Multus, images and links. All agents are
//! complete, with their sockets.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measurement that cannot be made ends with what went wrong, and its result goes to stdout"
)]

mod ours;
mod peer;
mod pods;
mod report;

use apiserver::Server;
use bench_kube::whereabouts;
use bench_kube::witness::{Assignment, Difference};
use ours::Ours;
use peer::Peer;
use pods::measure;
use std::path::PathBuf;
use std::time::Duration;

/// The number of calls that run at once on a node.
const AT_ONCE: usize = 10;

/// The size of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) pods: u32,
    pub(crate) nodes: u32,
    /// The time limit for the starts, and again for the ends.
    pub(crate) limit: Duration,
}

impl Scale {
    /// The pods of each node.
    pub(crate) fn each(self) -> u32 {
        self.pods.div_ceil(self.nodes)
    }
}

/// An address that a pod got.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    /// The index of the pod's node.
    pub(crate) node: usize,
    pub(crate) assignment: Assignment,
}

/// The records of one place, compared with the results.
#[derive(Clone, Debug)]
pub(crate) struct Witness {
    pub(crate) name: &'static str,
    pub(crate) difference: Difference,
}

/// A plugin with its nodes.
pub(crate) trait Side: Sync {
    /// Its name in the report.
    fn title(&self) -> &'static str;

    /// The user name of its requests in the audit log.
    fn user(&self) -> String;

    /// The number of addresses that it may allocate.
    fn addresses(&self) -> u32;

    /// The call `verb` for the `sandbox` of `pod` on a node.
    fn call(&self, verb: &'static str, node: usize, pod: &str, sandbox: &str) -> bench_kube::call::Call;

    /// Compares all records of this side with `given`.
    async fn witnesses(&self, given: &[Given]) -> Vec<Witness>;
}

/// The configuration of a network whose IPAM plugin has this section.
pub(crate) fn conf(ipam: &serde_json::Value) -> String {
    serde_json::json!({ "cniVersion": "1.0.0", "name": peer::NETWORK, "type": "macvlan", "ipam": ipam })
        .to_string()
}

#[tokio::main]
async fn main() {
    const USAGE: &str = "bench-thousand RDMA-IPAM WHEREABOUTS WHEREABOUTS-CRDS [PODS [NODES [LIMIT]]]";
    let mut args = std::env::args_os().skip(1);
    let mut path = || {
        PathBuf::from(args.next().expect(USAGE))
            .canonicalize()
            .expect(USAGE)
    };
    let (plugin, peer, definitions) = (path(), path(), path());
    let mut number = |usual: u32| {
        args.next()
            .map_or(usual, |n| n.to_str().and_then(|n| n.parse().ok()).expect(USAGE))
    };
    let scale = Scale {
        pods: number(1000),
        nodes: number(10),
        limit: Duration::from_secs(number(900).into()),
    };
    let server = Server::installed().await;
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let ours = Ours::start(&server, dir.path(), &plugin, scale).await;
    let mut outcomes = vec![measure(&server, &ours, scale).await];
    let defaults = whereabouts::install(&server, &definitions).await;
    for side in [
        Peer::plain(&server, &peer, &defaults, scale).await,
        Peer::with_slices(&server, &peer, &defaults, scale).await,
    ] {
        outcomes.push(measure(&server, &side, scale).await);
    }
    println!("{}", report::render(scale, &outcomes));
    ours.end().await;
}
