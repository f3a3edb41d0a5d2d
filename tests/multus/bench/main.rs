// SPDX-License-Identifier: Apache-2.0
//! Measures ADD and DEL of pods as a container runtime experiences them: Multus, its requests to the API server, every
//! plugin and every IPAM plugin.
//!
//!     [RDMANET_NV_IPAM=DIR] bench-multus WHEREABOUTS WHEREABOUTS-CRDS [ROUNDS]
//!
//! DIR contains the programs of nv-ipam and its directory `crds` (tests/go/README.md lists the commands that build it).
//!
//! Invariant: a measurement covers whole processes, from the start of Multus to its exit. Every pod has the same
//! cluster network (a veth pair with host-local), and the secondary networks are macvlan children of one link. All
//! sides take turns in one random order, so that other work of the machine affects all alike. The API server's audit
//! log counts the requests. The program reports numbers and sets no limits.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measurement that cannot be made ends with what went wrong, and its result goes to stdout"
)]

mod report;
mod side;

use apiserver::{Server, objects};
use bench_kube::nv_ipam::{self, NvIpam};
use bench_kube::{pool, whereabouts};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use multus::Setup;
use report::Measurements;
use serde_json::json;
use side::Side;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use tokio::runtime::Runtime;

/// The number of networks of a pod.
const NETWORKS: [usize; 3] = [1, 4, 8];

/// The node of [`Setup`]'s pods.
const NODE: &str = "node-1";

fn main() {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let mut next = || {
        args.next()
            .expect("bench-multus WHEREABOUTS WHEREABOUTS-CRDS [ROUNDS]")
    };
    let (peer, definitions) = (next(), next());
    let rounds = args.next().map_or(20, |n| n.to_str().unwrap().parse().unwrap());
    let seed = fastrand::u64(..);
    fastrand::seed(seed);
    let runtime = Runtime::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let nv_ipam = nv_ipam::directory().map(|bin| runtime.block_on(start_nv_ipam(&bin, dir.path())));
    Setup::run(|setup| {
        let sides = prepare(setup, &peer, &definitions, nv_ipam.as_ref());
        let mut table = Measurements::default();
        let mut turns: Vec<(&Side, usize)> = NETWORKS
            .iter()
            .flat_map(|count| sides.iter().map(|side| (side, *count)))
            .collect();
        turns.push((&sides[0], 0));
        for round in 0..rounds {
            eprintln!("bench-multus: round {} of {rounds}", round + 1);
            fastrand::shuffle(&mut turns);
            for (side, count) in &turns {
                side.measure(setup, *count, round, &mut table);
            }
        }
        println!("{}", table.render(seed, rounds));
    });
}

/// nv-ipam's controller and its daemon of the node, in the machine's network. Their files are in `dir`.
async fn start_nv_ipam(bin: &Path, dir: &Path) -> NvIpam {
    let server = Server::shared();
    let admin = server.admin().await;
    let nodes: Api<Node> = Api::all(admin);
    objects::create(&nodes, json!({ "metadata": { "name": NODE } })).await;
    let pool = nv_ipam::Pool {
        subnet: "10.120.0.0/16",
        block: 1024,
    };
    NvIpam::start(server, bin, dir, vec![NODE.to_owned()], &pool).await
}

/// The sides with their networks.
fn prepare(setup: &Setup, peer: &Path, definitions: &Path, nv_ipam: Option<&NvIpam>) -> Vec<Side> {
    symlink(peer.canonicalize().unwrap(), setup.node.path("bin/whereabouts")).unwrap();
    pool::give_block(Path::new("/var/lib/cni/rdma-ipam"), 0);
    let (server, definitions) = (setup.server(), definitions.to_owned());
    let defaults = setup.wait(async move { whereabouts::install(server, &definitions).await });
    let mut sides = vec![Side::pool(), Side::ranges(), Side::whereabouts(&defaults)];
    if let Some(peer) = nv_ipam {
        symlink(peer.plugin(), setup.node.path("bin/nv-ipam")).unwrap();
        sides.push(Side::nv_ipam(&peer.conf(NODE)));
    }
    for side in &sides {
        for number in 0..8 {
            setup.network(&side.network(number), &side.conf(number));
        }
    }
    sides
}
