// SPDX-License-Identifier: Apache-2.0
//! A whole attachment: ADD creates a macvlan link with an address in a new pod, and DEL removes it.

use std::net::IpAddr;

use crate::arena::{Arena, Pod};
use crate::error::Result;
use crate::order::Order;
use crate::plugin::{Attachment, IFNAME, Plugin, Programs, Verb};
use crate::process::{self, Cost};
use crate::sides::{Pair, SIDES, Side};
use crate::{NOOP, progress};

/// The number of runs before the first sample of each side, so that no sample reads a program from the disk.
const WARM_UP: usize = 3;

/// The measurements of whole attachments.
#[derive(Default)]
pub(crate) struct Measured {
    pub(crate) samples: Samples,
    pub(crate) floor: Vec<Cost>,
}

/// The samples of ADD and DEL on both sides.
#[derive(Default)]
pub(crate) struct Samples {
    pub(crate) add: Pair<Vec<Cost>>,
    pub(crate) del: Pair<Vec<Cost>>,
}

/// One step of the random order.
#[derive(Clone, Copy)]
enum Trial {
    Of(Side),
    Floor,
}

const TRIALS: [Trial; 3] = [Trial::Of(Side::Ours), Trial::Of(Side::Reference), Trial::Floor];

/// Measures `runs` attachments on each side.
pub(crate) fn measure(
    arena: &mut Arena,
    programs: &Pair<Programs>,
    runs: usize,
    order: &mut Order,
) -> Result<Measured> {
    let mut plugins = Pair::of(|side| programs[side].macvlan(side, arena));
    progress(&format!(
        "bench: macvlan with IPAM, {runs} attachments on each side"
    ));
    for side in SIDES.repeat(WARM_UP) {
        attach_and_detach(&mut plugins[side], &arena.pod()?, order)?;
    }
    let trials = order.interleave(&TRIALS, runs);
    let pods: Vec<Pod> = trials.iter().map(|_| arena.pod()).collect::<Result<_>>()?;
    let mut measured = Measured::default();
    for (trial, pod) in trials.into_iter().zip(&pods) {
        let Trial::Of(side) = trial else {
            measured.floor.push(do_nothing()?);
            continue;
        };
        let (add, del) = attach_and_detach(&mut plugins[side], pod, order)?;
        measured.samples.add[side].push(add);
        measured.samples.del[side].push(del);
    }
    Ok(measured)
}

fn attach_and_detach(plugin: &mut Plugin, pod: &Pod, order: &mut Order) -> Result<(Cost, Cost)> {
    let attachment = Attachment::new(pod, order);
    let added = plugin.add(&attachment)?;
    expect_link(plugin, Verb::Add, pod, Some(added.address))?;
    let del = plugin.del(&attachment, &added)?;
    expect_link(plugin, Verb::Del, pod, None)?;
    Ok((added.cost, del))
}

/// Checks the links of the pod after `verb`: the link has `address`, or, without an address, does not exist.
fn expect_link(plugin: &Plugin, verb: Verb, pod: &Pod, address: Option<IpAddr>) -> Result<()> {
    let links = pod.links()?;
    let (wanted, as_wanted) = match address {
        Some(address) => {
            let wanted = (IFNAME.to_owned(), Some(address));
            (format!("{IFNAME} with {address}"), links.contains(&wanted))
        }
        None => (
            format!("no {IFNAME}"),
            links.iter().all(|(name, _)| name != IFNAME),
        ),
    };
    as_wanted.then_some(()).ok_or_else(|| {
        plugin.wrong(
            verb,
            format!("the pod should have {wanted}; it has {links:?}"),
            &[],
        )
    })
}

/// Measures a process that does nothing: the cost of fork, exec, exit and wait on this machine.
pub(crate) fn do_nothing() -> Result<Cost> {
    let program = std::path::Path::new("/proc/self/exe");
    Ok(process::run::<&str, &str>(program, &[NOOP], &[], b"")?.cost)
}
