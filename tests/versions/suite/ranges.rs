// SPDX-License-Identifier: Apache-2.0
//! `rdma-ipam` with ranges: two versions of the plugin on the files of one node.

use agents::Ledger;
use std::collections::BTreeSet;
use std::path::Path;
use tempfile::TempDir;
use tests::{Answer, Call, Value, Version, json};

const BOTH: [Version; 2] = [Version::Earlier, Version::Today];

/// The directory of the leases of a node, and which pod has which address.
struct Files {
    dir: TempDir,
    ledger: Ledger,
}

impl Files {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            ledger: Ledger::default(),
        }
    }

    fn call(&self, version: Version, verb: &str, pod: &str, keys: &Value) -> Call {
        let mut conf = json!({
            "cniVersion": "1.1.0", "name": "net", "type": "macvlan",
            "ipam": {
                "type": "rdma-ipam", "dataDir": self.dir.path(), "cooldown": 0,
                "ranges": [[{ "subnet": "10.7.0.0/27" }]],
            },
        });
        let keys = keys.as_object().unwrap().clone();
        conf.as_object_mut().unwrap().extend(keys);
        Call::new(&version.program("rdma-ipam"))
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", pod)
            .env("CNI_IFNAME", "net1")
            .env("CNI_NETNS", "/proc/self/ns/net")
            .env("CNI_PATH", "/opt/cni/bin")
            .stdin(conf.to_string())
    }

    fn run(&self, version: Version, verb: &str, pod: &str) -> Answer {
        self.call(version, verb, pod, &json!({})).run()
    }

    /// ADD, and its result in the ledger.
    fn add(&self, version: Version, pod: &str) -> String {
        let answer = self.run(version, "ADD", pod);
        let ip = answer.addresses().remove(0);
        self.ledger.given(ip.parse().unwrap(), pod);
        ip
    }

    /// CHECK with the result of a repeated ADD, as a runtime caches it.
    fn check(&self, version: Version, pod: &str, result: &Value) {
        let keys = json!({ "prevResult": result });
        self.call(version, "CHECK", pod, &keys).run().done();
    }

    fn del(&self, version: Version, pod: &str, ip: &str) {
        self.ledger.ended(&[ip.parse().unwrap()]);
        self.run(version, "DEL", pod).done();
    }

    /// GC that keeps these pods.
    fn gc(&self, version: Version, kept: &[&str]) {
        let of = |pod: &&str| json!({ "containerID": pod, "ifname": "net1" });
        let valid: Vec<Value> = kept.iter().map(of).collect();
        let call = self.call(version, "GC", "", &json!({ "cni.dev/valid-attachments": valid }));
        let call = call.env_remove("CNI_CONTAINERID").env_remove("CNI_IFNAME");
        call.env_remove("CNI_NETNS").run().done();
    }

    /// The leases and the addresses in use, as files.
    fn left(&self) -> Vec<String> {
        let boot = boot(&self.dir.path().join("net"));
        let names = |directory: &str| {
            let files = std::fs::read_dir(boot.join(directory)).unwrap().flatten();
            files
                .map(|file| file.file_name().into_string().unwrap())
                .collect()
        };
        let mut all: Vec<String> = names("leases");
        all.extend::<Vec<String>>(names("addresses"));
        all.sort();
        all
    }
}

fn boot(store: &Path) -> std::path::PathBuf {
    let entries = std::fs::read_dir(store).unwrap().flatten();
    let mut paths = entries.map(|entry| entry.path());
    let is_boot =
        |path: &std::path::PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("boot-");
    paths.find(is_boot).expect("a boot's directory")
}

#[test]
fn each_version_checks_repeats_and_releases_leases_of_the_other() {
    for first in BOTH {
        let files = Files::new();
        let then = first.other();
        let ip = files.add(first, "one");
        assert_eq!(files.add(then, "one"), ip, "a repeated ADD of {then:?}");
        let result = files.run(then, "ADD", "one").result();
        files.check(then, "one", &result);
        files.check(first, "one", &result);
        let other = files.add(then, "two");
        assert_ne!(other, ip);
        files.del(then, "one", &ip);
        files.del(first, "two", &other);
        assert_eq!(files.left(), [""; 0], "{first:?} first");
    }
}

