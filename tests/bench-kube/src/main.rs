// SPDX-License-Identifier: Apache-2.0
//! Compares calls of `rdma-ipam` with a pool, without a pool, of whereabouts, and of nv-ipam if it is available, on a
//! real API server.
//!
//!     [RDMANET_NV_IPAM=DIR] bench-kube RDMA-IPAM WHEREABOUTS WHEREABOUTS-CRDS [ROUNDS]
//!
//! DIR contains the programs of nv-ipam and its directory `crds` (tests/go/README.md lists the commands that build it).
//!
//! Invariant: a measurement covers whole processes, from the start to the exit. All sides take turns in one random
//! order, so that other work of the machine affects all alike. Every address is checked to be unique. The API server's
//! audit log counts the requests. The program reports numbers and sets no limits.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measurement that cannot be made ends with what went wrong, and its result goes to stdout"
)]

mod report;
mod side;

use apiserver::Server;
use bench_kube::call::{Call, at_once};
use bench_kube::nodes::{self, Nodes};
use bench_kube::nv_ipam::{self, NvIpam};
use bench_kube::whereabouts;
use report::Measurements;
use side::{Kind, Side};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The numbers of processes that start in parallel.
const LEVELS: [usize; 4] = [1, 10, 50, 200];

/// The number of simulated nodes.
const NODES: usize = 50;

/// The pool of all nodes.
const POOL: &str = "rail0";

/// The pool's range.
const SUBNET: &str = "10.60.0.0/16";

/// The size of a block: room for all addresses of one measurement.
const BLOCK: u32 = 1024;

fn main() {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let mut next = || {
        args.next()
            .expect("bench-kube RDMA-IPAM WHEREABOUTS WHEREABOUTS-CRDS [ROUNDS]")
    };
    let (ours, peer, definitions) = (next(), next(), next());
    let rounds = args.next().map_or(10, |n| n.to_str().unwrap().parse().unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(Server::installed());
    let defaults = runtime.block_on(whereabouts::install(&server, &definitions));
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    runtime.block_on(nodes::pool(&server, POOL, SUBNET, BLOCK));
    let nodes = runtime.block_on(Nodes::start(&server, dir.path(), POOL, 1 + NODES, &[]));
    let mut sides = vec![
        Side::ranges(&ours, dir.path()),
        Side::pools(Kind::Pool, &ours, &nodes.data[..1]),
        Side::pools(Kind::Nodes, &ours, &nodes.data[1..]),
        Side::whereabouts(&peer, &defaults),
    ];
    let names = nodes.names.clone();
    let nv_ipam = nv_ipam::directory().map(|bin| {
        let pool = nv_ipam::Pool {
            subnet: SUBNET,
            block: BLOCK,
        };
        let start = NvIpam::start(&server, &bin, dir.path(), names.clone(), &pool);
        runtime.block_on(start)
    });
    if let Some(peer) = &nv_ipam {
        sides.push(Side::nv_ipam(Kind::NvIpam, peer, &names[..1]));
        sides.push(Side::nv_ipam(Kind::NvIpamNodes, peer, &names[1..]));
    }
    let mut table = Measurements::default();
    let seed = fastrand::u64(..);
    fastrand::seed(seed);
    for level in LEVELS {
        for round in 0..rounds_of(level, rounds) {
            fastrand::shuffle(&mut sides);
            for side in &sides {
                // Many concurrent calls take seconds: one round is as informative as ten.
                let enough = if level == 10 { 3 } else { 1 };
                if side.kind == Kind::Whereabouts && level > 1 && round >= enough {
                    continue;
                }
                eprintln!(
                    "bench-kube: {level} at once, round {}: {:?}",
                    round + 1,
                    side.kind
                );
                measure(&server, side, level, round, &mut table);
            }
        }
    }
    println!("{}", table.render(seed, rounds));
    runtime.block_on(nodes.end());
}

/// The number of rounds: more if a round has few processes and so few samples.
fn rounds_of(level: usize, rounds: usize) -> usize {
    match level {
        1 => rounds * 10,
        10 => rounds,
        _ => rounds.div_ceil(2),
    }
}

/// Measures ADD of `level` pods in parallel, and their DELs.
fn measure(server: &Server, side: &Side, level: usize, round: usize, table: &mut Measurements) {
    let ids: Vec<String> = (0..level).map(|i| format!("pod-{level}-{round}-{i}")).collect();
    let mut given = BTreeSet::new();
    for verb in ["ADD", "DEL"] {
        let calls: Vec<Call> = ids
            .iter()
            .enumerate()
            .map(|(i, id)| side.call(verb, id, round + i))
            .collect();
        let mark = server.mark();
        let done = at_once(&calls);
        let requests = server.requests_since(mark);
        let user = side.kind.user();
        let asked = requests.iter().filter(|request| request.user() == user).count();
        for answer in &done.answers {
            if !answer.succeeded {
                // A single call must succeed.
                assert!(
                    side.kind.may_fail() && level > 1,
                    "{:?} {verb}: {}",
                    side.kind,
                    answer.stdout
                );
            } else if verb == "ADD" {
                let address = answer.address();
                assert!(
                    given.insert(address.clone()),
                    "{:?} allocated {address} twice",
                    side.kind
                );
            }
        }
        table.add(side.kind, verb, &done, asked);
    }
}
