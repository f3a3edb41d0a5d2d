// SPDX-License-Identifier: Apache-2.0
//! From every spelling of a range to one [`RangeSpec`], and from those to ranges that do not contradict each other.

use super::invalid;
use super::raw::{RawIpRange, RawIpam, RawRange};
use super::text::{address, exclusions, network};
use crate::range::{Range, RangeSpec, default_gateway};
use common::cni::Error;
use ipnetwork::IpNetwork;
use std::net::IpAddr;

/// A `gateway` as it is written.
#[derive(Clone, Copy)]
enum Gateway {
    /// `"none"`: not even host-local's default.
    None,
    At(IpAddr),
}

/// What a range is given beside its subnet and limits.
#[derive(Clone)]
struct Extras {
    /// The range's own `gateway`, or a `"none"` for all.
    own: Option<Gateway>,
    /// `ipam.gateway`: that of the subnet it lies in.
    top: Option<IpAddr>,
    exclude: Vec<(IpAddr, IpAddr)>,
}

/// The first and last address of a range as written, with the keys they stand under.
struct Limits<'t> {
    start: (&'static str, Option<&'t str>),
    end: (&'static str, Option<&'t str>),
}

/// Reads all ranges, `runtimeConfig.ipRanges` in place of those of the configuration. What is valid but odd is
/// added to `notes`.
pub(super) fn specs(
    ipam: &RawIpam,
    runtime: Option<&[Vec<RawRange>]>,
    notes: &mut Vec<String>,
) -> Result<Vec<Vec<RangeSpec>>, Error> {
    let mut extras = Extras {
        own: None,
        top: None,
        exclude: exclusions("ipam.exclude", ipam.exclude.as_deref())?,
    };
    match gateway("ipam.gateway", ipam.gateway.as_deref())? {
        Some(Gateway::At(ip)) => extras.top = Some(ip),
        none => extras.own = none,
    }
    let sets = match runtime.filter(|sets| !sets.is_empty()) {
        Some(sets) => own_sets(sets, "runtimeConfig.ipRanges", &extras)?,
        None => [
            own_spelling(ipam, &extras)?,
            whereabouts_spelling(ipam, &extras, notes)?,
        ]
        .concat(),
    };
    if sets.is_empty() {
        return Err(invalid(
            "no range is set: write ipam.ranges, such as [[{\"subnet\": \"10.0.0.0/24\"}]], or name an IPPool of the cluster by ipam.pool"
                .to_owned(),
        ));
    }
    let subnets = || sets.iter().flatten().map(|spec| spec.subnet);
    match extras
        .top
        .filter(|ip| !subnets().any(|subnet| subnet.contains(*ip)))
    {
        None => Ok(sets),
        Some(ip) => {
            let subnets = subnets()
                .map(|subnet| subnet.to_string())
                .collect::<Vec<_>>()
                .join(", ");
            Err(invalid(format!(
                "ipam.gateway {ip} lies outside every subnet: {subnets}"
            )))
        }
    }
}

/// Makes the ranges, and refuses sets of two families and ranges that overlap.
pub(super) fn build(specs: Vec<Vec<RangeSpec>>, notes: &mut Vec<String>) -> Result<Vec<Vec<Range>>, Error> {
    let all = || specs.iter().flatten();
    let gateways: Vec<IpAddr> = all().filter_map(|spec| spec.gateway).collect();
    for (first, last) in all().flat_map(|spec| &spec.exclude) {
        if !all().any(|spec| spec.subnet.contains(*first) || spec.subnet.contains(*last)) {
            notes.push(format!(
                "the exclusion {first}-{last} lies outside every subnet and excludes nothing"
            ));
        }
    }
    notes.dedup();
    let make = |set: Vec<RangeSpec>| set.into_iter().map(|spec| Range::new(spec, &gateways)).collect();
    let sets: Vec<Vec<Range>> = specs.into_iter().map(make).collect::<Result<_, Error>>()?;
    let ranges: Vec<&Range> = sets.iter().flatten().collect();
    for (i, range) in ranges.iter().enumerate() {
        if let Some(other) = ranges[..i].iter().find(|other| other.overlaps(range)) {
            return Err(invalid(format!(
                "{} ({range}) overlaps {} ({other}); give each its own rangeStart and rangeEnd",
                range.place, other.place
            )));
        }
    }
    for set in &sets {
        if let [first, rest @ ..] = set.as_slice()
            && let Some(other) = rest.iter().find(|range| range.family() != first.family())
        {
            return Err(invalid(format!(
                "{} ({}) and {} ({}) are of two families in one range set, which gives one address; make them two sets",
                first.place, first.subnet, other.place, other.subnet
            )));
        }
    }
    Ok(sets)
}

