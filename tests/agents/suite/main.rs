// SPDX-License-Identifier: Apache-2.0
//! The guarantees of agents and plugins together, seen from outside: real processes, a real API server, the rights of `conf/`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it lacks by failing"
)]
#![allow(clippy::print_stdout, reason = "what was done is part of the run's record")]

mod addresses;
mod deadlines;
mod edits;
mod events;
mod exhausted;
mod garbage;
mod gone;
mod in_time;
mod late;
mod life;
mod links;
mod lost;
mod lost_del;
mod monitoring;
mod nodes;
mod orphans;
mod overlaps;
mod proxied;
mod quiet;
mod ready;
mod refused;
mod replicas;
mod rights;
mod shared;
mod sticky;
mod streams;
