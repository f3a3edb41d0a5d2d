// SPDX-License-Identifier: Apache-2.0
//! The key `master`: a name, a description, or a list of both.

use super::value::{is_set, pkey};
use super::{BondUse, Master, Mode, Needs, Preference, Preferences, ResolvedMaster, Selector};
use crate::error::Error;
use common::cni::keys::require_known;
use common::netlink::LinkLayer;
use common::rdma::Guid;
use glob::Pattern;
use serde_json::{Map, Value};
use std::net::Ipv6Addr;

/// The keys of a description, in the order of the documentation.
const KEYS: [&str; 9] = [
    "linkLayer",
    "state",
    "rateMin",
    "rdmaDevice",
    "pciAddress",
    "ifName",
    "pkey",
    "subnetPrefix",
    "numaNode",
];

/// Parses `master`; empty and absent are the same.
pub(super) fn read(master: Option<&Value>, needs: Needs) -> Result<Master, Error> {
    let preferred = |choices| Ok(Master::Preferred(Preferences { choices, needs }));
    match master {
        None | Some(Value::Null) => Ok(Master::Resolved(ResolvedMaster::Unset)),
        Some(Value::String(name)) if name.is_empty() => Ok(Master::Resolved(ResolvedMaster::Unset)),
        Some(Value::String(name)) => Ok(Master::Resolved(ResolvedMaster::Named(name.clone()))),
        Some(Value::Object(keys)) => preferred(vec![described(keys, needs)?]),
        Some(Value::Array(list)) if !list.is_empty() => preferred(
            list.iter()
                .map(|entry| preference(entry, needs))
                .collect::<Result<_, _>>()?,
        ),
        Some(other) => Err(wrong(
            "master",
            other,
            "a name, a description, or a list of these",
        )),
    }
}

/// The requirements of the rest of a configuration on any parent.
pub(super) fn needs(
    mode: Option<Mode>,
    only_for: &[(&'static str, Mode)],
    pkey: Option<common::rdma::Pkey>,
    bond: BondUse,
) -> Needs {
    // Without a mode, the keys determine the link layer: a pkey makes no sense on Ethernet.
    let mode = mode.or_else(|| only_for.first().map(|(_, its)| *its));
    Needs {
        layer: mode.and_then(|mode| match mode {
            Mode::Ipoib => Some(LinkLayer::Infiniband),
            Mode::Macvlan | Mode::Ipvlan => Some(LinkLayer::Ethernet),
            Mode::Device => None,
        }),
        pkey,
        no_bond: bond == BondUse::Refuse,
        unused: false,
    }
}

fn preference(entry: &Value, needs: Needs) -> Result<Preference, Error> {
    match entry {
        Value::String(name) if !name.is_empty() => Ok(Preference::Named(name.clone())),
        Value::Object(keys) => described(keys, needs),
        other => Err(wrong("master", other, "a list of names and descriptions")),
    }
}

fn described(keys: &Map<String, Value>, needs: Needs) -> Result<Preference, Error> {
    require_known(keys, &KEYS, "master.")?;
    let key = |name: &str| keys.get(name).filter(|value| is_set(value));
    let selector = Selector {
        layer: key("linkLayer").map(layer).transpose()?,
        any_state: key("state").map(any_state).transpose()?.unwrap_or(false),
        rate_min: key("rateMin")
            .map(|value| number("master.rateMin", value, "Gbit/s, from 1"))
            .transpose()?
            .filter(|rate| *rate > 0),
        rdma_device: key("rdmaDevice")
            .map(|value| pattern("master.rdmaDevice", value))
            .transpose()?,
        pci_address: key("pciAddress")
            .map(|value| pattern("master.pciAddress", value))
            .transpose()?,
        if_name: key("ifName")
            .map(|value| pattern("master.ifName", value))
            .transpose()?,
        pkey: pkey("master.pkey", key("pkey"))?,
        subnet_prefix: key("subnetPrefix").map(subnet_prefix).transpose()?,
        numa_node: key("numaNode")
            .map(|value| number("master.numaNode", value, "a node's number, from 0"))
            .transpose()?,
    };
    match (selector.layer, needs.layer) {
        (Some(asked), Some(needed)) if asked != needed => Err(wrong(
            "master.linkLayer",
            &keys["linkLayer"],
            "the link layer of the mode: ipoib is InfiniBand, macvlan and ipvlan are Ethernet",
        )),
        _ => Ok(Preference::Described(selector)),
    }
}

fn layer(value: &Value) -> Result<LinkLayer, Error> {
    let word = value.as_str().map(str::to_ascii_lowercase);
    match word.as_deref() {
        Some("infiniband") => Ok(LinkLayer::Infiniband),
        Some("ethernet") => Ok(LinkLayer::Ethernet),
        _ => Err(wrong("master.linkLayer", value, "InfiniBand or Ethernet")),
    }
}

fn any_state(value: &Value) -> Result<bool, Error> {
    match value.as_str() {
        Some("active") => Ok(false),
        Some("any") => Ok(true),
        _ => Err(wrong("master.state", value, "active or any")),
    }
}

fn number(key: &'static str, value: &Value, want: &str) -> Result<u32, Error> {
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| wrong(key, value, want))
}

fn pattern(key: &'static str, value: &Value) -> Result<Pattern, Error> {
    let want = "a pattern such as \"mlx5_*\", with ? for one character, * for any, [0-3] for one of a set";
    let text = value.as_str().ok_or_else(|| wrong(key, value, want))?;
    Pattern::new(text).map_err(|_| wrong(key, value, want))
}

/// Parses the first half of a GID in the format of sysfs, `fe80:0000:0000:0000`, or as an IPv6 address,
/// `fe80::`.
fn subnet_prefix(value: &Value) -> Result<u64, Error> {
    let text = value.as_str().unwrap_or_default();
    let address = || {
        let bits = text.parse::<Ipv6Addr>().ok()?.to_bits();
        let low_is_empty = bits & u128::from(u64::MAX) == 0;
        u64::try_from(bits >> 64).ok().filter(|_| low_is_empty)
    };
    let groups = text.parse::<Guid>().ok().map(|guid| guid.0);
    groups.or_else(address).ok_or_else(|| {
        let want = "the first 64 bits of the subnet's GIDs, such as \"fe80:0000:0000:0000\" or \"fe80::\"";
        wrong("master.subnetPrefix", value, want)
    })
}

fn wrong(key: &'static str, value: &Value, want: &str) -> Error {
    Error::BadValue {
        key,
        value: value.to_string(),
        want: want.to_owned(),
    }
}
