// SPDX-License-Identifier: Apache-2.0
//! Decides which addresses an attachment gets. It reads the state of addresses from an [`Occupancy`]; its
//! decision takes effect when the store commits it.
//!
//! Allocation is next-fit: the search in a range starts after the address that the range gave last, so an
//! address is reused as late as the range allows.

use crate::config::{Request, Requests};
use crate::interval::IntervalSet;
use crate::range::{Family, Membership, Range, bits};
use common::cni::{Code, Error};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// How many addresses are checked one by one before all are listed. A check costs a few microseconds; listing
/// costs a fraction of that for every live address.
const PROBES: u128 = 32;

/// The state of an address in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No attachment holds it.
    Free,
    /// An attachment holds it.
    Taken,
    /// It was released, and may be allocated again after this time.
    Resting(Duration),
}

/// Every address of one family that is not free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occupied {
    /// Held by attachments.
    pub taken: IntervalSet,
    /// Released and still resting.
    pub resting: IntervalSet,
    /// The time until each of `resting` is free, by its number.
    pub rests: BTreeMap<u128, Duration>,
}

/// A released address that still rests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resting {
    /// The address.
    pub ip: IpAddr,
    /// `namespace/name` of the pod that held it, if the runtime named one.
    pub pod: Option<String>,
    /// When its lease ended, on the kernel's clock.
    pub ended: Duration,
    /// Whether another host may have the address: it is the last choice, so that a retried pod does not get it again and
    /// again.
    pub is_doubtful: bool,
}

/// A pod whose main plugin probes addresses. It may get a resting address when no other address is left.
#[derive(Clone, Copy, Debug)]
pub struct Prober<'p> {
    /// `namespace/name` of the pod, if the runtime named one.
    pub pod: Option<&'p str>,
}

/// The state of a store, as the allocator reads it.
pub trait Occupancy {
    /// The state of one address.
    fn state(&self, ip: IpAddr) -> Result<State, Error>;
    /// Whether another host may still use an address that is free here.
    fn must_probe(&self, ip: IpAddr) -> bool;
    /// The holder of a taken address, for a person.
    fn owner(&self, ip: IpAddr) -> String;
    /// The state of all addresses of a family.
    fn occupied(&self, family: Family) -> Result<Occupied, Error>;
    /// The address that a range gave last.
    fn cursor(&self, range: &Range) -> Option<IpAddr>;
    /// The resting addresses of a family that no attachment holds.
    fn resting(&self, family: Family) -> Result<Vec<Resting>, Error>;
}

/// A chosen address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The range it comes from.
    pub range: Range,
    /// The address.
    pub ip: IpAddr,
    /// Whether it is the next address of its range, so that the range continues after it.
    pub in_turn: bool,
    /// Whether another host may still use it: it still rests, its last lease ended without DEL, the last probe
    /// probably found a host, or another node could allocate it before.
    pub probe: bool,
}

/// Allocates one address from each set, or none at all. Requested addresses are checked first. With a
/// `prober`, a set without other addresses gives a resting one.
///
/// # Errors
/// [`Code::EXHAUSTED`]; [`Code::TRY_AGAIN`] if only resting addresses are left; for requests
/// [`Code::ADDRESS_IN_USE`], [`Code::ADDRESS_OUTSIDE`], [`Code::ADDRESS_EXCLUDED`] or
/// [`Code::INVALID_CONFIG`].
pub fn allocate(
    sets: &[Vec<Range>],
    requests: &Requests,
    store: &impl Occupancy,
    prober: Option<Prober>,
) -> Result<Vec<Allocation>, Error> {
    try_allocate(sets, requests, store, prober).map_err(|refusal| match refusal {
        Refusal::Short(shortage) => shortage.error(),
        Refusal::Other(error) => error,
    })
}

