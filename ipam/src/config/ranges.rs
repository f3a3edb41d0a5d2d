// SPDX-License-Identifier: Apache-2.0
//! Converts every spelling of a range to a [`RangeSpec`], and checks that the ranges do not contradict each
//! other.

use super::invalid;
use super::raw::{RawIpRange, RawIpam, RawRange};
use crate::interval::{Interval, IntervalSet};
use crate::range::{Family, Range, RangeSpec, Shared, bits, default_gateway, whole};
use crate::text::{address, exclusions, network};
use common::cni::Error;
use ipnetwork::IpNetwork;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The maximum number of ranges of a configuration. Each takes a few hundred bytes, and each set costs an ADD
/// a few files. A Kubernetes object has room for about thirty thousand.
pub(super) const MOST_RANGES: usize = 4_096;

/// The maximum number of exclusions of a configuration, at about a hundred bytes each.
pub(super) const MOST_EXCLUSIONS: usize = 65_536;

/// All ranges of a configuration, not yet checked against each other.
pub(super) struct Specs {
    pub(super) sets: Vec<Vec<RangeSpec>>,
    /// `ipam.exclude`, which applies to every range.
    pub(super) exclude: Vec<(IpAddr, IpAddr)>,
}

/// A `gateway` value.
#[derive(Clone, Copy)]
enum Gateway {
    /// `"none"`: no gateway, not even host-local's default.
    None,
    At(IpAddr),
}

/// The settings of a range besides its subnet and limits.
#[derive(Clone)]
struct Extras {
    /// The range's own `gateway`, or a top-level `"none"`.
    own: Option<Gateway>,
    /// `ipam.gateway`, the gateway of the subnet that contains it.
    top: Option<IpAddr>,
    /// The range's own exclusions.
    exclude: Vec<(IpAddr, IpAddr)>,
}

/// The first and last address of a range as text, each with its key.
struct Limits<'t> {
    start: (&'static str, Option<&'t str>),
    end: (&'static str, Option<&'t str>),
}

/// Reads all ranges. `runtimeConfig.ipRanges` replaces those of the configuration. Valid but unusual settings
/// are added to `notes`.
pub(super) fn specs(
    ipam: &RawIpam,
    runtime: Option<&[Vec<RawRange>]>,
    notes: &mut Vec<String>,
) -> Result<Specs, Error> {
    require_bounded(ipam, runtime)?;
    let exclude = exclusions("ipam.exclude", ipam.exclude.as_deref())?;
    let mut extras = Extras {
        own: None,
        top: None,
        exclude: Vec::new(),
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
        None => Ok(Specs { sets, exclude }),
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

/// Fails if there are more ranges or exclusions than a node should read for one pod.
fn require_bounded(ipam: &RawIpam, runtime: Option<&[Vec<RawRange>]>) -> Result<(), Error> {
    let sets = [ipam.ranges.as_deref(), runtime].into_iter().flatten().flatten();
    let own: Vec<&RawRange> = sets.flatten().collect();
    let theirs = ipam.ip_ranges.iter().flatten();
    let ranges = own.len() + theirs.clone().count();
    let lists = own.iter().map(|range| &range.exclude);
    let lists = lists
        .chain(theirs.map(|range| &range.exclude))
        .chain([&ipam.exclude]);
    let exclusions: usize = lists.flatten().map(Vec::len).sum();
    for (what, count, most) in [
        ("ranges", ranges, MOST_RANGES),
        ("exclusions", exclusions, MOST_EXCLUSIONS),
    ] {
        if count > most {
            return Err(invalid(format!(
                "ipam has {count} {what}, and at most {most} are read; write larger ones, such as a subnet for its addresses"
            )));
        }
    }
    Ok(())
}

/// Makes the ranges. Refuses sets of two families, ranges that overlap, and addresses that are not for hosts.
pub(super) fn build(specs: Specs, notes: &mut Vec<String>) -> Result<Vec<Vec<Range>>, Error> {
    let Specs { sets, exclude } = specs;
    require_apart(&sets)?;
    note_idle_exclusions(&sets, &exclude, notes);
    let gateways = sets.iter().flatten().filter_map(|spec| spec.gateway);
    let shared = Arc::new(Shared::new(gateways, &exclude));
    let make = |set: Vec<RangeSpec>| set.into_iter().map(|spec| Range::new(spec, &shared)).collect();
    let sets: Vec<Vec<Range>> = sets.into_iter().map(make).collect::<Result<_, Error>>()?;
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

/// Adds a note for each exclusion that lies in no subnet.
fn note_idle_exclusions(sets: &[Vec<RangeSpec>], shared: &[(IpAddr, IpAddr)], notes: &mut Vec<String>) {
    let all = || sets.iter().flatten();
    let subnets = [Family::V4, Family::V6].map(|family| -> IntervalSet {
        let of_family = all().filter(|spec| Family::of(spec.subnet.ip()) == family);
        of_family.map(|spec| whole(spec.subnet)).collect()
    });
    let is_inside = |ip: &IpAddr| subnets[usize::from(ip.is_ipv6())].contains(bits(*ip));
    for (first, last) in shared.iter().chain(all().flat_map(|spec| &spec.exclude)) {
        if !is_inside(first) && !is_inside(last) {
            notes.push(format!(
                "the exclusion {first}-{last} lies outside every subnet and excludes nothing"
            ));
        }
    }
    notes.dedup();
}

/// The extent of a range, for comparison with others.
struct Extent<'s> {
    family: Family,
    window: Interval,
    spec: &'s RangeSpec,
}

impl std::fmt::Display for Extent<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ends = [self.window.first, self.window.last].map(|bits| self.family.address(bits));
        write!(f, "{} ({}-{})", self.spec.place, ends[0], ends[1])
    }
}

