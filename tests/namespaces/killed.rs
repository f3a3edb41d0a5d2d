// SPDX-License-Identifier: Apache-2.0
//! kill -9 at every step of the real binary, as a runtime does at its time limit: DEL, GC and a second ADD each put it
//! right.

use tests::kill::{Fate, at_each_step};
use tests::{Conf, Node, Pod, json, traces::assert_same};

fn network(node: &Node) -> Conf {
    let mut ipam = node.rdma_ipam("10.7.0.0/24");
    ipam["routes"] = json!([{"dst": "10.8.0.0/16"}]);
    node.conf(json!({"ipam": ipam}))
}

/// Kills ADD at each of its steps and lets `repair` put the pod right, so that nothing is left.
fn add_killed(repair: impl Fn(&Node, &Pod<'_>, &Conf) + Send + Sync) {
    Node::run(|node| {
        let conf = network(node);
        let kills = at_each_step(|step| {
            let pod = node.pod();
            let before = node.traces(&[&pod]);
            let fate = pod.call("ADD", &conf, "net1").killed_at(step);
            match &fate {
                Fate::Killed => repair(node, &pod, &conf),
                Fate::Survived(answer) => {
                    pod.keep(&conf, "net1", &answer.result());
                    pod.check(&conf, "net1").done();
                    pod.detach(&conf, "net1");
                }
            }
            assert_same(
                &before,
                &node.traces(&[&pod]),
                &format!("after ADD was killed before {step}"),
            );
            fate
        });
        assert!(
            kills >= 40,
            "ADD died only {kills} times; does strace see its system calls?"
        );
    });
}

#[test]
fn del_after_a_kill_at_any_step_leaves_nothing() {
    add_killed(|_, pod, conf| pod.detach(conf, "net1"));
}

#[test]
fn del_without_the_namespace_after_a_kill_at_any_step_leaves_nothing() {
    add_killed(|_, pod, conf| {
        pod.call("DEL", conf, "net1").env_remove("CNI_NETNS").run().done();
    });
}

#[test]
fn gc_after_a_kill_at_any_step_leaves_nothing() {
    add_killed(|node, _, conf| node.gc(conf, &[]).done());
}

#[test]
fn add_after_a_kill_at_any_step_succeeds_unless_only_the_answer_was_missing() {
    add_killed(|node, pod, conf| {
        let file = node.path(&format!("state/attachments/net-a/{}@net1", pod.id));
        let written = std::fs::read_to_string(file).unwrap_or_default();
        if written.lines().nth(1) == Some("done") {
            // The specification asks ADD to fail where the interface is, and it is there, whole.
            pod.add(conf, "net1").refused(101, &["net1"]);
            pod.detach(conf, "net1");
        }
        pod.attach(conf, "net1");
        pod.check(conf, "net1").done();
        pod.detach(conf, "net1");
    });
}

#[test]
fn del_after_a_kill_of_del_at_any_step_leaves_nothing() {
    Node::run(|node| {
        let conf = network(node);
        let kills = at_each_step(|step| {
            let pod = node.pod();
            let before = node.traces(&[&pod]);
            pod.attach(&conf, "net1");
            let fate = pod.call("DEL", &conf, "net1").killed_at(step);
            pod.detach(&conf, "net1");
            assert_same(
                &before,
                &node.traces(&[&pod]),
                &format!("after DEL was killed before {step} and repeated"),
            );
            fate
        });
        assert!(
            kills >= 20,
            "DEL died only {kills} times; does strace see its system calls?"
        );
    });
}

#[test]
fn the_death_of_the_namespace_after_a_kill_leaves_nothing_either() {
    Node::run(|node| {
        let conf = network(node);
        at_each_step(|step| {
            let pod = node.pod();
            let before = node.traces(&[]);
            let fate = pod.call("ADD", &conf, "net1").killed_at(step);
            pod.die();
            pod.detach(&conf, "net1");
            assert_same(
                &before,
                &node.traces(&[]),
                &format!("after a kill before {step} and the namespace's death"),
            );
            fate
        });
    });
}
