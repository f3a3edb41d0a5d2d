// SPDX-License-Identifier: Apache-2.0
//! Refuses unknown configuration keys by name: ignoring a misspelt `pkye` would put a pod into the wrong
//! partition.

use super::error::{Code, Error};
use serde_json::{Map, Value};

/// Keys that the specification or a runtime may put into any plugin's configuration: CNI 1.1.0 § 1 and
/// CONVENTIONS.md, and Multus' `deviceID` and `pciBusID` (multus-cni#448).
pub const CNI_KEYS: [&str; 16] = [
    "args",
    "capabilities",
    "cniVersion",
    "cniVersions",
    "deviceID",
    "disableCheck",
    "disableGC",
    "dns",
    "ipMasq",
    "ipam",
    "loadOnlyInlinedPlugins",
    "name",
    "pciBusID",
    "prevResult",
    "runtimeConfig",
    "type",
];

/// How similar a known key must be to be suggested for an unknown one, from 0 to 1. Misspelt keys have at least 0.88,
/// and keys of other plugins less than 0.85 (`link_state` beside `linkInContainer`).
const LIKENESS: f64 = 0.85;

/// Refuses the first key of `object` that is neither in `known` nor reserved (`cni.dev/…`).
///
/// The error puts `place`, such as `ipam.`, before the key.
///
/// # Errors
/// [`Code::INVALID_CONFIG`] with the key, its value and the nearest known key.
pub fn require_known(object: &Map<String, Value>, known: &[&str], place: &str) -> Result<(), Error> {
    let unknown = |key: &&String| !known.contains(&key.as_str()) && !key.starts_with("cni.dev/");
    let Some(key) = object.keys().find(unknown) else {
        return Ok(());
    };
    let remedy = match nearest(key, known) {
        Some(near) => format!("did you mean {place}{near}?"),
        None => format!("known keys: {}", known.join(", ")),
    };
    let mut value = object[key].to_string();
    if value.len() > 80 {
        value = format!("{}…", value.chars().take(80).collect::<String>());
    }
    Err(Error::new(
        Code::INVALID_CONFIG,
        format!("unknown key {place}{key} (value {value}); {remedy}"),
    ))
}

/// The candidate most similar to `word`; `None` if no candidate is similar enough.
pub fn nearest<'k>(word: &str, candidates: &[&'k str]) -> Option<&'k str> {
    let plain = |text: &str| text.replace(['_', '-'], "").to_lowercase();
    let word = plain(word);
    candidates
        .iter()
        .map(|candidate| (strsim::jaro_winkler(&word, &plain(candidate)), *candidate))
        .filter(|(likeness, _)| *likeness >= LIKENESS)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