/// Refuses ranges that overlap, and ranges that contain addresses that are not for hosts. Once sorted, each
/// range is compared only with its neighbour.
fn require_apart(sets: &[Vec<RangeSpec>]) -> Result<(), Error> {
    let mut extents = Vec::new();
    for spec in sets.iter().flatten() {
        let (family, window) = (Family::of(spec.subnet.ip()), spec.window()?);
        let extent = Extent { family, window, spec };
        if let Some(what) = not_for_hosts(family, window) {
            return Err(invalid(format!(
                "{extent} reaches into {what}, which no interface of a network may have; choose other addresses"
            )));
        }
        extents.push((extents.len(), extent));
    }
    extents.sort_by_key(|(_, extent)| (extent.family, extent.window));
    for pair in extents.windows(2) {
        let [(i, one), (j, other)] = pair else { continue };
        if one.family == other.family && one.window.overlaps(other.window) {
            let (earlier, later) = if i < j { (one, other) } else { (other, one) };
            return Err(invalid(format!(
                "{later} overlaps {earlier}; give each its own rangeStart and rangeEnd"
            )));
        }
    }
    Ok(())
}

/// The block within `window` that cannot be assigned to an interface, or `None` (`ipv4_is_zeronet`,
/// `ipv4_is_loopback`, `ipv4_is_multicast`, `ipv4_is_lbcast`; RFC 4291 § 2.4).
fn not_for_hosts(family: Family, window: Interval) -> Option<&'static str> {
    let v4 = |a: [u8; 4], b: [u8; 4]| [a, b].map(|octets| IpAddr::V4(Ipv4Addr::from(octets)));
    let v6 = |a: Ipv6Addr, b: Ipv6Addr| [a, b].map(IpAddr::V6);
    let multicast = Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0);
    let blocks = [
        ("0.0.0.0/8", v4([0, 0, 0, 0], [0, 255, 255, 255])),
        ("127.0.0.0/8 (loopback)", v4([127, 0, 0, 0], [127, 255, 255, 255])),
        (
            "224.0.0.0/4 (multicast)",
            v4([224, 0, 0, 0], [239, 255, 255, 255]),
        ),
        ("255.255.255.255 (broadcast)", v4([255; 4], [255; 4])),
        (
            ":: and ::1 (unspecified, loopback)",
            v6(Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST),
        ),
        (
            "ff00::/8 (multicast)",
            v6(multicast, Ipv6Addr::from_bits(u128::MAX)),
        ),
    ];
    let reaches = |ends: &[IpAddr; 2]| {
        let block = Interval {
            first: bits(ends[0]),
            last: bits(ends[1]),
        };
        Family::of(ends[0]) == family && window.overlaps(block)
    };
    blocks
        .iter()
        .find(|(_, ends)| reaches(ends))
        .map(|(name, _)| *name)
}

/// Reads `subnet` and `ranges`, the spelling of host-local and of this plugin.
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

/// Reads `range` and `ipRanges`, whereabouts' spelling. Each is a set.
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

/// Reads one range in whereabouts' spelling. Unlike host-local, whereabouts has no default gateway, and
/// `range` may be any address of the subnet.
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
                "{key} {range:?} and {place}.{other} set the same limit; keep one of them"
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
    /// These settings, overridden by those of a range.
    fn with(&self, place: &str, own: Option<&str>, exclude: Option<&[String]>) -> Result<Self, Error> {
        Ok(Self {
            own: gateway(&format!("{place}.gateway"), own)?.or(self.own),
            top: self.top,
            exclude: exclusions(&format!("{place}.exclude"), exclude)?,
        })
    }
}

fn gateway(key: &str, text: Option<&str>) -> Result<Option<Gateway>, Error> {
    match text {
        None | Some("") => Ok(None),
        Some("none") => Ok(Some(Gateway::None)),
        Some(text) => address(key, text).map(|ip| Some(Gateway::At(ip))),
    }
}
