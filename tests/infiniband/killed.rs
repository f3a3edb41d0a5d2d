// SPDX-License-Identifier: Apache-2.0
//! kill -9 before each request to the kernel: DEL, GC and the next ADD put it right, also when the namespace dies and
//! the child lies among the node's links. (The other system calls have nothing to do with InfiniBand; the suite
//! `namespaces` dies before each of them.)

use crate::fabric::{network, run};
use std::fs;
use tests::kill::{Fate, at_each_step_of};
use tests::{Conf, Node, Pod, json, traces::assert_same};

/// Kills ADD before each request and lets `repair` put the pod right, so that nothing is left.
fn add_killed(repair: impl Fn(&Node, &Pod<'_>, &Conf) + Send + Sync) {
    run(|node| {
        let conf = network(node, &json!({}));
        let kills = at_each_step_of(&["sendto", "exit_group"], |step| {
            let pod = node.pod();
            let before = node.traces(&[]);
            let fate = pod.call("ADD", &conf, "net1").killed_at(step);
            match &fate {
                Fate::Killed => repair(node, &pod, &conf),
                Fate::Survived(answer) => {
                    pod.keep(&conf, "net1", &answer.result());
                    pod.detach(&conf, "net1");
                }
            }
            let when = format!("after ADD was killed before {step}");
            assert_same(&before, &node.traces(&[]), &when);
            assert!(
                !pod.netns.exists() || pod.links().is_empty(),
                "{when}: {:?}",
                pod.link_names()
            );
            fate
        });
        assert!(
            kills >= 8,
            "ADD died only {kills} times; does strace see its system calls?"
        );
    });
}

#[test]
fn del_after_a_kill_before_any_request_leaves_nothing() {
    add_killed(|_, pod, conf| pod.detach(conf, "net1"));
}

#[test]
fn gc_after_a_kill_before_any_request_and_the_death_of_the_namespace_leaves_nothing() {
    add_killed(|node, pod, conf| {
        // A link that was born before the kill is on its way to the node then; GC must not come too early for it.
        let born = !pod.links().is_empty();
        let links = node.links().len();
        pod.die();
        if born {
            crate::fabric::soon("the kernel puts the child back", || node.links().len() > links);
        }
        node.gc(conf, &[]).done();
    });
}

#[test]
fn add_after_a_kill_before_any_request_succeeds_unless_only_the_answer_was_missing() {
    add_killed(|node, pod, conf| {
        let file = node.path(&format!("state/attachments/net-a/{}@net1", pod.id));
        let written = fs::read_to_string(file).unwrap_or_default();
        if written.lines().nth(1) == Some("done") {
            pod.add(conf, "net1").refused(101, &["net1"]);
        } else {
            pod.attach(conf, "net1");
            pod.check(conf, "net1").done();
        }
        pod.detach(conf, "net1");
    });
}