/// The reason why nothing was allocated.
#[derive(Debug)]
pub enum Refusal {
    /// A set has no address to allocate now.
    Short(Shortage),
    /// A request cannot be fulfilled, or the store cannot be read.
    Other(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// As [`allocate`], with a shortage as numbers instead of text.
///
/// # Errors
/// [`Refusal`], whose errors are those of [`allocate`].
pub fn try_allocate(
    sets: &[Vec<Range>],
    requests: &Requests,
    store: &impl Occupancy,
    prober: Option<Prober>,
) -> Result<Vec<Allocation>, Refusal> {
    let mut asked: Vec<Option<Allocation>> = vec![None; sets.len()];
    for request in requests.iter() {
        let (index, range) = place(sets, request)?;
        if let Some(earlier) = &asked[index] {
            return Err(Refusal::Other(Error::new(
                Code::INVALID_CONFIG,
                format!(
                    "{request} and {} come from one range set ({range}), which gives one address",
                    earlier.ip
                ),
            )));
        }
        let state = store.state(request.ip)?;
        if state == State::Taken {
            let owner = store.owner(request.ip);
            return Err(Refusal::Other(Error::new(
                Code::ADDRESS_IN_USE,
                format!("{request} is in use by {owner}"),
            )));
        }
        asked[index] = Some(Allocation {
            range: range.clone(),
            ip: request.ip,
            in_turn: false,
            probe: matches!(state, State::Resting(_)) || store.must_probe(request.ip),
        });
    }
    let mut listed = Listed::default();
    let (mut given, mut short) = (Vec::new(), None::<Shortage>);
    for (set, asked) in sets.iter().zip(asked) {
        let found = match asked {
            Some(asked) => Ok(asked),
            None => next(set, store, &mut listed).or_else(|refusal| match (refusal, prober) {
                (Refusal::Short(shortage), Some(prober)) if shortage.resting > 0 => {
                    early(set, store, prober)?.ok_or(Refusal::Short(shortage))
                }
                (refusal, _) => Err(refusal),
            }),
        };
        match found {
            Ok(allocation) => given.push(allocation),
            Err(Refusal::Short(shortage)) if shortage.outweighs(short.as_ref()) => short = Some(shortage),
            Err(Refusal::Short(_)) => {}
            Err(other) => return Err(other),
        }
    }
    short.map_or(Ok(given), |shortage| Err(Refusal::Short(shortage)))
}

/// The set and range of a requested address.
fn place<'r>(sets: &'r [Vec<Range>], request: &Request) -> Result<(usize, &'r Range), Error> {
    let ranges = || {
        sets.iter()
            .enumerate()
            .flat_map(|(i, set)| set.iter().map(move |range| (i, range)))
    };
    if let Some((index, range)) =
        ranges().find(|(_, range)| range.membership(request.ip) == Membership::Usable)
    {
        return match request.prefix.filter(|prefix| *prefix != range.subnet.prefix()) {
            None => Ok((index, range)),
            Some(prefix) => Err(Error::new(
                Code::INVALID_CONFIG,
                format!(
                    "{request} is asked for with prefix length {prefix}, but its subnet is {}; leave the length away",
                    range.subnet
                ),
            )),
        };
    }
    for (_, range) in ranges() {
        if let Membership::Reserved(what) = range.membership(request.ip) {
            return Err(Error::new(
                Code::ADDRESS_EXCLUDED,
                format!(
                    "{request} is {what} in {} ({range}) and is never allocated",
                    range.place
                ),
            ));
        }
    }
    let all = ranges()
        .map(|(_, range)| range.to_string())
        .collect::<Vec<_>>()
        .join(", ");
    Err(Error::new(
        Code::ADDRESS_OUTSIDE,
        format!("{request} lies outside every range of this network: {all}"),
    ))
}

/// The addresses that are not free, listed at most once per family, however many ranges are full.
#[derive(Default)]
struct Listed([Option<Occupied>; 2]);

impl Listed {
    fn of(&mut self, family: Family, store: &impl Occupancy) -> Result<&Occupied, Error> {
        let slot = &mut self.0[usize::from(family == Family::V6)];
        if slot.is_none() {
            *slot = Some(store.occupied(family)?);
        }
        Ok(slot.get_or_insert_default())
    }
}

/// The next free address of the first range of `set` that has one.
fn next(set: &[Range], store: &impl Occupancy, listed: &mut Listed) -> Result<Allocation, Refusal> {
    let mut shortage = Shortage::default();
    for range in set {
        let mut found = probe(range, store)?;
        if found.is_none() {
            let occupied = listed.of(range.family(), store)?;
            let free = range.free().minus(&occupied.taken).minus(&occupied.resting);
            found = successor(range, &free, store.cursor(range)).map(|number| range.family().address(number));
            if found.is_none() {
                shortage.add(range, occupied);
            }
        }
        if let Some(ip) = found {
            return Ok(Allocation {
                range: range.clone(),
                ip,
                in_turn: true,
                probe: store.must_probe(ip),
            });
        }
    }
    Err(Refusal::Short(shortage))
}

/// A resting address of `set`: the pod's previous one, else the one that has rested longest.
fn early(set: &[Range], store: &impl Occupancy, prober: Prober) -> Result<Option<Allocation>, Error> {
    let Some(family) = set.first().map(Range::family) else {
        return Ok(None);
    };
    let range_of = |ip: IpAddr| set.iter().find(|range| range.free().contains(bits(ip)));
    let rank = |resting: &Resting| {
        let is_pods_own = prober.pod.is_some() && resting.pod.as_deref() == prober.pod;
        (resting.is_doubtful, !is_pods_own, resting.ended, resting.ip)
    };
    let candidates = store.resting(family)?.into_iter();
    let best = candidates
        .filter_map(|resting| Some((rank(&resting), resting.ip, range_of(resting.ip)?)))
        .min_by_key(|(rank, ..)| *rank);
    Ok(best.map(|(_, ip, range)| Allocation {
        range: range.clone(),
        ip,
        in_turn: false,
        probe: true,
    }))
}

/// Checks the few addresses after the cursor; the first one is nearly always free.
fn probe(range: &Range, store: &impl Occupancy) -> Result<Option<IpAddr>, Error> {
    let mut cursor = store.cursor(range);
    for _ in 0..range.free().count().min(PROBES) {
        let Some(number) = successor(range, range.free(), cursor) else {
            return Ok(None);
        };
        let ip = range.family().address(number);
        if store.state(ip)? == State::Free {
            return Ok(Some(ip));
        }
        cursor = Some(ip);
    }
    Ok(None)
}

/// The member of `free` after `cursor`, wrapping around at the end of the range.
fn successor(range: &Range, free: &IntervalSet, cursor: Option<IpAddr>) -> Option<u128> {
    let after = cursor
        .filter(|ip| Family::of(*ip) == range.family())
        .and_then(|ip| bits(ip).checked_add(1));
    after
        .and_then(|number| free.first_from(number))
        .or_else(|| free.first_from(0))
}

/// Why a set has no address to allocate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shortage {
    /// The family of the set.
    pub family: Option<Family>,
    /// The number of addresses of the set, allocated or not.
    pub size: u128,
    /// How many of them attachments hold.
    pub taken: u128,
    /// How many of them rest.
    pub resting: u128,
    /// The time until the first of those is free; `None` if none rests.
    pub next: Option<Duration>,
    ranges: Vec<String>,
}