#[test]
fn two_versions_in_turn_allocate_every_address_of_a_range_exactly_once() {
    let files = Files::new();
    let turn = |i: usize| BOTH[i % 2];
    let mut given = Vec::new();
    for round in 0..3 {
        // The subnet has 32 addresses. Two are its edges, and one is the gateway's.
        for i in given.len()..29 {
            given.push((
                format!("pod-{round}-{i}"),
                files.add(turn(i), &format!("pod-{round}-{i}")),
            ));
        }
        for version in BOTH {
            files.run(version, "ADD", "more").refused(110, &[]);
        }
        // Each version releases leases of both.
        for i in [0, 1, 2, 3, 4, 5, 6, 7] {
            let (pod, ip) = given.remove(0);
            files.del(turn(i / 2), &pod, &ip);
        }
    }
    for (i, (pod, ip)) in given.iter().enumerate() {
        files.del(turn(i / 2), pod, ip);
    }
    assert_eq!(files.left(), [""; 0]);
}

#[test]
fn parallel_calls_of_two_versions_never_share_an_address() {
    let files = Files::new();
    std::thread::scope(|scope| {
        for worker in 0..4_usize {
            let files = &files;
            scope.spawn(move || {
                for round in 0..12_usize {
                    let pod = format!("pod-{worker}-{round}");
                    let ip = files.add(BOTH[(worker + round) % 2], &pod);
                    if round % 3 != 0 {
                        files.del(BOTH[(worker / 2 + round) % 2], &pod, &ip);
                    }
                }
            });
        }
    });
    assert_eq!(files.left().len(), 2 * files.ledger.len());
    assert_eq!(files.ledger.len(), 16);
    files.gc(Version::Today, &[]);
    assert_eq!(files.left(), [""; 0]);
}

#[test]
fn gc_of_each_version_releases_leases_of_the_other_and_keeps_valid_ones() {
    for first in BOTH {
        let files = Files::new();
        let then = first.other();
        for pod in ["kept", "stale"] {
            files.add(first, pod);
        }
        let ip = files.add(then, "kept");
        files.gc(then, &["kept"]);
        assert_eq!(files.left(), [ip.as_str(), "kept@net1"], "{then:?} collects");
        files.gc(first, &[]);
        assert_eq!(files.left(), [""; 0], "{first:?} collects");
    }
}

/// A container that was started again under its id has another network namespace, which the lease records.
#[test]
fn a_lease_that_moved_to_another_namespace_is_released_by_either_version() {
    for last in BOTH {
        let files = Files::new();
        let ip = files.add(Version::Today, "one");
        let call = files.call(Version::Today, "ADD", "one", &json!({}));
        let again = call.env("CNI_NETNS", "/proc/self/ns/mnt").run();
        assert_eq!(again.addresses(), [ip.as_str()]);
        assert_eq!(files.add(last, "one"), ip);
        files.del(last, "one", &ip);
        assert_eq!(files.left(), [""; 0], "{last:?} releases");
        // Each address is free again for both.
        let mut given = BTreeSet::new();
        for i in 0..29 {
            given.insert(files.add(BOTH[i % 2], &format!("pod-{i}")));
        }
        assert!(given.len() == 29 && given.contains(&ip));
    }
}

/// Kills the plugin of one version at many moments. The other version then finds a store that it can use to the last address.
#[test]
fn each_version_repairs_the_store_after_a_killed_call_of_the_other() {
    for killed in BOTH {
        let files = Files::new();
        let then = killed.other();
        for i in 0..60_u64 {
            let pod = format!("pod-{i}");
            let call = files.call(killed, "ADD", &pod, &json!({}));
            call.killed_after(std::time::Duration::from_micros(i * 50));
            let ip = files.add(then, &pod);
            let call = files.call(killed, "DEL", &pod, &json!({}));
            files.ledger.ended(&[ip.parse().unwrap()]);
            call.killed_after(std::time::Duration::from_micros(i * 50));
            files.run(then, "DEL", &pod).done();
        }
        assert_eq!(files.left(), [""; 0], "{killed:?} was killed");
        let given: BTreeSet<String> = (0..29).map(|i| files.add(then, &format!("last-{i}"))).collect();
        assert_eq!(given.len(), 29);
    }
}
