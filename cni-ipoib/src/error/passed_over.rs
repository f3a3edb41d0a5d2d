// SPDX-License-Identifier: Apache-2.0
//! The links that were considered for `master`, each with the reason why it was not chosen.

/// A candidate that was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOver {
    /// The entry of `master`.
    pub entry: String,
    /// The link with its RDMA port.
    pub link: String,
    /// The reason.
    pub why: String,
    /// Whether it fits, but carries no traffic now.
    pub down: bool,
}

/// Every candidate with its reason.
pub(crate) fn list(passed: &[PassedOver]) -> String {
    let mut entries: Vec<&str> = passed.iter().map(|one| one.entry.as_str()).collect();
    entries.dedup();
    let line = |one: &PassedOver| {
        if entries.len() > 1 && one.entry.starts_with('{') {
            format!("{} {}, asked for {}", one.link, one.why, one.entry)
        } else {
            format!("{} {}", one.link, one.why)
        }
    };
    passed.iter().map(line).collect::<Vec<_>>().join("; ")
}
