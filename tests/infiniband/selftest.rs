// SPDX-License-Identifier: Apache-2.0
//! `rdmanet selftest`: every step passes on a sound node, on both kinds of HCA. A broken plugin is reported, ports in use
//! are refused, and nothing remains, even after a kill of the self-test.

use crate::fabric::{network, run, run_accelerated, soon};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tests::{Node, Value, json, traces::assert_same};

/// The steps of a self-test without a peer, in this order.
const STEPS: [&str; 14] = [
    "ADD attaches a pod (a)",
    "ADD attaches a pod (b)",
    "rdmanet-selftest-a reaches rdmanet-selftest-b",
    "rdmanet-selftest-b reaches rdmanet-selftest-a",
    "ib_write_bw moves data between the pods",
    "CHECK finds rdmanet-selftest-a as ADD left it",
    "CHECK finds rdmanet-selftest-b as ADD left it",
    "after each of 6 kills in the middle of ADD, DEL leaves nothing",
    "the kills did not change another pod",
    "after a namespace is gone, DEL leaves nothing",
    "after a namespace is gone, GC leaves nothing, and keeps the other pod",
    "DEL detaches a pod, and succeeds again",
    "everything that the self-test created is removed",
    "the node is in the same state as before",
];

fn command(node: &Node, words: &[&str]) -> Command {
    let mut command = Command::new("/opt/cni/bin/rdmanet");
    command.args(["-o", "json", "selftest"]).args(words);
    // The node's own records; the self-test compares them before and after.
    command
        .env("RDMANET_STATE", node.path("state"))
        .env("RDMANET_DATA_DIR", node.path("rdma-ipam"));
    command
}

