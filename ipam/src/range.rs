// SPDX-License-Identifier: Apache-2.0
//! A range: the part of one subnet from which addresses are handed out, less its exclusions.
//!
//! Invariant: every address of `free` may be given to a pod, so none is a network or broadcast address, a
//! subnet-router anycast address, a gateway or excluded; and `free` is not empty but for the part of a pool's range
//! that no block of this node covers.

use crate::interval::{Interval, IntervalSet};
use common::cni::{Code, Error};
use ipnetwork::IpNetwork;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The IP family of a range; numbers of the two never meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Numbers below 2^32.
    V4,
    /// All 128 bits.
    V6,
}

/// What a user wrote about one range, each value readable on its own.
#[derive(Clone, Debug)]
pub struct RangeSpec {
    /// Where it stands in the configuration, such as `ipam.ranges[0][1]`.
    pub place: String,
    /// The subnet; its prefix length becomes that of every address.
    pub subnet: IpNetwork,
    /// The first address to hand out.
    pub start: Option<IpAddr>,
    /// The last address to hand out.
    pub end: Option<IpAddr>,
    /// The gateway to report.
    pub gateway: Option<IpAddr>,
    /// Addresses that this range never hands out, first and last of each block.
    pub exclude: Vec<(IpAddr, IpAddr)>,
}

/// What the ranges of a network have in common. It is made once, so that a thousand ranges with thousands of exclusions
/// cost their sum and not their product.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    gateways: Addresses,
    excluded: Addresses,
}

/// Addresses of both families.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Addresses([IntervalSet; 2]);

impl Addresses {
    fn of(pairs: &[(IpAddr, IpAddr)]) -> Self {
        Self([Family::V4, Family::V6].map(|family| intervals(pairs, family)))
    }

    fn of_family(&self, family: Family) -> &IntervalSet {
        let [v4, v6] = &self.0;
        match family {
            Family::V4 => v4,
            Family::V6 => v6,
        }
    }
}

impl Shared {
    /// The gateways of all ranges, none of which is ever handed out, and exclusions that hold for all ranges.
    pub fn new(gateways: impl IntoIterator<Item = IpAddr>, exclude: &[(IpAddr, IpAddr)]) -> Self {
        let gateways: Vec<_> = gateways.into_iter().map(|ip| (ip, ip)).collect();
        Self {
            gateways: Addresses::of(&gateways),
            excluded: Addresses::of(exclude),
        }
    }
}

/// Those of `pairs` of first and last address that are of `family`.
pub(crate) fn intervals(pairs: &[(IpAddr, IpAddr)], family: Family) -> IntervalSet {
    pairs
        .iter()
        .filter(|(first, _)| Family::of(*first) == family)
        .filter_map(|(first, last)| Interval::new(bits(*first), bits(*last)))
        .collect()
}

/// A range that addresses are handed out from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// Where it stands in the configuration.
    pub place: String,
    /// The subnet, without host bits.
    pub subnet: IpNetwork,
    /// Reported with each address.
    pub gateway: Option<IpAddr>,
    window: Interval,
    excluded: IntervalSet,
    shared: Arc<Shared>,
    free: IntervalSet,
}

/// Whether an address may be handed out by a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Usable,
    /// It is not between the range's first and last address.
    Outside,
    /// It lies in the subnet but is kept back; the text says as what.
    Reserved(&'static str),
}

impl Family {
    /// The family of `ip`.
    pub fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The address of this family with the number `bits`.
    pub fn address(self, bits: u128) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(bits).unwrap_or(u32::MAX))),
            Self::V6 => IpAddr::V6(Ipv6Addr::from_bits(bits)),
        }
    }

    fn width(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }
}

/// The number of an address within its family.
pub fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

/// One address as an interval.
pub fn single(ip: IpAddr) -> Interval {
    let number = bits(ip);
    Interval {
        first: number,
        last: number,
    }
}

/// The addresses of `subnet` that hosts may have: all of a /31 (RFC 3021), /32, /127 (RFC 6164) and /128; otherwise
/// neither the network address nor, for IPv4, the broadcast address. In IPv6 the all-zero host is the
/// subnet-router anycast address (RFC 4291 § 2.6.1), and the last address is one like any other.
fn hosts(subnet: IpNetwork) -> Interval {
    let (first, last) = (bits(subnet.network()), bits(subnet.broadcast()));
    if Family::of(subnet.ip()).width() - subnet.prefix() <= 1 {
        return Interval { first, last };
    }
    Interval {
        first: first + 1,
        last: if subnet.is_ipv4() { last - 1 } else { last },
    }
}

/// The gateway that host-local takes when none is written: the first host. Subnets of one or two addresses have none
/// to spare.
pub fn default_gateway(subnet: IpNetwork) -> Option<IpAddr> {
    let family = Family::of(subnet.ip());
    (family.width() - subnet.prefix() > 1).then(|| family.address(hosts(subnet).first))
}

