// SPDX-License-Identifier: Apache-2.0
//! Kills the plugin at every request that changes something, then cleans up in every way: no link, address, route,
//! rule, setting, lease or file remains.

use nix::sys::signal::Signal;
use tests::faults::{Faults, Verb};
use tests::{Node, json};

/// Kills all calls of `verb` on a node with a `macvlan` network of both address families.
fn killed_everywhere(verb: Verb, signal: Signal, limit: Option<usize>) {
    Node::run(|node| {
        let mut ipam = node.dual_stack_ipam();
        ipam["routes"] = json!([{"dst": "10.8.0.0/16"}]);
        let conf = node.conf(json!({"name": "macvlan", "ipam": ipam}));
        Faults::new(node, &conf).kill_everywhere(verb, signal, limit);
    });
}

#[test]
fn add_killed_at_any_step_leaves_nothing_after_cleanup() {
    killed_everywhere(Verb::Add, Signal::SIGKILL, None);
}

#[test]
fn del_killed_at_any_step_leaves_nothing_after_cleanup() {
    killed_everywhere(Verb::Del, Signal::SIGKILL, None);
}

#[test]
fn add_terminated_at_any_step_leaves_nothing_after_cleanup() {
    killed_everywhere(Verb::Add, Signal::SIGTERM, Some(60));
}

#[test]
fn del_terminated_at_any_step_leaves_nothing_after_cleanup() {
    killed_everywhere(Verb::Del, Signal::SIGTERM, Some(60));
}
