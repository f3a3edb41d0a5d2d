// SPDX-License-Identifier: Apache-2.0
use super::super::super::{Added, Route, Rule, Socket, TABLE_MAIN};
use super::socket;
use crate::netns::tests::fresh;
use std::net::IpAddr;
use std::process::Command;

fn rule(from: &str, table: u32, priority: u32) -> Rule {
    Rule {
        from: from.parse().unwrap(),
        table,
        priority,
    }
}

/// The rules that a fresh namespace does not have.
fn ours(socket: &mut Socket<Route>) -> Vec<Rule> {
    let mut rules = socket.rules().unwrap();
    rules.retain(|rule| rule.from.prefix() > 0);
    rules
}

#[test]
fn a_fresh_namespace_has_the_kernels_own_rules() {
    let mut socket = socket(&fresh());
    let rules = socket.rules().unwrap();
    assert!(rules.contains(&rule("0.0.0.0/0", TABLE_MAIN, 32766)), "{rules:?}");
    assert!(rules.contains(&rule("0.0.0.0/0", 255, 0)), "{rules:?}");
    assert!(rules.contains(&rule("::/0", TABLE_MAIN, 32766)), "{rules:?}");
}

#[test]
fn rules_are_added_once_listed_and_deleted_once() {
    let mut socket = socket(&fresh());
    let rules = [
        rule("10.1.0.2/32", 0x1234_5678, 32000),
        rule("10.2.0.0/16", 100, 31000),
        rule("fd00:1::2/128", 0x1234_5678, 32000),
    ];
    for rule in &rules {
        assert_eq!(socket.add_rule(rule).unwrap(), Added::New);
        assert_eq!(socket.add_rule(rule).unwrap(), Added::Present, "{rule:?}");
    }
    let listed = ours(&mut socket);
    assert_eq!(listed.len(), 3, "{listed:?}");
    assert!(rules.iter().all(|rule| listed.contains(rule)), "{listed:?}");
    for rule in &rules {
        assert!(socket.delete_rule(rule).unwrap());
        assert!(!socket.delete_rule(rule).unwrap(), "{rule:?}");
    }
    assert_eq!(ours(&mut socket), []);
}

#[test]
fn deleting_a_rule_deletes_only_an_equal_one() {
    let mut socket = socket(&fresh());
    let kept = [
        rule("10.1.0.2/32", 100, 32000),
        rule("10.1.0.3/32", 101, 32000),
        rule("10.1.0.2/32", 101, 31999),
    ];
    for rule in &kept {
        socket.add_rule(rule).unwrap();
    }
    assert!(!socket.delete_rule(&rule("10.1.0.2/32", 101, 32000)).unwrap());
    assert!(!socket.delete_rule(&rule("10.1.0.0/24", 101, 32000)).unwrap());
    assert_eq!(ours(&mut socket).len(), 3);
}

#[test]
fn rules_with_other_selectors_are_not_listed() {
    let netns = fresh();
    for words in [
        "rule add from 10.1.0.2 to 10.3.0.0/16 lookup 100",
        "rule add from 10.1.0.2 iif lo lookup 100",
        "rule add from 10.1.0.2 fwmark 7 lookup 100",
        "rule add from 10.1.0.2 blackhole",
        "rule add not from 10.1.0.2 lookup 100",
        "rule add from 10.1.0.2 ipproto 6 dport 22 lookup 100",
        "rule add from 10.1.0.2 suppress_prefixlength 0 lookup 100",
    ] {
        let run = || Command::new("ip").args(words.split(' ')).status();
        assert!(netns.run(run).unwrap().unwrap().success(), "ip {words}");
    }
    let mut socket = socket(&netns);
    assert_eq!(ours(&mut socket), []);
    let from: IpAddr = "10.1.0.2".parse().unwrap();
    socket.add_rule(&rule(&format!("{from}/32"), 100, 5)).unwrap();
    assert_eq!(ours(&mut socket), [rule("10.1.0.2/32", 100, 5)]);
}
