// SPDX-License-Identifier: Apache-2.0
//! A range: the addresses of one subnet that may be allocated, without its exclusions.
//!
//! Invariant: every address of `free` may be given to a pod. None is a network or broadcast address, a
//! subnet-router anycast address, a gateway or excluded. `free` is not empty, except in a pool's range that
//! no block of this node covers.

use crate::interval::{Interval, IntervalSet};
use crate::text::invalid;
use common::cni::Error;
use ipnetwork::IpNetwork;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The IP family of a range. Numbers of different families are never compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Numbers below 2^32.
    V4,
    /// All 128 bits.
    V6,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// The settings of one range, parsed but not checked against each other.
#[derive(Clone, Debug)]
pub struct RangeSpec {
    /// Its place in the configuration, such as `ipam.ranges[0][1]`.
    pub place: String,
    /// The subnet. Each address gets its prefix length.
    pub subnet: IpNetwork,
    /// The first address to allocate.
    pub start: Option<IpAddr>,
    /// The last address to allocate.
    pub end: Option<IpAddr>,
    /// The gateway to report.
    pub gateway: Option<IpAddr>,
    /// Addresses that this range never allocates, as first and last address.
    pub exclude: Vec<(IpAddr, IpAddr)>,
}

/// The settings that all ranges of a network share. They are stored once: with a copy per range, a thousand
/// ranges with thousands of exclusions would cost the product of both.
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
    /// The gateways of all ranges, which are never allocated, and the exclusions that apply to all ranges.
    pub fn new(gateways: impl IntoIterator<Item = IpAddr>, exclude: &[(IpAddr, IpAddr)]) -> Self {
        let gateways: Vec<_> = gateways.into_iter().map(|ip| (ip, ip)).collect();
        Self {
            gateways: Addresses::of(&gateways),
            excluded: Addresses::of(exclude),
        }
    }
}

/// The pairs of first and last address that are of `family`, as intervals.
pub(crate) fn intervals(pairs: &[(IpAddr, IpAddr)], family: Family) -> IntervalSet {
    pairs
        .iter()
        .filter(|(first, _)| Family::of(*first) == family)
        .filter_map(|(first, last)| Interval::new(bits(*first), bits(*last)))
        .collect()
}

/// A range from which addresses are allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// Its place in the configuration.
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

/// Whether a range may allocate an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// It may.
    Usable,
    /// It is not between the range's first and last address.
    Outside,
    /// It lies in the subnet but is reserved. The text names the reason.
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

    /// The number of bits of an address.
    pub fn width(self) -> u8 {
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

/// All addresses of `subnet` as numbers.
pub fn whole(subnet: IpNetwork) -> Interval {
    Interval {
        first: bits(subnet.network()),
        last: bits(subnet.broadcast()),
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

/// The host addresses of `subnet`: all of a /31 (RFC 3021), /32, /127 (RFC 6164) and /128. Otherwise without the
/// network address and, for IPv4, the broadcast address. In IPv6 the all-zero host is the subnet-router anycast
/// address (RFC 4291 § 2.6.1), and the last address is an ordinary one.
fn hosts(subnet: IpNetwork) -> Interval {
    let Interval { first, last } = whole(subnet);
    if Family::of(subnet.ip()).width() - subnet.prefix() <= 1 {
        return Interval { first, last };
    }
    Interval {
        first: first + 1,
        last: if subnet.is_ipv4() { last - 1 } else { last },
    }
}

/// The default gateway of host-local: the first host. Subnets of one or two addresses have none.
pub fn default_gateway(subnet: IpNetwork) -> Option<IpAddr> {
    let family = Family::of(subnet.ip());
    (family.width() - subnet.prefix() > 1).then(|| family.address(hosts(subnet).first))
}

impl RangeSpec {
    /// The first and last address as numbers.
    ///
    /// # Errors
    /// Code 7 if an address lies outside the subnet, or the range is inverted.
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
    /// Checks `spec`. `shared` has the settings that all ranges of the network share.
    ///
    /// # Errors
    /// Code 7 if an address lies outside the subnet, the range is inverted, or no address
    /// is left.
    pub fn new(spec: RangeSpec, shared: &Arc<Shared>) -> Result<Self, Error> {
        let range = Self::perhaps_empty(spec, shared)?;
        if range.free.is_empty() {
            return Err(invalid(range.why_empty()));
        }
        Ok(range)
    }

    /// As [`Range::new`], but the exclusions may cover the whole range.
    ///
    /// # Errors
    /// Code 7 if an address lies outside the subnet or the range is inverted.
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

    /// The same range limited to `allowed`; it may be empty.
    #[must_use]
    pub fn within(&self, allowed: &IntervalSet) -> Self {
        Self {
            free: self.free.both(allowed),
            ..self.clone()
        }
    }

    /// The family of its addresses.
    pub fn family(&self) -> Family {
        Family::of(self.subnet.ip())
    }

    /// The addresses that may be allocated, as numbers.
    pub fn free(&self) -> &IntervalSet {
        &self.free
    }

    /// Whether the two ranges, from first to last address, overlap.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.family() == other.family() && self.window.overlaps(other.window)
    }

    /// Whether one of `addresses`, of its family, lies between its first and last address.
    pub fn reaches(&self, addresses: Interval) -> bool {
        self.window.overlaps(addresses)
    }

    /// Whether `ip` may be allocated, and if not, why.
    pub fn membership(&self, ip: IpAddr) -> Membership {
        let number = bits(ip);
        if !self.subnet.contains(ip) {
            Membership::Outside
        } else if !hosts(self.subnet).contains(number) {
            Membership::Reserved(match ip {
                IpAddr::V4(_) if ip == self.subnet.network() => "the network address",
                IpAddr::V4(_) => "the broadcast address",
                IpAddr::V6(_) => "the subnet-router anycast address",
            })
        } else if self.gateways().contains(number) {
            Membership::Reserved("a gateway")
        } else if self.excluded.contains(number)
            || self.shared.excluded.of_family(self.family()).contains(number)
        {
            Membership::Reserved("excluded")
        } else if self.window.contains(number) {
            Membership::Usable
        } else {
            Membership::Outside
        }
    }

    /// The settings that it shares with the other ranges of its network.
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

/// `first-last`, in the notation of an administrator.
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
    // The prefix length comes from a subnet, so it is valid.
    IpNetwork::new(subnet.network(), subnet.prefix()).unwrap_or(subnet)
}

#[cfg(test)]
mod tests;