impl RangeSpec {
    /// Its first and last address as numbers.
    ///
    /// # Errors
    /// [`Code::INVALID_CONFIG`] when an address lies outside the subnet or the range is inverted.
    pub fn window(&self) -> Result<Interval, Error> {
        let Self { place, subnet, .. } = self;
        let inside = |key: &str, ip: Option<IpAddr>| match ip.filter(|ip| !subnet.contains(*ip)) {
            Some(ip) => Err(invalid(format!(
                "{place}: {key} {ip} lies outside the subnet {}",
                network_of(*subnet)
            ))),
            None => Ok(ip.map(bits)),
        };
        let hosts = hosts(*subnet);
        let first = inside("range start", self.start)?.unwrap_or(hosts.first);
        let last = inside("range end", self.end)?.unwrap_or(hosts.last);
        inside("gateway", self.gateway)?;
        let family = Family::of(subnet.ip());
        Interval::new(first, last).ok_or_else(|| {
            let (first, last) = (family.address(first), family.address(last));
            invalid(format!(
                "{place}: the range is inverted: its start {first} comes after its end {last}"
            ))
        })
    }
}

impl Range {
    /// Checks `spec`; `shared` is what all ranges of the network have in common.
    ///
    /// # Errors
    /// [`Code::INVALID_CONFIG`] when an address lies outside the subnet, the range is inverted, or nothing is left.
    pub fn new(spec: RangeSpec, shared: &Arc<Shared>) -> Result<Self, Error> {
        let range = Self::perhaps_empty(spec, shared)?;
        if range.free.is_empty() {
            return Err(invalid(range.why_empty()));
        }
        Ok(range)
    }

    /// As [`Range::new`], but the exclusions may cover all of it.
    ///
    /// # Errors
    /// [`Code::INVALID_CONFIG`] when an address lies outside the subnet or the range is inverted.
    pub fn perhaps_empty(spec: RangeSpec, shared: &Arc<Shared>) -> Result<Self, Error> {
        let window = spec.window()?;
        let RangeSpec {
            place,
            subnet,
            gateway,
            exclude,
            ..
        } = spec;
        let (hosts, family) = (hosts(subnet), Family::of(subnet.ip()));
        let excluded = intervals(&exclude, family);
        let usable = Interval::new(window.first.max(hosts.first), window.last.min(hosts.last));
        let free = usable
            .into_iter()
            .collect::<IntervalSet>()
            .minus(&excluded.within(window))
            .minus(&shared.excluded.of_family(family).within(window))
            .minus(&shared.gateways.of_family(family).within(window));
        Ok(Self {
            place,
            subnet: network_of(subnet),
            gateway,
            window,
            excluded,
            shared: Arc::clone(shared),
            free,
        })
    }

    /// The same range with nothing to hand out but what is also in `allowed`; that may be nothing at all.
    #[must_use]
    pub fn within(&self, allowed: &IntervalSet) -> Self {
        Self {
            free: self.free.and(allowed),
            ..self.clone()
        }
    }

    /// The family of its addresses.
    pub fn family(&self) -> Family {
        Family::of(self.subnet.ip())
    }

    /// The addresses that may be handed out, as numbers.
    pub fn free(&self) -> &IntervalSet {
        &self.free
    }

    /// Whether some address lies between first and last of both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.family() == other.family() && self.window.overlaps(other.window)
    }

    /// Whether one of these addresses of its family lies between its first and its last one.
    pub fn reaches(&self, addresses: Interval) -> bool {
        self.window.overlaps(addresses)
    }

    /// Whether `ip` may be handed out, and if not, why.
    pub fn verdict(&self, ip: IpAddr) -> Verdict {
        let number = bits(ip);
        if !self.subnet.contains(ip) {
            Verdict::Outside
        } else if !hosts(self.subnet).contains(number) {
            Verdict::Reserved(match ip {
                IpAddr::V4(_) if ip == self.subnet.network() => "the network address",
                IpAddr::V4(_) => "the broadcast address",
                IpAddr::V6(_) => "the subnet-router anycast address",
            })
        } else if self.gateways().contains(number) {
            Verdict::Reserved("a gateway")
        } else if self.excluded.contains(number)
            || self.shared.excluded.of_family(self.family()).contains(number)
        {
            Verdict::Reserved("excluded")
        } else if self.window.contains(number) {
            Verdict::Usable
        } else {
            Verdict::Outside
        }
    }

    /// What it has in common with the other ranges of its network.
    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn gateways(&self) -> &IntervalSet {
        self.shared.gateways.of_family(self.family())
    }

    fn why_empty(&self) -> String {
        let gateways = self.gateways().within(self.window);
        let gateway = gateways
            .intervals()
            .first()
            .map(|i| self.family().address(i.first));
        let gateway = gateway
            .map(|ip| format!(" and the gateway {ip} (\"gateway\": \"none\" sets none)"))
            .unwrap_or_default();
        format!(
            "{}: no address is left in {self}: its exclusions{gateway} cover all of it; widen the range or exclude less",
            self.place
        )
    }
}

/// `first-last`, as an administrator would write it.
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = self.family();
        write!(
            f,
            "{}-{}",
            family.address(self.window.first),
            family.address(self.window.last)
        )
    }
}

/// `subnet` without its host bits.
fn network_of(subnet: IpNetwork) -> IpNetwork {
    // A prefix length taken from a subnet is one that subnets have.
    IpNetwork::new(subnet.network(), subnet.prefix()).unwrap_or(subnet)
}

fn invalid(msg: String) -> Error {
    Error::new(Code::INVALID_CONFIG, msg)
}

#[cfg(test)]
mod tests;
