// SPDX-License-Identifier: Apache-2.0
//! The configuration: what users write, in the spelling of this plugin, host-local or whereabouts, becomes a
//! valid [`Config`].
//!
//! A configuration names either ranges ([`Config`]) or pools of the cluster ([`PoolConfig`]). DEL, CHECK and
//! GC read only a [`Place`] or [`PoolPlace`], so an attachment can be removed even if its ranges are not
//! valid any more.

mod names;
mod pools;
mod ranges;
mod raw;
mod requests;
mod resolv;
mod shape;
mod space;

use crate::pool::{POOLS, PoolName};
use crate::range::Range;
use crate::text::invalid;
use common::cni::dispatch::Call;
use common::cni::id::is_name;
use common::cni::{Code, Conf, Dns, Error, PROBES, Route, UNFINISHED, Version};
use raw::{RawConf, RawIpam};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use pools::{PoolConfig, PoolPlace};
pub use requests::{Request, Requests};
pub use space::Space;

/// The default `dataDir`, which holds the leases.
pub const DATA_DIR: &str = "/var/lib/cni/rdma-ipam";

/// The default `cooldown`: how long a released address rests. A peer trusts its neighbour entry for about
/// this long without checking it (`base_reachable_time_ms`, 30 s), so few peers still send to the old owner.
pub const COOLDOWN: Duration = Duration::from_secs(30);

/// A network, and the location of its leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The name of the network configuration, to which attachments belong.
    pub name: String,
    /// `ipam.network_name`, or `name`. Every address is unique within it, and in a [`Space`] beyond it. Several
    /// configurations may share it.
    pub network: String,
    /// The directory of its leases: `dataDir` and the network's name.
    pub dir: PathBuf,
    /// How long a released address rests before it is allocated again.
    pub cooldown: Duration,
    /// Whether this is the node's part of a pool. Then `pool.json` sets the cooldown.
    pub is_pool: bool,
}

/// A valid configuration for ADD.
#[derive(Clone, Debug)]
pub struct Config {
    /// The network and its store.
    pub place: Place,
    /// Among which networks its addresses are unique.
    pub space: Space,
    /// One address is allocated from each set. The ranges of a set are tried in order.
    pub sets: Vec<Vec<Range>>,
    /// Copied to the result.
    pub routes: Vec<Route>,
    /// Copied to the result.
    pub dns: Dns,
    /// The requested addresses.
    pub requests: Requests,
    /// Whether the main plugin declared that it probes addresses ([`PROBES`]).
    pub probes: bool,
    /// Warnings: settings that are valid but probably not intended, each a sentence for a person.
    pub notes: Vec<String>,
}

impl Place {
    /// Reads only the place of `conf`.
    ///
    /// # Errors
    /// [`Code::INVALID_CONFIG`] for a name or directory that ADD refuses as well, [`Code::DECODE`] for wrong
    /// types.
    pub fn read(conf: &Conf) -> Result<Self, Error> {
        shape::require_ipam(&conf.object)?;
        let raw: raw::RawPlaceConf = conf.decode()?;
        let raw = raw.ipam.unwrap_or_default();
        let cooldown = raw
            .cooldown
            .and_then(|seconds| seconds.as_u64())
            .and_then(|seconds| u32::try_from(seconds).ok());
        Self::new(
            &conf.network,
            raw.network_name.as_deref(),
            raw.data_dir.as_deref(),
            cooldown,
        )
    }

    fn new(
        conf_name: &str,
        network_name: Option<&str>,
        data_dir: Option<&str>,
        cooldown: Option<u32>,
    ) -> Result<Self, Error> {
        let network = network_name.filter(|name| !name.is_empty()).unwrap_or(conf_name);
        // The name becomes a directory name, which the kernel limits to 255 bytes.
        if !is_name(network) || network.len() > 255 {
            return Err(invalid(format!(
                "network name {network:?} cannot name a directory: want up to 255 letters, digits, '.', '_' and '-', beginning with a letter or digit"
            )));
        }
        if network == POOLS {
            return Err(invalid(format!(
                "the network is named {network:?}, which is the directory of the cluster's pools; set ipam.network_name to another name"
            )));
        }
        let data_dir = absolute(data_dir)?;
        let cooldown = cooldown.map_or(COOLDOWN, |seconds| Duration::from_secs(seconds.into()));
        Ok(Self {
            name: conf_name.to_owned(),
            network: network.to_owned(),
            dir: data_dir.join(network),
            cooldown,
            is_pool: false,
        })
    }

