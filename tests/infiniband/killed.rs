// SPDX-License-Identifier: Apache-2.0
//! kill -9 before each request to the kernel: DEL, GC and the next ADD put it right, also when the namespace is gone
//! and the child lies among the node's links.

use crate::fabric::{network, run};
use tests::kill::{Fate, at_each_step};
use tests::{Conf, Node, Pod, json, traces::assert_same};

fn add_killed(repair: impl Fn(&Node, &Pod<'_>, &Conf) + Send + Sync) {
    run(|node| {
        let conf = network(node, &json!({}));
        let kills = at_each_step(|step| {
            let pod = node.pod();
            let before = node.traces(&[&pod]);
            let fate = pod.call("ADD", &conf, "net1").killed_at(step);
            match &fate {
                Fate::Killed => repair(node, &pod, &conf),
                Fate::Survived(answer) => {
                    pod.keep(&conf, "net1", &answer.result());
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
