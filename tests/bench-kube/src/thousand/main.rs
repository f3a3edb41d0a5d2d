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

mod pods;
mod report;

use apiserver::Server;
use bench_kube::sides::ours::Ours;
use bench_kube::sides::peer::Peer;
use bench_kube::whereabouts;
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
    let ours = Ours::start(&server, dir.path(), &plugin, (scale.nodes, scale.pods), &[]).await;
    let mut outcomes = vec![measure(&server, &ours, scale).await];
    let defaults = whereabouts::install(&server, &definitions).await;
    for side in [
        Peer::plain(&server, &peer, &defaults, scale.pods).await,
        Peer::with_slices(&server, &peer, &defaults, (scale.nodes, scale.each())).await,
    ] {
        outcomes.push(measure(&server, &side, scale).await);
    }
    println!("{}", report::render(scale, &outcomes));
    ours.end().await;
}