/// `subnet` and `ranges`: host-local's spelling and this plugin's own.
fn own_spelling(ipam: &RawIpam, extras: &Extras) -> Result<Vec<Vec<RangeSpec>>, Error> {
    let mut sets = Vec::new();
    let limits = Limits {
        start: ("rangeStart", ipam.range_start.as_deref()),
        end: ("rangeEnd", ipam.range_end.as_deref()),
    };
    if let Some(subnet) = &ipam.subnet {
        sets.push(vec![spec(
            "ipam",
            network("ipam.subnet", subnet)?,
            &limits,
            extras,
            default_gateway,
        )?]);
    } else if let Some((key, Some(value))) = [limits.start, limits.end]
        .into_iter()
        .find(|(_, value)| value.is_some())
    {
        return Err(invalid(format!(
            "ipam.{key} ({value}) is set without ipam.subnet; add it, or move {key} into ipam.ranges"
        )));
    }
    sets.extend(own_sets(
        ipam.ranges.as_deref().unwrap_or_default(),
        "ipam.ranges",
        extras,
    )?);
    Ok(sets)
}

fn own_sets(sets: &[Vec<RawRange>], place: &str, extras: &Extras) -> Result<Vec<Vec<RangeSpec>>, Error> {
    let set = |(i, set): (usize, &Vec<RawRange>)| {
        if set.is_empty() {
            return Err(invalid(format!(
                "{place}[{i}] is an empty range set; give it a range or remove it"
            )));
        }
        set.iter()
            .enumerate()
            .map(|(j, raw)| own(&format!("{place}[{i}][{j}]"), raw, extras))
            .collect()
    };
    sets.iter().enumerate().map(set).collect()
}

fn own(place: &str, raw: &RawRange, extras: &Extras) -> Result<RangeSpec, Error> {
    let Some(subnet) = &raw.subnet else {
        return Err(invalid(format!("{place}.subnet is missing")));
    };
    let extras = extras.with(place, raw.gateway.as_deref(), raw.exclude.as_deref())?;
    let limits = Limits {
        start: ("rangeStart", raw.range_start.as_deref()),
        end: ("rangeEnd", raw.range_end.as_deref()),
    };
    spec(
        place,
        network(&format!("{place}.subnet"), subnet)?,
        &limits,
        &extras,
        default_gateway,
    )
}

/// `range` and `ipRanges`: whereabouts' spelling, each of which is a set of its own.
fn whereabouts_spelling(
    ipam: &RawIpam,
    extras: &Extras,
    notes: &mut Vec<String>,
) -> Result<Vec<Vec<RangeSpec>>, Error> {
    let mut sets = Vec::new();
    if ipam.range.is_some() || ipam.snake_start.is_some() || ipam.snake_end.is_some() {
        let raw = RawIpRange {
            range: ipam.range.clone(),
            range_start: ipam.snake_start.clone(),
            range_end: ipam.snake_end.clone(),
            ..RawIpRange::default()
        };
        sets.push(vec![whereabouts("ipam", &raw, extras, notes)?]);
    }
    for (i, raw) in ipam.ip_ranges.iter().flatten().enumerate() {
        sets.push(vec![whereabouts(
            &format!("ipam.ipRanges[{i}]"),
            raw,
            extras,
            notes,
        )?]);
    }
    Ok(sets)
}