    /// This node's part of `pool`, below `data_dir`. While `pool.json` cannot be read, the cooldown is
    /// unknown, and the rest of no address ends.
    pub fn of_pool(data_dir: &Path, pool: &PoolName) -> Self {
        Self {
            name: pool.to_string(),
            network: pool.to_string(),
            dir: data_dir.join(POOLS).join(pool.as_str()),
            cooldown: Duration::MAX,
            is_pool: true,
        }
    }

    /// The store of a network with ranges, below `data_dir`, for a process without its configuration. The
    /// configured cooldown is unknown there, so such a process ends the rest of no address.
    pub fn of_ranges(data_dir: &Path, network: &str) -> Self {
        Self {
            name: network.to_owned(),
            network: network.to_owned(),
            dir: data_dir.join(network),
            cooldown: Duration::MAX,
            is_pool: false,
        }
    }
}

/// `dataDir`, or the default.
fn absolute(data_dir: Option<&str>) -> Result<PathBuf, Error> {
    let data_dir = PathBuf::from(data_dir.filter(|dir| !dir.is_empty()).unwrap_or(DATA_DIR));
    if data_dir.is_absolute() {
        return Ok(data_dir);
    }
    Err(invalid(format!(
        "ipam.dataDir {:?} is relative; write it from the root, such as {DATA_DIR}",
        data_dir.display()
    )))
}

impl Config {
    /// Reads the whole configuration of an ADD or STATUS.
    ///
    /// # Errors
    /// [`Code::INVALID_CONFIG`], [`Code::UNSUPPORTED_FIELD`], [`Code::DECODE`] and, for `resolvConf`, [`Code::IO`].
    pub fn read(call: &Call) -> Result<Self, Error> {
        let raw = read_raw(&call.conf)?;
        let ipam = raw.ipam.unwrap_or_default();
        refuse_what_would_change(&ipam)?;
        refuse_range_of_a_cluster(&ipam, call)?;
        let (network, data_dir) = (ipam.network_name.as_deref(), ipam.data_dir.as_deref());
        let place = Place::new(&call.conf.network, network, data_dir, ipam.cooldown)?;
        let runtime = raw.runtime_config.unwrap_or_default();
        let mut notes = Vec::new();
        let specs = ranges::specs(&ipam, runtime.ip_ranges.as_deref(), &mut notes)?;
        let sets = ranges::build(specs, &mut notes)?;
        require_room(&sets, call.conf.version)?;
        let requests = Requests::read(&runtime, raw.args.as_ref(), &call.args)?;
        ignore(&ipam, &place);
        Ok(Self {
            place,
            space: Space::of(&ipam),
            sets,
            dns: resolv::dns(&ipam)?,
            routes: routes(ipam.routes.unwrap_or_default())?,
            requests,
            probes: probes(&call.conf),
            notes,
        })
    }

    /// Logs the notes as warnings.
    pub fn log_notes(&self) {
        for note in &self.notes {
            tracing::warn!(network = self.place.network, %note, "a setting is valid but probably not intended");
        }
    }

    /// `error` with the notes of this configuration, which may explain it.
    pub fn explain(&self, error: Error) -> Error {
        let texts = [&error.details]
            .into_iter()
            .chain(&self.notes)
            .filter(|text| !text.is_empty());
        let details = texts.map(String::as_str).collect::<Vec<_>>().join("; ");
        error
            .within(&format!("network {}", self.place.network))
            .with_details(details)
    }
}

/// Whether the main plugin declared that it probes. Results before 0.3.0 cannot mark addresses to probe.
fn probes(conf: &Conf) -> bool {
    conf.version >= Version::V0_3_0 && conf.object.get(PROBES) == Some(&true.into())
}

/// Whether the main plugin declared in its DEL that its ADD did not succeed ([`UNFINISHED`]).
pub(crate) fn is_unfinished(conf: &Conf) -> bool {
    conf.object.get(UNFINISHED) == Some(&true.into())
}

/// Decodes the members that this plugin knows. An unset member may be null or empty, as templates write it.
fn read_raw(conf: &Conf) -> Result<RawConf, Error> {
    names::require_known(&conf.object)?;
    let plain = shape::plain(&conf.object)?;
    names::require_one_meaning(&plain)?;
    common::cni::plain::decode(&serde_json::Value::Object(plain))
}