fn selftest(node: &Node, words: &[&str]) -> Output {
    let output = command(node, words).output();
    output.expect("rdmanet in /opt/cni/bin: tests/all puts it there")
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

/// The steps with this result.
fn steps(report: &Value, result: &str) -> Vec<String> {
    let all = report["steps"].as_array().unwrap();
    let of = all.iter().filter(|step| step["result"] == result);
    of.map(|step| format!("{} ({}) {}", step["name"], step["seen"], step["why"]))
        .collect()
}

/// Asserts that every step ran and passed.
fn assert_sound(output: &Output) -> Value {
    let report = report(output);
    for result in ["failed", "notRun"] {
        assert_eq!(steps(&report, result), [""; 0], "{report:#}");
    }
    assert!(output.status.success(), "{output:?}");
    report
}

#[test]
fn the_self_test_passes_on_a_healthy_node_and_leaves_it_unchanged() {
    for (hcas, driver, children) in [
        ("", "ib_ipoib", "direct"),
        ("all", "mlx5_core[ib_ipoib]", "moved"),
    ] {
        run_accelerated(hcas, |node| {
            let before = node.traces(&[]);
            let report = assert_sound(&selftest(node, &["--master", "ib2"]));
            let names: Vec<&str> = report["steps"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|step| step["name"].as_str())
                .collect();
            assert_eq!(names, STEPS);
            assert_eq!(report["node"]["link driver"], format!("driver: {driver}"));
            assert_eq!(report["node"]["children"], children);
            assert_same(&before, &node.traces(&[]), "after the self-test");
            assert!(!Path::new("/run/rdmanet-selftest").exists());
        });
    }
}

#[test]
fn the_self_test_refuses_a_port_that_the_node_or_a_pod_uses() {
    run_accelerated("", |node| {
        let pod = node.pod();
        let conf = network(node, &json!({"master": "ib2"}));
        let refused = |master: &str, why: &str| {
            let output = selftest(node, &["--master", master]);
            let printed = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            assert!(printed.contains(master) && printed.contains(why), "{printed}");
        };
        pod.attach(&conf, "net1");
        refused("ib2", "has 1 pods on it");
        pod.detach(&conf, "net1");
        refused("ib9", "no such link");
        for (make, undo, why) in [
            (
                "addr add 10.77.0.1/24 dev ib1",
                "addr del 10.77.0.1/24 dev ib1",
                "address 10.77.0.1/24",
            ),
            (
                "route add 10.78.0.0/24 dev ib1 table 7",
                "route del 10.78.0.0/24 dev ib1 table 7",
                "route",
            ),
            (
                "link add link ib1 name ib1.8001 type ipoib pkey 0x8001",
                "link del ib1.8001",
                "ib1.8001",
            ),
        ] {
            node.ip(make);
            refused("ib1", why);
            node.ip(undo);
        }
        node.ip("netns add other");
        node.ip("link add link ib1 name other1 type ipoib");
        node.ip("link set other1 netns other");
        refused("ib1", "has other1 of the namespace other on it");
        node.ip("-netns other link del other1");
        node.ip("netns del other");
    });
}

#[test]
fn the_self_test_refuses_a_port_that_a_program_uses_by_rdma() {
    run(|node| {
        // This program creates its queue pair before it waits for a client; ib_write_bw and rping do so after.
        let mut program = Command::new("ibv_rc_pingpong")
            .args(["-d", "softib1"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        soon("the program waits for a client", || {
            !node.exec("ss", "-Hltn sport = :18515").stdout.is_empty()
        });
        let output = selftest(node, &["--master", "ib1"]);
        program.kill().unwrap();
        program.wait().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let why = format!(
            "ib1 has a queue pair of the program ibv_rc_pingpong (process {}): end it first",
            program.id()
        );
        assert!(printed.contains(&why), "{printed}");
    });
}

#[test]
fn the_self_test_refuses_a_port_of_a_bond() {
    run(|node| {
        node.ip("link add bond7 type bond mode active-backup fail_over_mac active miimon 100");
        node.ip("link set ib1 down");
        node.ip("link set ib1 master bond7");
        let output = selftest(node, &["--master", "ib1"]);
        node.ip("link set ib1 nomaster");
        node.ip("link del bond7");
        node.ip("link set ib1 up");
        soon("ib1 has carrier", || node.link("ib1").carrier);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(printed.contains("ib1 is a port of bond7"), "{printed}");
    });
}

/// Installs `rdma-ipam` and a script in place of `cni-ipoib`, which runs `fault` before the plugin.
fn broken_plugins(node: &Node, fault: &str) -> PathBuf {
    let directory = node.path("broken");
    fs::create_dir_all(&directory).unwrap();
    fs::copy("/opt/cni/bin/rdma-ipam", directory.join("rdma-ipam")).unwrap();
    let plugin = directory.join("cni-ipoib");
    fs::write(
        &plugin,
        format!("#!/bin/bash\n{fault}\nexec /opt/cni/bin/cni-ipoib\n"),
    )
    .unwrap();
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

#[test]
fn each_fault_of_a_plugin_fails_the_step_that_tests_for_it() {
    run_accelerated("all", |node| {
        let before = node.traces(&[]);
        for (fault, step) in [
            ("[[ $CNI_COMMAND == DEL ]] && exit 0", "DEL detaches a pod"),
            (
                "[[ $CNI_COMMAND == DEL && $CNI_CONTAINERID == *-c ]] && exit 0",
                "kills in the middle of ADD, DEL leaves nothing",
            ),
            // A child that the kernel returns to the host. The second run of DEL, at the end, leaves it too.
            (
                "if [[ $CNI_CONTAINERID == *-b ]]; then\n\
                [[ $CNI_COMMAND == ADD ]] && touch /run/added\n\
                [[ $CNI_COMMAND == DEL && -e /run/added ]] && rm /run/added && ip link add link ib2 name left type ipoib pkey 0x8001\n\
                fi",
                "after a namespace is gone, DEL leaves nothing",
            ),
            ("[[ $CNI_COMMAND == CHECK ]] && exit 1", "as ADD left it"),
            ("[[ $CNI_COMMAND == GC ]] && exit 0", "GC leaves nothing"),
            (
                "[[ $CNI_COMMAND == ADD ]] && ip link add left type dummy 2>/dev/null",
                "the node is in the same state as before",
            ),
            (
                "[[ $CNI_COMMAND == ADD && $CNI_CONTAINERID == *-b ]] && exit 1",
                "ADD attaches a pod (b)",
            ),
        ] {
            let plugins = broken_plugins(node, fault);
            let output = selftest(node, &["--master", "ib2", "--plugins", plugins.to_str().unwrap()]);
            assert_eq!(output.status.code(), Some(1), "{fault}: {output:?}");
            let failed = steps(&report(&output), "failed");
            assert!(failed.iter().any(|one| one.contains(step)), "{fault}: {failed:?}");
            node.exec("ip", "link del left");
            fs::remove_dir_all(&plugins).unwrap();
        }
        assert_sound(&selftest(node, &["--master", "ib2"]));
        assert_same(&before, &node.traces(&[]), "after the last run");
    });
}

/// A listener on `master` whose pod is attached, and its first line.
fn listener_on(node: &Node, master: &str) -> (Child, String) {
    let mut listener = command(node, &["--listen", "--master", master])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stderr = listener.stderr.as_mut().unwrap();
    BufReader::new(stderr).read_line(&mut line).unwrap();
    (listener, line)
}

#[test]
fn a_self_test_cleans_up_after_a_killed_self_test() {
    run(|node| {
        let before = node.traces(&[]);
        let mut killed = command(node, &["--master", "ib2"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        soon("the second pod is being attached", || {
            Path::new("/run/netns/rdmanet-selftest-b").exists()
        });
        killed.kill().unwrap();
        killed.wait().unwrap();
        assert!(Path::new("/run/netns/rdmanet-selftest-a").exists());
        // The pod of a killed listener keeps its port in use, too.
        let (mut listener, line) = listener_on(node, "ib1");
        assert!(line.contains("listening"), "{line}");
        let servers = || processes_in("rdmanet-selftest-listener-a");
        soon("the listener's server runs", || !servers().is_empty());
        let servers = servers();
        listener.kill().unwrap();
        listener.wait().unwrap();
        assert!(Path::new("/run/netns/rdmanet-selftest-listener-a").exists());
        assert!(
            !Path::new("/run/netns/rdmanet-selftest-a").exists(),
            "the listener removed it"
        );
        assert_sound(&selftest(node, &["--master", "ib1"]));
        assert_same(&before, &node.traces(&[]), "after the second run");
        // A process that has ended has no namespace, even if nothing has reaped it.
        let lives = |pid: &String| Path::new("/proc").join(pid).join("ns/net").read_link().is_ok();
        let left: Vec<&String> = servers.iter().filter(|pid| lives(pid)).collect();
        assert!(left.is_empty(), "servers of the killed listener: {left:?}");
    });
}

fn processes_in(namespace: &str) -> Vec<String> {
    let listed = Command::new("ip")
        .args(["netns", "pids", namespace])
        .output()
        .unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_listener_answers_the_self_test_of_another_node() {
    run_accelerated("0", |node| {
        let (mut listener, line) = listener_on(node, "ib1");
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        let report = assert_sound(&selftest(node, &["--master", "ib0", "--peer", &address]));
        let passed = steps(&report, "ok");
        for step in ["the peer answers", "ib_write_bw moves data to the peer"] {
            assert!(passed.iter().any(|one| one.contains(step)), "{passed:?}");
        }
        drop(listener.stdin.take());
        let output = listener.wait_with_output().unwrap();
        let report = assert_sound(&output);
        let passed = steps(&report, "ok");
        assert!(
            passed.iter().any(|one| one.contains("1 measurements")),
            "{passed:?}"
        );
    });
}
