// SPDX-License-Identifier: Apache-2.0
//! An IPAM plugin alone, as its store fills: one more address at several numbers of live leases, and fifty at once.

use std::time::{Duration, Instant};

use crate::arena::{Arena, Pod};
use crate::attach::{Samples, TRIALS, Trial, do_nothing};
use crate::error::Result;
use crate::options::Options;
use crate::order::Order;
use crate::plugin::{Added, Attachment, Plugin, Programs, Verb};
use crate::process::{Cost, Finished, Running};
use crate::progress;
use crate::sides::{Pair, SIDES};

/// Processes that are started at once.
pub(crate) const BURST: usize = 50;
/// Bursts on each side at each level.
const BURSTS: usize = 5;
/// How many leases are made between two signs of life.
const PROGRESS_STEP: usize = 500;

/// What was measured at one number of live leases.
pub(crate) struct Level {
    pub(crate) leases: usize,
    pub(crate) single: Samples,
    pub(crate) burst: Bursts,
}

/// From the start of the first process of a burst to the end of the last.
#[derive(Default)]
pub(crate) struct Bursts {
    pub(crate) add: Pair<Vec<Duration>>,
    pub(crate) del: Pair<Vec<Duration>>,
}

/// Fills both stores to each level in turn, through the plugins themselves, and measures there.
pub(crate) fn measure(
    arena: &mut Arena,
    programs: &Pair<Programs>,
    options: &Options,
    order: &mut Order,
) -> Result<Vec<Level>> {
    let pod = arena.pod()?;
    let mut plugins = Pair::of(|side| programs[side].ipam(side, arena));
    for side in SIDES {
        prove_that_del_releases(&mut plugins[side], &pod, order)?;
    }
    let levels = options.leases.iter().map(|&leases| {
        for side in SIDES {
            fill(&mut plugins[side], leases, &pod, order)?;
        }
        progress(&format!(
            "bench: IPAM alone at {leases} leases, {} of each on each side",
            options.runs
        ));
        let single = one_more(&mut plugins, options.runs, &pod, order)?;
        let burst = bursts(&mut plugins, &pod, order)?;
        Ok(Level {
            leases,
            single,
            burst,
        })
    });
    levels.collect()
}

/// A DEL that only says yes would look fast: CHECK must find the lease before it, and miss it afterwards.
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

fn one_more(plugins: &mut Pair<Plugin>, runs: usize, pod: &Pod, order: &mut Order) -> Result<Samples> {
    let mut samples = Samples::default();
    for trial in order.interleave(&TRIALS, runs) {
        let Trial::Of(side) = trial else {
            samples.floor.push(do_nothing()?);
            continue;
        };
        let attachment = Attachment::new(pod, order);
        let added = plugins[side].add(&attachment)?;
        samples.add[side].push(added.cost);
        samples.del[side].push(plugins[side].del(&attachment, &added)?);
    }
    Ok(samples)
}

fn bursts(plugins: &mut Pair<Plugin>, pod: &Pod, order: &mut Order) -> Result<Bursts> {
    let mut bursts = Bursts::default();
    for side in order.interleave(&SIDES, BURSTS) {
        let plugin = &mut plugins[side];
        let attachments: Vec<Attachment> = (0..BURST).map(|_| Attachment::new(pod, order)).collect();

        let (answers, took) = at_once(attachments.iter().map(|attachment| plugin.start_add(attachment)))?;
        let added: Vec<Added> = answers
            .iter()
            .map(|answer| plugin.added(answer))
            .collect::<Result<_>>()?;
        bursts.add[side].push(took);

        let starts = attachments
            .iter()
            .zip(&added)
            .map(|(attachment, added)| plugin.start_del(attachment, added));
        let (answers, took) = at_once(starts)?;
        let deleted = answers
            .iter()
            .zip(&added)
            .map(|(answer, added)| plugin.deleted(answer, added));
        deleted.collect::<Result<Vec<Cost>>>()?;
        bursts.del[side].push(took);
    }
    Ok(bursts)
}

/// Starts all processes, waits for all of them, and only then looks at what they answered: none is left running.
fn at_once(starts: impl Iterator<Item = Result<Running>>) -> Result<(Vec<Finished>, Duration)> {
    let begun = Instant::now();
    let started: Vec<Result<Running>> = starts.collect();
    let finished: Vec<Result<_>> = started.into_iter().map(|running| running?.finish()).collect();
    let took = begun.elapsed();
    Ok((finished.into_iter().collect::<Result<_>>()?, took))
}