/// Refuses whereabouts' keys that would change which addresses are allocated if they were ignored.
fn refuse_what_would_change(ipam: &RawIpam) -> Result<(), Error> {
    let refuse = |key: &str, value: &serde_json::Value, remedy: &str| {
        Err(Error::new(
            Code::UNSUPPORTED_FIELD,
            format!(
                "ipam.{key}{} is not supported: {remedy}",
                names::shown(key, value)
            ),
        ))
    };
    if let Some(value) = &ipam.node_slice_size {
        return refuse(
            "node_slice_size",
            value,
            "give each node its own range_start and range_end",
        );
    }
    if let Some(value) = ipam
        .addresses
        .as_ref()
        .filter(|v| v.as_array().is_none_or(|list| !list.is_empty()))
    {
        return refuse(
            "addresses",
            value,
            "ask for addresses by runtimeConfig.ips or args.cni.ips, which reserve them",
        );
    }
    if let Some(value) = &ipam.configuration_path {
        return refuse("configuration_path", value, "write the keys of that file here");
    }
    let promise = ipam
        .datastores()
        .into_iter()
        .find_map(|(key, value)| Some((key, value.as_ref()?)));
    if let Some((key, value)) = promise.filter(|_| ipam.per_node != Some(true)) {
        return refuse(
            key,
            value,
            &format!("it promises addresses that are unique in the cluster, and {RANGES_ARE_OF_A_NODE}"),
        );
    }
    Ok(())
}

/// The remedy for a configuration that promises more than ranges keep.
const RANGES_ARE_OF_A_NODE: &str = "ranges are unique on one node only; name an IPPool by ipam.pool (`rdmanet import whereabouts` makes one), or set \"perNode\": true if each node has ranges of its own";

/// Refuses a pod's range in the spelling of whereabouts. whereabouts reads its datastore from a separate file if
/// the configuration has none, so the range was unique in the cluster although the configuration does not state
/// it. Two nodes with this configuration would allocate the same addresses.
fn refuse_range_of_a_cluster(ipam: &RawIpam, call: &Call) -> Result<(), Error> {
    let theirs = match (&ipam.range, &ipam.ip_ranges) {
        (Some(_), _) => "range",
        (None, Some(_)) => "ipRanges",
        (None, None) => return Ok(()),
    };
    let in_a_pod = call.args.get("K8S_POD_NAME").is_some();
    if !in_a_pod || ipam.per_node == Some(true) {
        return Ok(());
    }
    Err(Error::new(
        Code::UNSUPPORTED_FIELD,
        format!(
            "ipam.{theirs} is whereabouts' key for addresses that are unique in the cluster, and {RANGES_ARE_OF_A_NODE}"
        ),
    ))
}

/// Logs whereabouts' keys that have no effect here.
fn ignore(ipam: &RawIpam, place: &Place) {
    for (key, value) in ipam.ignored() {
        if value.is_some() {
            tracing::debug!(
                network = place.network,
                key,
                "ignored a key of ipam that has no effect here"
            );
        }
    }
}

/// Fails if the result has no room for the addresses: before 0.3.0 it holds one address per family.
fn require_room(sets: &[Vec<Range>], version: Version) -> Result<(), Error> {
    let families = || sets.iter().filter_map(|set| set.first()).map(Range::family);
    let crowded = families()
        .enumerate()
        .any(|(i, family)| families().take(i).any(|earlier| earlier == family));
    if version >= Version::V0_3_0 || !crowded {
        return Ok(());
    }
    Err(invalid(format!(
        "cniVersion {version} has room for one IPv4 and one IPv6 address, but there are {} range sets; use 0.3.0 or newer",
        sets.len()
    )))
}

fn routes(routes: Vec<Route>) -> Result<Vec<Route>, Error> {
    let mixed = routes
        .iter()
        .enumerate()
        .find(|(_, route)| route.gw.is_some_and(|gw| gw.is_ipv4() != route.dst.is_ipv4()));
    match mixed {
        None => Ok(routes),
        Some((i, route)) => Err(invalid(format!(
            "ipam.routes[{i}]: gw {} is not of the family of dst {}",
            route.gw.map(|gw| gw.to_string()).unwrap_or_default(),
            route.dst
        ))),
    }
}

#[cfg(test)]
mod tests;
