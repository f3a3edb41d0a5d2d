// SPDX-License-Identifier: Apache-2.0
//! Explores all states of a story, for tests that compare stories.

use super::{Scenario, print_states};
use crate::tests::world::World;
use stateright::Model;
use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::thread;

/// The result of an exploration.
#[derive(Default)]
pub(super) struct Explored {
    /// The fingerprints ([`print`]) of all states, without the details that make no difference.
    pub(super) states: HashSet<u64>,
    /// Whether an address has two pods in some state.
    pub(super) two_pods: bool,
}

/// The fingerprint of a state. Among a hundred million states, two have the same one with a probability of one in four thousand.
fn print(world: &World) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(world)
}

/// The successors of `worlds` whose fingerprints are not in `met`.
fn after(scenario: &Scenario, worlds: &[World], met: &HashSet<u64>) -> Vec<(u64, World)> {
    let mut events = Vec::new();
    let mut new = Vec::new();
    for world in worlds {
        scenario.actions(world, &mut events);
        let worlds = events
            .drain(..)
            .filter_map(|event| scenario.next_state(world, event));
        let worlds = worlds.filter(|world| scenario.within_boundary(world));
        let worlds = worlds.map(|world| (print(&world), world));
        new.extend(worlds.filter(|(print, _)| !met.contains(print)));
    }
    new
}

/// Explores `scenario` completely. The checker can visit each state too, but only together with its path, which it recomputes each
/// time.
pub(super) fn explore(scenario: &Scenario) -> Explored {
    let mut met = HashSet::new();
    let mut explored = Explored::default();
    let mut wave = scenario.init_states();
    while !wave.is_empty() {
        let mut next = Vec::new();
        for part in wave.chunks(20_000) {
            let half = part.len().div_ceil(2);
            let found: Vec<_> = thread::scope(|scope| {
                let met = &met;
                let halves = part
                    .chunks(half)
                    .map(|worlds| scope.spawn(|| after(scenario, worlds, met)));
                let halves: Vec<_> = halves.collect();
                halves.into_iter().map(|half| half.join().unwrap()).collect()
            });
            let found = found.into_iter().flatten();
            next.extend(
                found
                    .filter(|(print, _)| met.insert(*print))
                    .map(|(_, world)| world),
            );
        }
        explored.two_pods |= next.iter().any(|world| world.pods() > 1);
        explored.states.extend(next.iter().map(|world| {
            let mut world = world.clone();
            scenario.forget(&mut world);
            world.settle_names();
            print(&world)
        }));
        wave = next;
    }
    print_states(met.len());
    explored
}
