// SPDX-License-Identifier: Apache-2.0
//! Chaos: machines with real agents and real plugin processes on a real API server, while responses get lost, servers
//! and agents are killed, machines are cut off, die, and come back.
//!
//! A separate ledger records which pod has which address. An ADD that returns an address of another pod is a duplicate; an
//! address that cannot be allocated once everything is quiet again is a leak. Either fails the run, with the seed.
//!
//!     RDMANET_CHAOS_OPERATIONS=100000 RDMANET_CHAOS_MACHINES=24 make chaos
//!
//! `RDMANET_CHAOS_SEED` repeats the choices of a run (but not the scheduler's), `RDMANET_CHAOS_MACHINES` sets
//! the number of machines.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test says what it lacks by failing"
)]
#![allow(
    clippy::print_stdout,
    reason = "the seed and the operations are printed on success and on failure"
)]

mod after;
mod machine;
mod pool;
mod replicas;
mod tally;
mod trouble;

use agents::{Ledger, Site};
use apiserver::Server;
use machine::Machine;
use pool::Pool;
use replicas::Replicas;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// The quarantine of the blocks of a gone node.
const QUARANTINE: &str = "5s";

/// The state that all tasks share.
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) ledger: Ledger,
    pub(crate) replicas: Replicas,
    pub(crate) operations: AtomicU64,
    pub(crate) wanted: u64,
    pub(crate) stopped: AtomicBool,
}

impl World {
    /// Counts one operation. Returns false after the last one.
    pub(crate) fn count(&self) -> bool {
        if self.operations.fetch_add(1, Ordering::Relaxed) + 1 >= self.wanted {
            self.stopped.store(true, Ordering::Relaxed);
        }
        !self.is_over()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the environment sets the duration of a manual run"
)]
fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| {
        text.parse().unwrap_or_else(|e| panic!("{variable}={text}: {e}"))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_address_is_allocated_twice_or_leaked_under_chaos() {
    let seed = number("RDMANET_CHAOS_SEED", fastrand::u64(..));
    let machines = number("RDMANET_CHAOS_MACHINES", 6);
    let wanted = number("RDMANET_CHAOS_OPERATIONS", 2000);
    println!("chaos: seed {seed}, {machines} machines, {wanted} operations");
    let site = Site::with(&["--quarantine", QUARANTINE, "--quarantine-in-use", QUARANTINE]).await;
    let world = Arc::new(World {
        replicas: Replicas::new(&site.admin).await,
        server: site.server,
        ledger: Ledger::default(),
        operations: AtomicU64::new(0),
        wanted,
        stopped: AtomicBool::new(false),
    });
    let admin = world.server.admin().await;
    for pool in Pool::ALL {
        pool.create(&admin, machines).await;
    }
    let addresses = Pool::ALL.iter().map(|pool| pool.addresses(machines)).sum();
    let start = Instant::now();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut running = Vec::new();
    for number in 0..machines {
        let machine = Machine::join(world.clone(), number, random.fork()).await;
        running.push(tokio::spawn(machine.live()));
    }
    let injector = tokio::spawn(trouble::inject(world.clone(), random.fork()));
    let mut machines = Vec::new();
    for machine in running {
        machines.push(machine.await.unwrap_or_else(|e| panic!("seed {seed}: {e}")));
    }
    let server_faults = injector.await.unwrap();
    let operations = world.operations.load(Ordering::Relaxed);
    let tally = machines
        .iter()
        .map(|machine| machine.tally)
        .fold(tally::Tally::default(), |a, b| a + b);
    tests::log_line(&format!(
        "chaos: {operations} operations on {} machines in {:.0} s: {tally}; the API server {server_faults}; seed {seed}",
        machines.len(),
        start.elapsed().as_secs_f64()
    ));
    let faults = tally.agents_killed + tally.cuts + tally.deaths;
    // There is a fault of a machine in about 60 operations. A run by hand may be too short for one.
    assert!(faults > 0 || wanted < 1000, "seed {seed}: no machine had a fault");
    after::check(&world, &mut machines, addresses, seed).await;
}
