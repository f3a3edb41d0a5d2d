// SPDX-License-Identifier: Apache-2.0
//! An IPAM plugin alone, with a growing store: one more address at several numbers of live leases, and fifty at once.

use std::time::{Duration, Instant};

use crate::arena::{Arena, Pod};
use crate::attach::{Samples, do_nothing};
use crate::error::Result;
use crate::options::Options;
use crate::order::Order;
use crate::plugin::{Added, Attachment, Plugin, Programs, Verb};
use crate::process::{Cost, Finished, Running};
use crate::progress;
use crate::sides::{Pair, SIDES, Side};

/// The number of processes that start at once.
pub(crate) const BURST: usize = 50;
/// The number of bursts on each side at each level.
const BURSTS: usize = 5;
/// The number of leases between two progress messages.
const PROGRESS_STEP: usize = 500;

/// The measurements of the IPAM plugins alone.
pub(crate) struct Measured {
    pub(crate) levels: Vec<Level>,
    pub(crate) floor: Vec<Cost>,
}

/// The measurements at one number of live leases.
#[derive(Default)]
pub(crate) struct Level {
    pub(crate) leases: usize,
    pub(crate) single: Samples,
    pub(crate) burst: Bursts,
}

/// Times from the start of the first process of a burst to the end of the last.
#[derive(Default)]
pub(crate) struct Bursts {
    pub(crate) add: Pair<Vec<Duration>>,
    pub(crate) del: Pair<Vec<Duration>>,
}

/// One step of the random order: an operation at the level of this index, or on an empty store.
#[derive(Clone, Copy)]
enum Trial {
    Of(usize, Side),
    Floor,
}

/// Fills a store for each level and side with the plugins themselves, then measures all stores in one random order, so
/// that other work of the machine affects every level alike.
pub(crate) fn measure(
    arena: &mut Arena,
    programs: &Pair<Programs>,
    options: &Options,
    order: &mut Order,
) -> Result<Measured> {
    let pod = arena.pod()?;
    let mut stores = Vec::new();
    for &leases in &options.leases {
        let mut plugins = Pair::of(|side| programs[side].ipam(side, leases, arena));
        for side in SIDES {
            prove_that_del_releases(&mut plugins[side], &pod, order)?;
            fill(&mut plugins[side], leases, &pod, order)?;
        }
        stores.push(plugins);
    }
    progress(&format!(
        "bench: IPAM alone, {} of each operation and {BURSTS} bursts at each level",
        options.runs
    ));
    let mut measured = Measured {
        levels: options
            .leases
            .iter()
            .map(|&leases| Level {
                leases,
                ..Level::default()
            })
            .collect(),
        floor: Vec::new(),
    };
    one_more(&mut stores, &mut measured, options.runs, &pod, order)?;
    bursts(&mut stores, &mut measured.levels, &pod, order)?;
    Ok(measured)
}

/// Checks that DEL releases: CHECK must find the lease before DEL and not afterwards. Otherwise a DEL that does nothing
/// would look fast.
fn prove_that_del_releases(plugin: &mut Plugin, pod: &Pod, order: &mut Order) -> Result<()> {
    let attachment = Attachment::new(pod, order);
    let added = plugin.add(&attachment)?;
    let before = plugin.check(&attachment, &added)?;
    plugin.del(&attachment, &added)?;
    let after = plugin.check(&attachment, &added)?;
    if before && !after {
        return Ok(());
    }
    let problem = format!(
        "it should succeed after ADD and fail after DEL; it answered {before} and {after} (true = success)"
    );
    Err(plugin.wrong(Verb::Check, problem, &[]))
}

fn fill(plugin: &mut Plugin, leases: usize, pod: &Pod, order: &mut Order) -> Result<()> {
    while plugin.live() < leases {
        plugin.add(&Attachment::new(pod, order))?;
        if plugin.live().is_multiple_of(PROGRESS_STEP) {
            progress(&format!(
                "bench: {} made {} of {leases} leases",
                plugin.name(),
                plugin.live()
            ));
        }
    }
    Ok(())
}

/// Each level on each side.
fn every_store(levels: usize) -> impl Iterator<Item = (usize, Side)> {
    (0..levels).flat_map(|level| SIDES.map(|side| (level, side)))
}

fn one_more(
    stores: &mut [Pair<Plugin>],
    measured: &mut Measured,
    runs: usize,
    pod: &Pod,
    order: &mut Order,
) -> Result<()> {
    let mut kinds: Vec<Trial> = every_store(stores.len())
        .map(|(level, side)| Trial::Of(level, side))
        .collect();
    kinds.push(Trial::Floor);
    for trial in order.interleave(&kinds, runs) {
        let Trial::Of(level, side) = trial else {
            measured.floor.push(do_nothing()?);
            continue;
        };
        let plugin = &mut stores[level][side];
        let attachment = Attachment::new(pod, order);
        let added = plugin.add(&attachment)?;
        let samples = &mut measured.levels[level].single;
        samples.add[side].push(added.cost);
        samples.del[side].push(plugin.del(&attachment, &added)?);
    }
    Ok(())
}

fn bursts(stores: &mut [Pair<Plugin>], levels: &mut [Level], pod: &Pod, order: &mut Order) -> Result<()> {
    let kinds: Vec<(usize, Side)> = every_store(stores.len()).collect();
    for (level, side) in order.interleave(&kinds, BURSTS) {
        let (add, del) = one_burst(&mut stores[level][side], pod, order)?;
        levels[level].burst.add[side].push(add);
        levels[level].burst.del[side].push(del);
    }
    Ok(())
}

/// The durations of [`BURST`] concurrent ADDs and of their DELs.
fn one_burst(plugin: &mut Plugin, pod: &Pod, order: &mut Order) -> Result<(Duration, Duration)> {
    let attachments: Vec<Attachment> = (0..BURST).map(|_| Attachment::new(pod, order)).collect();
    let (answers, add) = at_once(attachments.iter().map(|attachment| plugin.start_add(attachment)))?;
    let added: Vec<Added> = answers
        .iter()
        .map(|answer| plugin.added(answer))
        .collect::<Result<_>>()?;

    let starts = attachments
        .iter()
        .zip(&added)
        .map(|(attachment, added)| plugin.start_del(attachment, added));
    let (answers, del) = at_once(starts)?;
    for (answer, added) in answers.iter().zip(&added) {
        plugin.deleted(answer, added)?;
    }
    Ok((add, del))
}

/// Starts all processes, waits for all of them, and only then checks their results, so that none is left running.
fn at_once(starts: impl Iterator<Item = Result<Running>>) -> Result<(Vec<Finished>, Duration)> {
    let begun = Instant::now();
    let started: Vec<Result<Running>> = starts.collect();
    let finished: Vec<Result<_>> = started.into_iter().map(|running| running?.finish()).collect();
    let took = begun.elapsed();
    Ok((finished.into_iter().collect::<Result<_>>()?, took))
}
