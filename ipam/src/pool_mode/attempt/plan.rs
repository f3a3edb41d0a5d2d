// SPDX-License-Identifier: Apache-2.0
//! Decides which addresses an attachment gets, and from which source. Changes nothing.

use super::super::shortage::{AgentNeed, Local};
use super::{AgentReplies, Source};
use crate::allocator::{Allocation, Occupancy, Prober, Refusal, State, try_allocate};
use crate::config::{Request, Requests};
use crate::pool::{AddressPlace, BlockState, PoolFile, PoolRanges};
use crate::range::Family;
use crate::store::Locked;
use common::cni::{Code, Error};
use std::net::IpAddr;

/// The next step.
pub(super) enum Plan {
    /// Allocate these addresses, one of each family.
    Give(Vec<Allocation>),
    /// Ask the agent to claim a block for each of the families.
    Claim(Vec<Family>, AgentNeed),
    /// Ask the agent to allocate these addresses, and one of each of the families.
    Allocate(Vec<IpAddr>, Vec<Family>, AgentNeed),
}

/// Decides for one attachment.
///
/// # Errors
/// Requested addresses that the agent could not allocate either: in use, outside, reserved, or contradicting
/// each other.
pub(super) fn plan(
    pool: &PoolFile,
    ranges: &PoolRanges,
    requests: &Requests,
    (replies, early): (&AgentReplies, Option<Prober>),
    locked: &Locked,
) -> Result<Plan, Error> {
    let mut chosen = Vec::new();
    let (mut ips, mut short, mut elsewhere) = (Vec::new(), Vec::new(), Vec::new());
    let mut need = None;
    let from_agent = |family: Family| match &replies.source {
        Some(Source::Agent(families)) => families.is_empty() || families.contains(&family),
        Some(Source::Blocks) | None => false,
    };
    require_one_of_each(ranges, requests)?;
    for family in ranges.families() {
        let request = requests.iter().find(|request| Family::of(request.ip) == family);
        let granted = replies.granted.iter().find(|ip| Family::of(**ip) == family);
        match (request, granted) {
            (Some(request), _) => match requested(ranges, request, replies, locked)? {
                Some(one) => chosen.push(one),
                None => ips.push(request.ip),
            },
            (None, Some(ip)) => chosen.push(given(ranges, *ip, locked)?),
            (None, None) if from_agent(family) => elsewhere.push(family),
            (None, None) => match in_turn(pool, ranges, family, (locked, early))? {
                Ok(one) => chosen.push(one),
                Err(shortage) => {
                    short.push(family);
                    need = need.or(Some(shortage));
                }
            },
        }
    }
    if let Some(need) = need {
        return Ok(Plan::Claim(short, need));
    }
    if ips.is_empty() && elsewhere.is_empty() {
        return Ok(Plan::Give(chosen));
    }
    let need = AgentNeed::Address { ips: ips.clone() };
    Ok(Plan::Allocate(ips, elsewhere, need))
}

/// Fails unless there is at most one request for each family of the pool: an attachment gets one address of
/// each.
fn require_one_of_each(ranges: &PoolRanges, requests: &Requests) -> Result<(), Error> {
    for (i, request) in requests.iter().enumerate() {
        let family = Family::of(request.ip);
        if let Some(earlier) = requests.iter().take(i).find(|r| Family::of(r.ip) == family) {
            return Err(Error::new(
                Code::INVALID_CONFIG,
                format!(
                    "{request} and {} are of one family, of which a pool gives one address",
                    earlier.ip
                ),
            ));
        }
        if !ranges.families().contains(&family) {
            return Err(outside(ranges, request));
        }
    }
    Ok(())
}

fn outside(ranges: &PoolRanges, request: &Request) -> Error {
    Error::new(
        Code::ADDRESS_OUTSIDE,
        format!("{request} lies outside every range: {}", ranges.describe()),
    )
}