impl Shortage {
    fn add(&mut self, range: &Range, occupied: &Occupied) {
        let size = range.free().count();
        let without_taken = range.free().minus(&occupied.taken);
        let untaken = without_taken.intervals().iter();
        let rests = untaken.flat_map(|untaken| occupied.rests.range(untaken.first..=untaken.last));
        let rests: Vec<Duration> = rests.map(|(_, rest)| *rest).collect();
        self.ranges.push(range.to_string());
        self.family = Some(range.family());
        self.size = self.size.saturating_add(size);
        self.taken = self.taken.saturating_add(size - without_taken.count());
        self.resting = self.resting.saturating_add(rests.len() as u128);
        self.next = rests.into_iter().chain(self.next).min();
    }

    /// Whether this is the cause to report after `earlier`: an address of `earlier` becomes free by itself, and none of this one.
    fn outweighs(&self, earlier: Option<&Self>) -> bool {
        earlier.is_none_or(|earlier| earlier.next.is_some() && self.next.is_none())
    }

    /// The seconds until a resting address is free, for a person.
    pub fn seconds(&self) -> u128 {
        self.next.unwrap_or_default().as_millis().div_ceil(1000).max(1)
    }

    fn error(&self) -> Error {
        let Self {
            size, taken, resting, ..
        } = self;
        let ranges = self.ranges.join(", ");
        match self.next {
            None => Error::new(
                Code::EXHAUSTED,
                format!(
                    "no address is left in {ranges}: {taken} of {size} in use; widen the range or remove pods"
                ),
            ),
            Some(_) => Error::new(
                Code::TRY_AGAIN,
                format!(
                    "no address is free yet in {ranges}: {taken} of {size} in use, {resting} released and resting; try again in {} s",
                    self.seconds()
                ),
            ),
        }
    }
}

#[cfg(test)]
mod tests;