/// Unlike host-local, whereabouts has no default gateway, and `range` may be any address of the subnet.
fn whereabouts(
    place: &str,
    raw: &RawIpRange,
    extras: &Extras,
    notes: &mut Vec<String>,
) -> Result<RangeSpec, Error> {
    let Some(range) = &raw.range else {
        return Err(invalid(format!("{place}.range is missing")));
    };
    let extras = extras.with(place, raw.gateway.as_deref(), raw.exclude.as_deref())?;
    let mut limits = Limits {
        start: ("range_start", raw.range_start.as_deref()),
        end: ("range_end", raw.range_end.as_deref()),
    };
    let key = format!("{place}.range");
    let no_gateway = |_| None;
    if let Some((first, rest)) = range.split_once('-') {
        if let Some((other, _)) = [limits.start, limits.end]
            .into_iter()
            .find(|(_, value)| value.is_some())
        {
            return Err(invalid(format!(
                "{key} {range:?} already says what {place}.{other} says; keep one of them"
            )));
        }
        let Some((last, length)) = rest.split_once('/') else {
            return Err(invalid(format!(
                "{key} {range:?} lacks a prefix length; write first-last/length"
            )));
        };
        limits = Limits {
            start: ("range", Some(first.trim())),
            end: ("range", Some(last.trim())),
        };
        let subnet = network(&key, &format!("{}/{}", first.trim(), length.trim()))?;
        return spec(place, subnet, &limits, &extras, no_gateway);
    }
    let subnet = network(&key, range)?;
    if limits.start.1.is_none() && subnet.ip() != subnet.network() {
        let (whole, written) = (subnet.network(), subnet.ip());
        let first = default_gateway(subnet).unwrap_or(whole);
        notes.push(format!(
            "{key} {range} means all of {whole}/{}, so addresses begin at {first}, not at {written}; if {written} is meant, set {place}.range_start to it",
            subnet.prefix()
        ));
    }
    spec(place, subnet, &limits, &extras, no_gateway)
}

fn spec(
    place: &str,
    subnet: IpNetwork,
    limits: &Limits,
    extras: &Extras,
    default: impl Fn(IpNetwork) -> Option<IpAddr>,
) -> Result<RangeSpec, Error> {
    let limit = |(key, value): (&str, Option<&str>)| {
        value
            .map(|text| address(&format!("{place}.{key}"), text))
            .transpose()
    };
    Ok(RangeSpec {
        place: place.to_owned(),
        subnet,
        start: limit(limits.start)?,
        end: limit(limits.end)?,
        gateway: match extras.own {
            Some(Gateway::None) => None,
            Some(Gateway::At(ip)) => Some(ip),
            None => extras
                .top
                .filter(|ip| subnet.contains(*ip))
                .or_else(|| default(subnet)),
        },
        exclude: extras.exclude.clone(),
    })
}

impl Extras {
    /// These extras with what a range says itself.
    fn with(&self, place: &str, own: Option<&str>, exclude: Option<&[String]>) -> Result<Self, Error> {
        let mut extras = self.clone();
        extras.own = gateway(&format!("{place}.gateway"), own)?.or(extras.own);
        extras
            .exclude
            .extend(exclusions(&format!("{place}.exclude"), exclude)?);
        Ok(extras)
    }
}

fn gateway(key: &str, text: Option<&str>) -> Result<Option<Gateway>, Error> {
    match text {
        None | Some("") => Ok(None),
        Some("none") => Ok(Some(Gateway::None)),
        Some(text) => address(key, text).map(|ip| Some(Gateway::At(ip))),
    }
}