/// A requested address; `None` if the agent must allocate it.
fn requested(
    ranges: &PoolRanges,
    request: &Request,
    replies: &AgentReplies,
    locked: &Locked,
) -> Result<Option<Allocation>, Error> {
    let place = ranges.place(request.ip);
    match &place {
        AddressPlace::Outside => return Err(outside(ranges, request)),
        AddressPlace::Kept(what) => {
            return Err(Error::new(
                Code::ADDRESS_EXCLUDED,
                format!("{request} is {what} and is never allocated"),
            ));
        }
        AddressPlace::Leaving(block) => {
            let what = match block.state {
                BlockState::Sharing => "about to be shared with other nodes",
                _ => "about to be returned",
            };
            return Err(Error::new(
                Code::TRY_AGAIN,
                format!(
                    "{request} lies in block {} of this node, which is {what}; try again",
                    block.cidr
                ),
            ));
        }
        AddressPlace::Here(_) | AddressPlace::Elsewhere => {}
    }
    let Some(range) = ranges.range_of(request.ip) else {
        return Err(outside(ranges, request));
    };
    if let Some(prefix) = request.prefix.filter(|prefix| *prefix != range.subnet.prefix()) {
        return Err(Error::new(
            Code::INVALID_CONFIG,
            format!(
                "{request} is asked for with prefix length {prefix}, but its subnet is {}; leave the length away",
                range.subnet
            ),
        ));
    }
    let may_be_used = require_free(request.ip, locked)?;
    let granted = replies.granted.contains(&request.ip);
    let taken_over = is_taken_over(ranges, request.ip, locked);
    let here = matches!(place, AddressPlace::Here(_)) || granted;
    Ok(here.then(|| Allocation {
        range: range.clone(),
        ip: request.ip,
        in_turn: false,
        probe: may_be_used || granted || taken_over,
    }))
}

/// An address that the agent allocated.
fn given(ranges: &PoolRanges, ip: IpAddr, locked: &Locked) -> Result<Allocation, Error> {
    let Some(range) = ranges.range_of(ip) else {
        return Err(Error::new(
            Code::TRY_AGAIN,
            format!(
                "the agent gave {ip}, which lies outside every range of the pool's file: {}; the file is older than an edit of the pool; try again; if the error repeats, look into the agent's log",
                ranges.describe()
            ),
        ));
    };
    require_free(ip, locked)?;
    Ok(Allocation {
        range: range.clone(),
        ip,
        in_turn: false,
        // Any node may have used it before.
        probe: true,
    })
}

/// Fails if an attachment of this node holds `ip`. Returns whether another host may still use `ip`, because it rests
/// or must be probed.
fn require_free(ip: IpAddr, locked: &Locked) -> Result<bool, Error> {
    let state = locked.state(ip)?;
    if state == State::Taken {
        let owner = locked.owner(ip);
        return Err(Error::new(
            Code::ADDRESS_IN_USE,
            format!("address {ip} is in use by {owner}"),
        ));
    }
    Ok(matches!(state, State::Resting(_)) || locked.must_probe(ip))
}

/// Whether `ip` lies in a block that changed hands and was not used here since, so that a pod of another node
/// may use it.
fn is_taken_over(ranges: &PoolRanges, ip: IpAddr, locked: &Locked) -> bool {
    matches!(ranges.place(ip), AddressPlace::Here(block) if block.epoch > 1 && !locked.has_used(block, ip))
}

/// The next address of this node's blocks, or the shortage.
fn in_turn(
    pool: &PoolFile,
    ranges: &PoolRanges,
    family: Family,
    (locked, early): (&Locked, Option<Prober>),
) -> Result<Result<Allocation, AgentNeed>, Error> {
    let here = [ranges.here(family)];
    match try_allocate(&here, &Requests::default(), locked, early) {
        Ok(mut allocations) => match allocations.pop() {
            Some(allocation) => Ok(Ok(Allocation {
                probe: allocation.probe || is_taken_over(ranges, allocation.ip, locked),
                ..allocation
            })),
            None => Err(Error::new(Code::INTERNAL, "a range set gave no address")),
        },
        Err(Refusal::Short(shortage)) => Ok(Err(AgentNeed::Block(Local::of(pool, family, &shortage)))),
        Err(Refusal::Other(error)) => Err(error),
    }
}
