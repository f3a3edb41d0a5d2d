// SPDX-License-Identifier: Apache-2.0
//! DEL in all situations in which a runtime must remove a pod.

use crate::macvlan;
use multus::Setup;
use std::fs;
use std::time::Duration;
use tests::{Node, Pod, json};

/// Asserts that nothing of rdmanet remains, in cases where the namespace is gone and cannot be compared.
fn nothing_left(node: &Node, before: &tests::Snapshot, when: &str) {
    node.assert_as_before(before, &[], when);
}

fn rails(setup: &Setup) {
    setup.network("rail0", &macvlan("rail0", "10.30.0.0/24"));
    setup.network("rail1", &macvlan("rail1", "10.31.0.0/24"));
}

#[test]
fn a_pod_is_detached_while_the_api_server_is_unreachable() {
    Setup::run(|setup| {
        rails(setup);
        let multus = setup.thin();
        let (sandbox, pod) = setup.pod("trainer", "rail0,rail1");
        let before = setup.node.settled_snapshot(&[&sandbox]);
        multus.add(&sandbox, &pod).result();
        setup.relay.cut();
        multus.del(&sandbox, &pod);
        setup
            .node
            .assert_as_before(&before, &[&sandbox], "without an API server");
        setup.relay.mend();
        let (sandbox, pod) = setup.pod("next", "rail0");
        multus.add(&sandbox, &pod).result();
        assert_eq!(sandbox.global("net1"), ["10.30.0.3/24"], "the cursor goes on");
    });
}

#[test]
fn del_succeeds_without_add_and_after_the_pod_was_deleted() {
    Setup::run(|setup| {
        rails(setup);
        let multus = setup.thin();
        let (sandbox, pod) = setup.pod("trainer", "rail0,rail1");
        let before = setup.node.settled_snapshot(&[&sandbox]);
        multus.del(&sandbox, &pod);
        multus.add(&sandbox, &pod).result();
        setup.delete(&pod);
        multus.del(&sandbox, &pod);
        multus.del(&sandbox, &pod);
        setup
            .node
            .assert_as_before(&before, &[&sandbox], "after the second DEL");
    });
}

#[test]
fn del_leaves_nothing_after_the_netns_of_a_pod_died() {
    Setup::run(|setup| {
        rails(setup);
        let multus = setup.thin();
        let before = setup.node.settled_snapshot(&[]);
        let (sandbox, pod) = setup.pod("trainer", "rail0,rail1");
        multus.add(&sandbox, &pod).result();
        sandbox.die();
        multus.del(&sandbox, &pod);
        nothing_left(setup.node, &before, "after the namespace died");
    });
}

#[test]
fn an_add_that_was_killed_at_any_time_is_undone_by_del() {
    Setup::run(|setup| {
        rails(setup);
        let multus = setup.thin();
        let (sandbox, pod) = setup.pod("trainer", "rail0,rail1");
        let before = setup.node.settled_snapshot(&[&sandbox]);
        let mut whole = {
            let took = multus.add(&sandbox, &pod).took;
            multus.del(&sandbox, &pod);
            took
        };
        let mut killed = 0;
        // A call that ended first shows that calls take less time now.
        for part in (1..=12).cycle().take(240) {
            if killed == 12 {
                break;
            }
            let answer = multus.call("ADD", &sandbox, &pod).killed_after(whole * part / 12);
            if answer.was_killed() {
                killed += 1;
            } else {
                whole = whole.min(answer.took);
            }
            // The plugins that Multus started run on for a moment, while a runtime that kills Multus sends DEL at once.
            multus.del(&sandbox, &pod);
            setup.node.assert_as_before(
                &before,
                &[&sandbox],
                format!("killed after {part}/12 of {whole:?}"),
            );
        }
        assert_eq!(killed, 12, "calls that were killed");
        multus.add(&sandbox, &pod).result();
        assert_eq!(sandbox.link_names(), ["eth0", "net1", "net2"]);
    });
}

/// A slow plugin between two plugins of rdmanet. It writes a file when it starts, and ends when another file exists.
fn slow(setup: &Setup) {
    let (begun, end) = (setup.node.path("begun"), setup.node.path("end"));
    setup.node.install_script(
        "slow",
        &format!(
            "[ $CNI_COMMAND = ADD ] || exit 0; : >{}; {}; echo '{{\"cniVersion\":\"1.0.0\"}}'",
            begun.display(),
            Node::until_exists(&end)
        ),
    );
    setup.network(
        "slow",
        &json!({ "cniVersion": "1.0.0", "name": "slow", "type": "slow" }),
    );
}

/// Runs `meanwhile` while the slow plugin runs and the first interface exists.
fn in_the_middle(
    setup: &Setup,
    sandbox: &Pod,
    add: impl Fn() -> tests::Answer + Sync,
    meanwhile: impl FnOnce(),
) -> tests::Answer {
    std::thread::scope(|scope| {
        let adding = scope.spawn(&add);
        let (begun, end) = (setup.node.path("begun"), setup.node.path("end"));
        while !begun.exists() {
            assert!(!adding.is_finished(), "ADD ended before its middle");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(sandbox.link_names().contains(&"net1".to_owned()));
        meanwhile();
        fs::write(&end, "").unwrap();
        let answer = adding.join().unwrap();
        fs::remove_file(begun).unwrap();
        fs::remove_file(end).unwrap();
        answer
    })
}

#[test]
fn a_pod_deleted_during_add_leaves_nothing_after_del() {
    Setup::run(|setup| {
        rails(setup);
        slow(setup);
        let multus = setup.thin();
        let (sandbox, pod) = setup.pod("trainer", "rail0,slow,rail1");
        let before = setup.node.settled_snapshot(&[&sandbox]);
        let add = || multus.add(&sandbox, &pod);
        let answer = in_the_middle(setup, &sandbox, add, || setup.delete(&pod));
        answer.refused(999, &["\\\"trainer\\\" not found"]);
        multus.del(&sandbox, &pod);
        setup.node.assert_as_before(&before, &[&sandbox], "after DEL");
    });
}

#[test]
fn a_sandbox_that_dies_during_add_is_an_error_and_leaves_nothing() {
    Setup::run(|setup| {
        rails(setup);
        slow(setup);
        let multus = setup.thin();
        let before = setup.node.settled_snapshot(&[]);
        let (sandbox, pod) = setup.pod("trainer", "rail0,slow,rail1");
        let add = || multus.add(&sandbox, &pod);
        let answer = in_the_middle(setup, &sandbox, add, || sandbox.die());
        answer.refused(999, &[sandbox.netns.to_str().unwrap()]);
        multus.del(&sandbox, &pod);
        nothing_left(setup.node, &before, "after DEL");
    });
}
