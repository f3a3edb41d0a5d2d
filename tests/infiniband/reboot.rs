// SPDX-License-Identifier: Apache-2.0
//! A node reboots with pods attached, one ADD and one DEL killed halfway, and its leases on the disk. The pods use two
//! ports alternately. The job `reboot` of `tests/all` gives these ports HCAs of both kinds.

use crate::fabric::{network, run};
use nix::sys::signal::Signal;
use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;
use tests::trace::{Process, Scope, Victim};
use tests::{Conf, Node, Pod, Value, json, traces::assert_same};

/// In the VM's memory: `rdma-ipam` rejects a file system that other machines may mount.
const LEASES: &str = "/var/lib/rdma-ipam";
/// A directory that survives a reboot (`tests/fabric/run --help`).
const DISK: &str = "/keep/rdma-ipam";
/// The results of the ADDs before the reboot, as libcni caches them.
const CACHE: &str = "/keep/results.json";
const OLD: [&str; 2] = ["old-1", "old-2"];

/// A network with addresses for four pods, which use `ib0` and `ib1` alternately.
fn small_network(node: &Node, number: usize) -> Conf {
    let range = json!({"subnet": "10.7.0.0/24", "rangeStart": "10.7.0.10", "rangeEnd": "10.7.0.13"});
    let ipam = json!({"type": "rdma-ipam", "dataDir": LEASES, "cooldown": 0, "ranges": [[range]]});
    let master = ["ib0", "ib1"][number % 2];
    network(node, &json!({"master": master})).with("ipam", ipam)
}

#[test]
#[ignore = "reboots the VM: tests/fabric/run --reboots 1 (job `reboot` of tests/all)"]
fn after_a_reboot_addresses_are_free_and_old_dels_leave_new_pods_intact() {
    let boot = std::env::var_os("FABRIC_BOOT").expect("FABRIC_BOOT, which the fabric's VM sets");
    run(|node| match boot.to_str() {
        Some("1") => before_the_reboot(node),
        _ => after_the_reboot(node),
    });
}

fn before_the_reboot(node: &Node) {
    let pods = OLD.map(|id| old(node, id));
    let results: Vec<_> = pods
        .iter()
        .enumerate()
        .map(|(number, pod)| pod.attach(&small_network(node, number), "net1"))
        .collect();
    // One ADD dies after it claimed its address and created its link, one DEL while the IPAM plugin releases the
    // address.
    call_and_kill(
        &old(node, "old-3"),
        "ADD",
        &small_network(node, 0),
        Process::Plugin,
        "RTM_SETLINK",
    );
    call_and_kill(
        &pods[1],
        "DEL",
        &small_network(node, 1),
        Process::Delegate(1),
        "rename",
    );
    fs::write(CACHE, Value::from(results).to_string()).unwrap();
    File::open(CACHE).unwrap().sync_all().unwrap();
    copy(Path::new(LEASES), Path::new(DISK), &mut HashMap::new());
    fs::write("/proc/sysrq-trigger", "b").unwrap();
    sleep(Duration::from_secs(60));
    panic!("the VM did not go down");
}

fn after_the_reboot(node: &Node) {
    copy(Path::new(DISK), Path::new(LEASES), &mut HashMap::new());
    let before = lease_files().len();
    assert!(before > 0, "the leases of the first boot are still on the disk");
    let pods = [node.pod(), node.pod(), node.pod(), node.pod()];
    let addresses: BTreeSet<_> = pods
        .iter()
        .enumerate()
        .map(|(number, pod)| {
            pod.attach(&small_network(node, number), "net1")["ips"][0]["address"].to_string()
        })
        .collect();
    assert_eq!(addresses.len(), 4, "{addresses:?}");
    assert_eq!(
        boots().len(),
        1,
        "what the first boot left is gone: {:?}",
        boots()
    );
    let attached = (node.traces(&pods.each_ref()), lease_files());
    let cache: Value = serde_json::from_slice(&fs::read(CACHE).unwrap()).unwrap();
    // The runtime deletes the pods in its cache. New pods may have their namespace paths by now.
    let old = OLD.iter().zip(cache.as_array().unwrap()).zip(&pods);
    for (number, ((id, result), new)) in old.enumerate() {
        let conf = small_network(node, number).with("prevResult", result.clone());
        let del = node
            .call("DEL", &conf)
            .env("CNI_CONTAINERID", *id)
            .env("CNI_IFNAME", "net1")
            .env("CNI_NETNS", &new.netns);
        del.run().done();
        del.env_remove("CNI_NETNS").run().done();
    }
    let valid: Vec<_> = pods.iter().map(|pod| (pod.id.as_str(), "net1")).collect();
    node.gc(&small_network(node, 0), &valid).done();
    assert_same(
        &attached.0,
        &node.traces(&pods.each_ref()),
        "after the DELs of old pods",
    );
    assert_eq!(attached.1, lease_files());
    for (number, pod) in pods.iter().enumerate() {
        let conf = small_network(node, number);
        pod.check(&conf, "net1").done();
        pod.detach(&conf, "net1");
    }
    assert_eq!(lease_files(), [""; 0]);
}

/// Copies a directory with its hard links. `names` maps an inode to its first copied path.
fn copy(from: &Path, to: &Path, names: &mut HashMap<u64, PathBuf>) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (file, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            copy(&file, &target, names);
            continue;
        }
        match names.get(&entry.ino()) {
            Some(earlier) => fs::hard_link(earlier, &target).unwrap(),
            None => drop(fs::copy(&file, &target).unwrap()),
        }
        names.insert(entry.ino(), target);
    }
}

/// A pod from before the reboot. Container ids are unique.
fn old<'n>(node: &'n Node, id: &str) -> Pod<'n> {
    let mut pod = node.pod();
    id.clone_into(&mut pod.id);
    pod
}

/// Starts a call that dies, with all processes it started, before the first such request.
fn call_and_kill(pod: &Pod<'_>, verb: &str, conf: &Conf, by: Process, request: &str) {
    let traced = pod.call(verb, conf, "net1").traced(Scope::Changes, |step| {
        (step.by == by && step.what.starts_with(request)).then_some((Victim::All, Signal::SIGKILL))
    });
    assert!(
        traced.answer.was_killed(),
        "{} {:#?}",
        traced.answer,
        traced.steps
    );
}

/// The directories of boots in the lease store.
fn boots() -> Vec<String> {
    let directory = Path::new(LEASES).join("net-a");
    let names = fs::read_dir(directory).unwrap().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("boot-")).collect()
}

/// Leases, claimed addresses, and files of running or killed calls.
fn lease_files() -> Vec<String> {
    let output = std::process::Command::new("find")
        .args([LEASES, "-type", "f"])
        .output()
        .unwrap();
    let files = String::from_utf8(output.stdout).unwrap();
    let counts = |file: &&str| {
        !["/resting/", "/cursors/", "/lock"]
            .iter()
            .any(|part| file.contains(part))
    };
    let mut found: Vec<_> = files.lines().filter(counts).map(str::to_owned).collect();
    found.sort();
    found
}
