// SPDX-License-Identifier: Apache-2.0
//! Normalizes the configuration as Go plugins read it: a member that is `null` or `""` is absent, and a list
//! is not an object.
//!
//! Templates render an unset value as one of the two, and host-local and whereabouts accept both (`net.IP`
//! reads `""` as no address). serde would refuse them, and would accept a list in place of an object.

use common::cni::{Code, Error};
use serde_json::{Map, Value};

/// The members that this plugin reads, without those that are `null` or `""`.
///
/// # Errors
/// [`Code::DECODE`] with the place of the first list in place of an object.
pub(super) fn plain(conf: &Map<String, Value>) -> Result<Map<String, Value>, Error> {
    require_objects(conf)?;
    let ours = ["ipam", "runtimeConfig", "args"];
    let members = ours.iter().filter_map(|key| Some((*key, conf.get(*key)?)));
    Ok(members
        .filter_map(|(key, value)| Some((key.to_owned(), without_blanks(value)?)))
        .collect())
}

/// Fails if `ipam` is a list. DEL needs no further check.
///
/// # Errors
/// [`Code::DECODE`].
pub(super) fn require_ipam(conf: &Map<String, Value>) -> Result<(), Error> {
    require(conf.get("ipam"), "ipam", 0)
}

fn require_objects(conf: &Map<String, Value>) -> Result<(), Error> {
    require_ipam(conf)?;
    let (ipam, runtime, args) = (conf.get("ipam"), conf.get("runtimeConfig"), conf.get("args"));
    let of = |object: Option<&'_ Value>, key: &str| object.and_then(|object| object.get(key)).cloned();
    require(runtime, "runtimeConfig", 0)?;
    require(args, "args", 0)?;
    require(of(args, "cni").as_ref(), "args.cni", 0)?;
    require(of(ipam, "dns").as_ref(), "ipam.dns", 0)?;
    require(of(ipam, "routes").as_ref(), "ipam.routes", 1)?;
    require(of(ipam, "ipRanges").as_ref(), "ipam.ipRanges", 1)?;
    require(of(ipam, "ranges").as_ref(), "ipam.ranges", 2)?;
    require(of(runtime, "ipRanges").as_ref(), "runtimeConfig.ipRanges", 2)
}

/// Fails if `value` is a list nested deeper than `depth`. Other wrong types are reported by the decoder.
fn require(value: Option<&Value>, place: &str, depth: u8) -> Result<(), Error> {
    match (value, depth) {
        (Some(Value::Array(_)), 0) => Err(Error::new(
            Code::DECODE,
            format!("network configuration: {place} is a list, want an object"),
        )),
        (Some(Value::Array(list)), _) => {
            let mut items = list.iter().enumerate();
            items.try_for_each(|(i, item)| require(Some(item), &format!("{place}[{i}]"), depth - 1))
        }
        _ => Ok(()),
    }
}

/// `value` without blank members and texts; `None` if it is blank itself.
fn without_blanks(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::Array(list) => {
            let is_blank = |item: &Value| item.as_str().is_some_and(str::is_empty);
            let kept = list.iter().filter(|item| !is_blank(item));
            // A null among objects stays, so that it is refused: without it an attachment would get one
            // address less.
            Some(
                kept.map(|item| without_blanks(item).unwrap_or(Value::Null))
                    .collect(),
            )
        }
        Value::Object(object) => {
            let kept = |(key, value): (&String, &Value)| {
                // A blank pool name stays, so that it is refused. Without it the plugin would allocate from
                // the node's own ranges.
                let kept = if is_pool(key) {
                    Some(value.clone())
                } else {
                    without_blanks(value)
                };
                Some((key.clone(), kept?))
            };
            Some(Value::Object(object.iter().filter_map(kept).collect()))
        }
        other => Some(other.clone()),
    }
}

fn is_pool(key: &str) -> bool {
    ["pool", "pools"].contains(&key)
}
