// SPDX-License-Identifier: Apache-2.0
//! Whichever request the kernel refuses, ADD leaves nothing. If the rollback fails too, DEL completes it.

use common::cni::{Env, Reader, Streams, dispatch};
use std::fs::File;
use std::path::Path;
use tests::fail::{Faults, Refuse};
use tests::{Conf, Node, Pod, Value, json, traces::assert_same};

/// Calls ADD in this process, on a kernel with faults. The IPAM plugin is a separate process, as always.
fn add(node: &Node, pod: &Pod<'_>, conf: &Conf, faults: &Faults) -> (u8, Value) {
    let text = |value: &Path| value.display().to_string();
    let path = std::env::join_paths(node.cni_path()).unwrap();
    let env: Env = [
        ("CNI_COMMAND", "ADD".to_owned()),
        ("CNI_CONTAINERID", pod.id.clone()),
        ("CNI_NETNS", text(&pod.netns)),
        ("CNI_IFNAME", "net1".to_owned()),
        ("CNI_PATH", path.to_str().unwrap().to_owned()),
    ]
    .into_iter()
    .collect();
    let stdin = conf.to_value().to_string();
    let mut stdout = Vec::new();
    let streams = Streams {
        stdin: stdin.as_bytes(),
        stdout: &mut stdout,
        stderr: std::io::sink(),
        reader: Reader::PRESENT,
    };
    let state = node.path("state");
    let status = dispatch(&faults.plugin(&state), "cni-ipoib", &env, streams);
    outlive_forks(&state.join("attachments").join(conf.text("name")));
    (status, serde_json::from_slice(&stdout).unwrap())
}

/// Waits until no process has a journal entry in `journal` locked.
///
/// ADD runs in this process. If another test of this process forks meanwhile, its child inherits the lock and has it until
/// `execve`. A plugin is a process of its own, so no child of another thread can have its lock. GC skips a locked entry.
fn outlive_forks(journal: &Path) {
    for entry in std::fs::read_dir(journal).into_iter().flatten() {
        let file = File::open(entry.unwrap().path()).unwrap();
        file.lock().unwrap();
        // Unlocks explicitly, because a child that was forked now has the file too.
        file.unlock().unwrap();
    }
}

fn network(node: &Node) -> Conf {
    let mut ipam = node.dual_stack_ipam();
    ipam["routes"] = json!([{"dst": "10.8.0.0/16"}, {"dst": "fd00:8::/32"}]);
    node.conf(json!({"ipam": ipam, "mtu": 1400}))
}

#[test]
fn a_failure_at_any_request_to_the_kernel_leaves_nothing() {
    Node::run(|node| {
        let conf = network(node);
        let mut failed = 0;
        for number in 1.. {
            let pod = node.pod();
            let before = node.traces(&[&pod]);
            let faults = Faults::new(Refuse::Only(number));
            let (status, answer) = add(node, &pod, &conf, &faults);
            if status == 0 {
                pod.keep(&conf, "net1", &answer);
                pod.check(&conf, "net1").done();
                pod.detach(&conf, "net1");
            } else {
                failed += 1;
                let text = answer.to_string();
                assert!(
                    text.contains("refused by the test"),
                    "request {number} is not the cause: {answer}"
                );
            }
            assert_same(
                &before,
                &node.traces(&[&pod]),
                &format!("with request {number} refused: {answer}"),
            );
            if !faults.struck() {
                break;
            }
        }
        assert!(
            failed >= 12,
            "only {failed} requests could fail; was the wrapper bypassed?"
        );
    });
}

#[test]
fn del_cleans_up_after_a_kernel_that_refuses_every_later_request() {
    Node::run(|node| {
        let conf = network(node);
        for number in 1.. {
            let pod = node.pod();
            let before = node.traces(&[&pod]);
            let faults = Faults::new(Refuse::From(number));
            let (status, answer) = add(node, &pod, &conf, &faults);
            if status != 0 && !pod.links().is_empty() {
                let text = answer.to_string();
                assert!(
                    text.contains("not undone") && text.contains("DEL retries"),
                    "{answer}"
                );
                assert_eq!(
                    node.traces(&[&pod]).attachments.len(),
                    1,
                    "what is left is recorded: {answer}"
                );
            }
            pod.detach(&conf, "net1");
            assert_same(
                &before,
                &node.traces(&[&pod]),
                &format!("after DEL, requests from {number} on refused: {answer}"),
            );
            if !faults.struck() {
                break;
            }
        }
    });
}

#[test]
fn gc_and_the_next_add_clean_up_after_a_failed_rollback() {
    Node::run(|node| {
        let conf = network(node);
        let mut left = 0;
        for number in 1.. {
            let pod = node.pod();
            let before = node.traces(&[&pod]);
            let faults = Faults::new(Refuse::From(number));
            let (status, _) = add(node, &pod, &conf, &faults);
            if status != 0 && !pod.links().is_empty() {
                left += 1;
                if left % 2 == 0 {
                    node.gc(&conf, &[]).done();
                    assert_same(&before, &node.traces(&[&pod]), &format!("after GC, {number}"));
                } else {
                    pod.attach(&conf, "net1");
                    pod.check(&conf, "net1").done();
                }
            }
            pod.detach(&conf, "net1");
            if !faults.struck() {
                break;
            }
        }
        assert!(left >= 4, "only {left} faults left anything behind");
    });
}

#[test]
fn an_unwritable_state_directory_makes_add_fail_early_and_del_succeed() {
    Node::run(|node| {
        let conf = network(node);
        let pod = node.pod();
        let plain = node.path("plain");
        std::fs::write(&plain, "").unwrap();
        let before = node.traces(&[&pod]);
        let state = plain.join("state");
        let add = pod.call("ADD", &conf, "net1").env("RDMANET_STATE", &state);
        add.run().refused(5, &["create", "plain/state", "RDMANET_STATE"]);
        assert_same(&before, &node.traces(&[&pod]), "after a refused ADD");
        pod.attach(&conf, "net1");
        pod.call("DEL", &conf, "net1")
            .env("RDMANET_STATE", &state)
            .run()
            .done();
        assert!(pod.links().is_empty() && node.leases().is_empty());
    });
}
