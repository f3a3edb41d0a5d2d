// SPDX-License-Identifier: Apache-2.0
//! A snapshot of the node: links, addresses, routes, RDMA devices, namespaces, journal, leases.
//!
//! Invariant: the snapshot has only facts that do not change by themselves: no counters, no lifetimes, and no routes that
//! the kernel derives from addresses.

use super::ip::{field, list};
use super::uses::NAMESPACES;
use crate::args;
use crate::output::CommandError;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The kernel returns the links of a dead namespace with some delay.
const SETTLING: Duration = Duration::from_secs(15);

/// The facts about a node, one per line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot(BTreeSet<String>);

impl Snapshot {
    /// Reads the node's facts.
    ///
    /// # Errors
    /// `ip` is missing or fails.
    pub fn take(options: &args::Selftest) -> Result<Self, CommandError> {
        let mut lines = BTreeSet::new();
        for link in list(&["link", "show"])? {
            lines.insert(of_link(&link));
        }
        for link in list(&["address", "show"])? {
            let name = field(&link, "ifname");
            for address in link["addr_info"].as_array().into_iter().flatten() {
                let words = words("address", address, &["local", "prefixlen"]);
                lines.insert(format!("{words} {name}"));
            }
        }
        for family in ["-4", "-6"] {
            let routes = list(&[family, "route", "show", "table", "all"])?;
            lines.extend(routes.iter().filter_map(of_route));
        }
        for (what, directory) in [
            ("RDMA device", Path::new("/sys/class/infiniband")),
            ("namespace", Path::new(NAMESPACES)),
            ("journal", options.directories.state.as_path()),
            ("lease", options.directories.leases.data_dir.as_path()),
        ] {
            names(what, directory, &mut lines);
        }
        Ok(Self(lines))
    }

    /// Waits until the node equals this snapshot again.
    ///
    /// # Errors
    /// A list of the new and the missing facts.
    pub fn still_holds(&self, options: &args::Selftest) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let now = Self::take(options).map_err(|e| e.to_string())?;
            let differences = self.differences(&now);
            if differences.is_empty() {
                return Ok(());
            }
            if start.elapsed() > SETTLING {
                return Err(differences.join("; "));
            }
            sleep(Duration::from_millis(200));
        }
    }

    fn differences(&self, now: &Self) -> Vec<String> {
        let new = now.0.difference(&self.0).map(|line| format!("new: {line}"));
        let gone = self.0.difference(&now.0).map(|line| format!("gone: {line}"));
        new.chain(gone).collect()
    }
}

fn of_link(link: &Value) -> String {
    let flags = link["flags"].as_array();
    let up = flags.is_some_and(|flags| flags.iter().any(|flag| flag == "UP"));
    let keys = ["ifindex", "ifname", "address", "link", "master", "mtu"];
    format!(
        "{} {}",
        words("link", link, &keys),
        if up { "up" } else { "down" }
    )
}

/// The line of a route; `None` for the kernel's own routes. A route of table `local` appears when the duplicate address
/// detection for its link has finished, which can be seconds after the link came up.
fn of_route(route: &Value) -> Option<String> {
    let keys = ["type", "dst", "gateway", "dev", "table"];
    (route["table"] != "local").then(|| words("route", route, &keys))
}

fn words(what: &str, object: &Value, keys: &[&str]) -> String {
    let values = keys.iter().map(|key| field(object, key));
    let values = values.filter(|text| !text.is_empty());
    let all: Vec<_> = std::iter::once(what.to_owned()).chain(values).collect();
    all.join(" ")
}

/// Every name below `directory`; a directory that does not exist has none.
fn names(what: &str, directory: &Path, lines: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names(what, &path, lines);
        } else {
            lines.insert(format!("{what} {}", path.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn new_and_removed_links_are_reported_as_differences() {
        let of = |lines: &[&str]| Snapshot(lines.iter().map(|line| (*line).to_owned()).collect());
        let before = of(&["link ib0", "link ib1"]);
        assert!(before.differences(&before).is_empty());
        assert_eq!(
            before.differences(&of(&["link ib0", "link net1 ib0"])),
            ["new: link net1 ib0", "gone: link ib1"]
        );
    }

    #[test]
    fn a_recreated_link_is_a_difference_and_a_changed_queue_length_is_not() {
        let link = |index: u32, flags: &[&str], queue: u32| {
            of_link(&json!({"ifindex": index, "ifname": "ib0", "mtu": 2044, "txqlen": queue, "flags": flags}))
        };
        assert_eq!(link(3, &["UP", "LOWER_UP"], 256), "link 3 ib0 2044 up");
        assert_eq!(link(3, &["UP"], 128), link(3, &["UP", "LOWER_UP"], 256));
        assert_ne!(link(3, &[], 256), link(3, &["UP"], 256));
        assert_ne!(link(4, &["UP"], 256), link(3, &["UP"], 256));
    }

    #[test]
    fn routes_that_the_kernel_derives_from_addresses_are_not_compared() {
        let own = json!({"type": "local", "dst": "fe80::1", "dev": "ib0", "table": "local"});
        assert_eq!(of_route(&own), None);
        let route = json!({"dst": "10.0.0.0/24", "dev": "ib0", "protocol": "kernel"});
        assert_eq!(of_route(&route).as_deref(), Some("route 10.0.0.0/24 ib0"));
    }
}
