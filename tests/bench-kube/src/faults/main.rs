// SPDX-License-Identifier: Apache-2.0
//! The same faults for `rdma-ipam` and whereabouts: which addresses leak, and which are allocated twice.
//!
//!     bench-faults RDMA-IPAM WHEREABOUTS-PROGRAMS WHEREABOUTS-CRDS [PODS [SEED]]
//!
//! WHEREABOUTS-PROGRAMS is the directory with `whereabouts`, `ip-control-loop` and `ip-reconciler`. Needs root (chroot).
//!
//! Each fault hits PODS pods of each side, on an API server that both sides share. Agents and a controller run for
//! `rdma-ipam`. For whereabouts an `ip-control-loop` runs for each node, and `ip-reconciler` runs once after each fault.
//!
//! Invariant: at the end of a fault no pod is left, except on a machine that may still run. So each record of an address
//! is a leak, except for the time that the cleaners need. Both sides get the same time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measurement that cannot be made ends with what went wrong, and its result goes to stdout"
)]

mod bed;
mod cleaners;
mod fault;
mod report;
mod subject;

use apiserver::{Server, objects};
use bed::Bed;
use bench_kube::sides::Side;
use bench_kube::sides::ours::Ours;
use bench_kube::sides::peer::Peer;
use bench_kube::whereabouts;
use cleaners::Cleaners;
use fault::Fault;
use report::{Outcome, render};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use subject::{Subject, Whereabouts};

/// The number of nodes. No side loses the first two.
const NODES: usize = 6;

/// The nodes that rdma-ipam and whereabouts lose.
const DOOMED: [[usize; 2]; 2] = [[2, 3], [4, 5]];

/// The number of addresses: more than all faults together can leak.
const ADDRESSES: u32 = 500;

/// The time after a fault until records count as leaked.
const SETTLE: Duration = Duration::from_secs(15);

/// The time after a fault that agents, controller and control loops get to remove what it left: the quarantine, and some
/// more.
const COLLECTION: Duration = Duration::from_secs(180);

/// The quarantine of agents and controller: the shortest that they accept, so that it ends within [`COLLECTION`].
const QUARANTINE: [&str; 2] = ["--quarantine", "2m"];

#[tokio::main]
async fn main() {
    const USAGE: &str = "bench-faults RDMA-IPAM WHEREABOUTS-PROGRAMS WHEREABOUTS-CRDS [PODS [SEED]]";
    let mut args = std::env::args_os().skip(1);
    let mut path = || {
        PathBuf::from(args.next().expect(USAGE))
            .canonicalize()
            .expect(USAGE)
    };
    let (plugin, programs, definitions) = (path(), path(), path());
    let mut number = |usual: u64| {
        args.next()
            .map_or(usual, |n| n.to_str().and_then(|n| n.parse().ok()).expect(USAGE))
    };
    let (pods, seed) = (usize::try_from(number(10)).unwrap(), number(fastrand::u64(..)));
    let server = Server::installed().await;
    // A pod needs this account, and no controller of Kubernetes runs here to create it.
    objects::account(&server.admin().await, "default", "default").await;
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let defaults = whereabouts::install(&server, &definitions).await;
    let nodes = u32::try_from(NODES).unwrap();
    let ours = Ours::start(&server, dir.path(), &plugin, (nodes, ADDRESSES), &QUARANTINE).await;
    let peer = Peer::plain(&server, &programs.join("whereabouts"), &defaults, ADDRESSES).await;
    let theirs = Whereabouts {
        cleaners: Cleaners::start(&server, &programs, dir.path(), &peer, &defaults).await,
        plugin: peer,
        admin: server.admin().await,
    };
    let [our_doom, their_doom] = DOOMED.map(Vec::from);
    let mut our_bed = Bed::new(&server, &ours, dir.path(), (seed, our_doom)).await;
    let mut their_bed = Bed::new(&server, &theirs, dir.path(), (seed, their_doom)).await;
    let mut outcomes = Vec::new();
    for fault in Fault::ALL {
        outcomes.push(run(&mut our_bed, fault, pods).await);
        outcomes.push(run(&mut their_bed, fault, pods).await);
    }
    println!("{}", render(pods, seed, &outcomes));
    ours.end().await;
}

/// Injects a fault, and counts the leaks three times: soon, after the time of the cleaners that always run, and after the
/// one that runs on a schedule.
async fn run<S: Subject>(bed: &mut Bed<'_, S>, fault: Fault, pods: usize) -> Outcome {
    fault.inject(bed, pods).await;
    let ended = Instant::now();
    let soon = bed.leaks(SETTLE).await.len();
    let late = bed.leaks(COLLECTION.saturating_sub(ended.elapsed())).await;
    let cleaned = ended.elapsed();
    let scheduled = bed.subject.clean().await;
    let last = bed.leaks(Duration::ZERO).await;
    let outcome = Outcome {
        fault: fault.name(),
        side: bed.subject.side().title(),
        pods,
        duplicates: bed.tally.take_duplicates(),
        without: std::mem::take(&mut bed.without),
        soon,
        late: late.len(),
        cleaned,
        scheduled: scheduled.then_some(last.len()),
        exposed: bed.tally.take_exposed(&bed.subject.recorded().await),
    };
    bed.tally.count(last);
    eprintln!("bench-faults: {outcome:?}");
    outcome
}
