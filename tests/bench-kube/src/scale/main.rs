// SPDX-License-Identifier: Apache-2.0
//! Thousands of agents against one API server.
//!
//!     bench-scale RDMA-IPAM [AGENTS [RAILS [PODS [BLOCK]]]]
//!
//! Each agent runs the code of the daemon with the token of its own pod and its own files; all of them run in this
//! process. The plugins' socket, metrics and netlink are excluded. Agents write the condition of their links as if the
//! kernel had sent a message.
//!
//! Invariant: the API server is a real one on loopback, which ends with this process. Its audit log counts the
//! requests, and its metrics the bytes. Every wait has a time limit.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measurement that cannot be made ends with what went wrong, and its result goes to stdout"
)]

mod crowd;
mod fleet;
mod life;
mod rails;
mod report;

use apiserver::Server;
use bench::machine::describe_with_load;
use bench_kube::gauge::{Gauges, Phase};
use bench_kube::streams::Streams;
use fleet::Fleet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The time limit of a run: measurements that would start later are skipped.
const BUDGET: Duration = Duration::from_secs(900);

/// With more agents than this, nearly full pools are not measured.
const CROWDS: usize = 2000;

#[tokio::main]
async fn main() {
    let mut args = std::env::args_os().skip(1);
    let plugin = PathBuf::from(
        args.next()
            .expect("bench-scale RDMA-IPAM [AGENTS [RAILS [PODS [BLOCK]]]]"),
    );
    let mut number = |usual: usize| {
        args.next()
            .map_or(usual, |n| n.to_str().unwrap().parse().unwrap())
    };
    let (agents, rails, pods, block) = (number(1000), number(1), number(1), number(64));
    let server = Server::installed().await;
    let gauges = Gauges::new(&server).await;
    let mut fleet = Fleet::new(&server, [agents, rails, pods, block]).await;
    let begun = Instant::now();
    let mut phases = Vec::new();
    let mut note = |phase: Phase| {
        eprintln!("bench-scale: {}", phase.line());
        phases.push(phase);
    };
    note(fleet.register(&gauges).await);
    note(fleet.start(&gauges).await);
    note(fleet.rest(&gauges).await);
    if rails > 1 {
        note(fleet.more_rails(&gauges).await);
        note(fleet.rest(&gauges).await);
    }
    note(fleet.fabric(&gauges).await);
    for phase in fleet.edit(&gauges).await {
        note(phase);
    }
    for phase in fleet.add(&gauges, &plugin).await {
        note(phase);
    }
    let streams = Streams::now(&server, &fleet.admin).await;
    if begun.elapsed() < BUDGET {
        note(fleet.restart(&gauges).await);
    }
    println!(
        "### {agents} agents, {rails} pools with blocks of {block}, {pods} pods on each node\n\n{}\n",
        describe_with_load()
    );
    println!(
        "With all pods: {} watches of blocks, {} connections of this process\n",
        streams.block_watches, streams.connections
    );
    println!("{}", report::phases(&phases, agents));
    // The cost of nearly full pools does not depend on the number of other agents, which would only prolong the run.
    if agents <= CROWDS {
        let crowds = crowd::claims(&mut fleet, &gauges).await;
        println!("{}", report::crowds(&crowds));
    }
    fleet.end_all().await;
}
