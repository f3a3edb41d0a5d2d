// SPDX-License-Identifier: Apache-2.0
//! A snapshot of everything on a node that an attachment may change, and the differences between two snapshots.
//!
//! The code under test does not take it: the snapshot consists of the kernel's own messages, unchanged, and of files.
//! It excludes values that change by themselves (counters, ages) and numbers without a meaning of their own (link
//! indexes, queue pairs).

mod network;

use crate::{Node, Pod, call};
use common::netlink::{Rdma, Socket};
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The time limit for the kernel to complete a call or the end of a namespace.
const TIMEOUT: Duration = call::LIMIT;

/// Files that the plugins may leave: the last allocated address, addresses in cooldown, and unlocked lock files.
const MAY_STAY: [&str; 5] = ["/cursors/", "/resting/", "/lock", "/last_reserved_ip", "/netns/"];

/// Objects by name, each with its properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot(BTreeMap<String, BTreeSet<String>>);

/// The differences between two snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference(Vec<String>);

impl Node {
    /// The current state of the node and these pods.
    pub fn snapshot(&self, pods: &[&Pod<'_>]) -> Snapshot {
        let mut snapshot = self.without_settings(pods);
        snapshot.add("node", sysctls());
        for (number, pod) in pods.iter().enumerate() {
            snapshot.add(&format!("pod {number}"), pod.open().run(sysctls).unwrap());
        }
        snapshot
    }

    /// Like [`Self::snapshot`], without the settings of interfaces, of which there are hundreds.
    fn without_settings(&self, pods: &[&Pod<'_>]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.add("node", network::objects());
        snapshot.add("node", rdma_devices());
        snapshot.add("node", self.files());
        // Pods are numbered by their place in the list, so that all new pods compare equal.
        for (number, pod) in pods.iter().enumerate() {
            let inside = || [network::objects(), rdma_devices()].concat();
            snapshot.add(&format!("pod {number}"), pod.open().run(inside).unwrap());
        }
        snapshot
    }

    /// Like [`Self::snapshot`], after the kernel has completed its duplicate address detection.
    pub fn settled_snapshot(&self, pods: &[&Pod<'_>]) -> Snapshot {
        let start = Instant::now();
        loop {
            let snapshot = self.snapshot(pods);
            let tentative = |object: &String| object.contains("Tentative");
            if !snapshot.0.keys().any(tentative) {
                return snapshot;
            }
            assert!(
                start.elapsed() < TIMEOUT,
                "an address stays tentative: {snapshot:#?}"
            );
            sleep(Duration::from_millis(100));
        }
    }

    /// Asserts that the node and these pods return to their former state within seconds.
    #[track_caller]
    pub fn assert_as_before(&self, before: &Snapshot, pods: &[&Pod<'_>], when: impl fmt::Display) {
        let start = Instant::now();
        let rest = before.without_settings();
        loop {
            // The settings of a link disappear with the link, so they are read after everything else is unchanged.
            let mut difference = self.without_settings(pods).since(&rest);
            if difference.0.is_empty() {
                difference = self.snapshot(pods).since(before);
            }
            if difference.0.is_empty() {
                return;
            }
            assert!(
                start.elapsed() < TIMEOUT,
                "{when}, something is different:\n{difference}"
            );
            sleep(Duration::from_millis(50));
        }
    }

    /// Files of attachments, leases and devices, in the node's own directory and in their default places.
    fn files(&self) -> Vec<Object> {
        let own = ["state", "rdma-ipam", "host-local"].map(|name| self.path(name));
        let default = [
            "/run/rdmanet",
            "/run/k8s.cni.cncf.io",
            "/var/run/k8s.cni.cncf.io",
            "/var/lib/cni",
        ]
        .map(Into::into);
        let listed = |dir: &Path| {
            let names = crate::node::files_below(dir, &|name| {
                let name = format!("/{name}");
                !MAY_STAY.iter().any(|part| name.contains(part))
            });
            names
                .into_iter()
                .map(|name| object(format!("file {}", dir.join(name).display())))
                .collect::<Vec<_>>()
        };
        own.iter().chain(&default).flat_map(|dir| listed(dir)).collect()
    }
}

/// An object and its properties.
type Object = (String, BTreeSet<String>);

fn object(name: String) -> Object {
    (name, BTreeSet::new())
}

/// The prefix of an object with the settings of an interface.
const SETTINGS: &str = "settings ";

/// The settings of every interface, and the defaults for new interfaces.
fn sysctls() -> Vec<Object> {
    let mut found = Vec::new();
    for family in ["ipv4", "ipv6"] {
        let conf = Path::new("/proc/sys/net").join(family).join("conf");
        for interface in fs::read_dir(&conf).into_iter().flatten().flatten() {
            let name = format!("{SETTINGS}{family} {}", interface.file_name().display());
            found.push((name, settings(&interface.path())));
        }
    }
    found
}

/// The settings of one interface; none if the interface is gone by now.
fn settings(interface: &Path) -> BTreeSet<String> {
    let Ok(directory) = fs::File::open(interface) else {
        return BTreeSet::new();
    };
    let files = fs::read_dir(interface).into_iter().flatten().flatten();
    files
        .filter_map(|file| Some((file.file_name(), setting(&directory, &file.file_name())?)))
        .map(|(name, value)| format!("{} = {value}", name.display()))
        .collect()
}

/// The value of one setting, read with few system calls: the kernel returns it whole, and it is at most a page long.
fn setting(directory: &fs::File, name: &OsStr) -> Option<String> {
    let file = openat(directory, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).ok()?;
    let mut page = [0; 4096];
    // `stable_secret` cannot be read before it is set.
    let size = fs::File::from(file).read(&mut page).ok()?;
    Some(String::from_utf8_lossy(&page[..size]).trim().to_owned())
}

/// The RDMA devices that are visible in this namespace, and the node's mode. A kernel without RDMA has none.
fn rdma_devices() -> Vec<Object> {
    let Ok(mut socket) = Socket::<Rdma>::open() else {
        return Vec::new();
    };
    let mode = object(format!("RDMA namespaces {:?}", socket.netns_mode().unwrap()));
    let devices = socket.devices().unwrap().into_iter().map(|device| {
        let facts = [format!("node GUID {}", device.node_guid)];
        (format!("RDMA device {}", device.name), facts.into())
    });
    devices.chain([mode]).collect()
}

impl Snapshot {
    fn add(&mut self, place: &str, objects: Vec<Object>) {
        for (name, facts) in objects {
            self.0.insert(format!("{place}: {name}"), facts);
        }
    }

    /// All objects except the settings of interfaces.
    fn without_settings(&self) -> Self {
        let rest = self.0.iter().filter(|(name, _)| !name.contains(SETTINGS));
        Self(rest.map(|(name, facts)| (name.clone(), facts.clone())).collect())
    }

    /// The differences from `before`.
    pub fn since(&self, before: &Self) -> Difference {
        let mut lines = Vec::new();
        for (name, facts) in &before.0 {
            match self.0.get(name) {
                None => lines.push(format!("gone     {name} {}", list(facts))),
                Some(now) => {
                    let (was, is): (Vec<_>, Vec<_>) =
                        (facts.difference(now).collect(), now.difference(facts).collect());
                    if !(was.is_empty() && is.is_empty()) {
                        lines.push(format!("changed  {name}: was {was:?}, is {is:?}"));
                    }
                }
            }
        }
        let new = self.0.iter().filter(|(name, _)| !before.0.contains_key(*name));
        lines.extend(new.map(|(name, facts)| format!("left     {name} {}", list(facts))));
        Difference(lines)
    }
}

/// The properties on one line, shortened if the list is long.
fn list(facts: &BTreeSet<String>) -> String {
    let some: Vec<_> = facts.iter().take(12).map(String::as_str).collect();
    some.join(", ")
}

impl Difference {
    /// Whether there is no difference.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}
