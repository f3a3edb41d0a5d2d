// SPDX-License-Identifier: Apache-2.0
//! Several pools in one configuration, and fallback pools.

use super::{Agent, assert_says, pool, refused, write};
use crate::agent::{Reply, Verb};
use crate::pool::PoolFile;
use crate::testing::{BOOT_ID, Fixture, range};
use common::cni::Code;
use serde_json::json;

fn second(name: &str) -> PoolFile {
    let mut file = pool(name, &["10.1.0.32/30"]);
    file.ranges = vec![range("10.1.0.0/24")];
    file
}

/// A node with pool `rail0` of one address, already allocated, and pool `spare`; the configuration names
/// `pools`.
fn fixture(pools: &[&str], fallback: &[&str]) -> Fixture {
    let fixture = Fixture::of_pools(&json!({ "pools": pools }));
    let mut first = pool("rail0", &["10.0.0.32/32"]);
    first.fallback = fallback.iter().map(|name| name.parse().unwrap()).collect();
    write(fixture.data_dir(), &first);
    write(fixture.data_dir(), &second("spare"));
    assert_eq!(fixture.add("a"), ["10.0.0.32"], "the pool that is preferred");
    fixture
}

#[test]
fn the_next_pool_is_used_when_the_first_is_exhausted() {
    for fixture in [
        fixture(&["rail0", "spare"], &[]),
        fixture(&["rail0"], &["spare", "rail0"]),
    ] {
        let agent = Agent::start(&fixture, |_| {
            Some(refused(Code::EXHAUSTED, "exhausted: 254 of 254 in use"))
        });
        assert_eq!(fixture.add("b"), ["10.1.0.32"]);
        assert_eq!(agent.end().len(), 1);
        assert_eq!(fixture.add("b"), ["10.1.0.32"], "again, and without agent");
        let added = fixture.try_add("b").unwrap();
        fixture.check("b", &added).unwrap();
        fixture.del("a").unwrap();
        fixture.del("b").unwrap();
        let left = std::fs::read_dir(
            fixture
                .data_dir()
                .join(format!("pools/spare/boot-{BOOT_ID}/leases")),
        )
        .unwrap();
        assert_eq!(left.count(), 0);
    }
}

/// Only the agent knows the fallback pools then.
#[test]
fn the_fallback_of_a_pool_that_is_not_for_the_node_is_tried() {
    let fixture = Fixture::of_pools(&json!({ "pools": ["rail0"] }));
    write(fixture.data_dir(), &second("spare"));
    let agent = Agent::start(&fixture, |_| {
        let refusal = refused(Code::POOL_NOT_HERE, "pool rail0 is not for node n");
        Some(refusal.with_fallback(&["spare".parse().unwrap()]))
    });
    fixture.status().unwrap();
    assert_eq!(fixture.add("a"), ["10.1.0.32"]);
    assert_eq!(fixture.add("a"), ["10.1.0.32"], "again, and without agent");
    assert_eq!(agent.end().len(), 2);
    fixture.del("a").unwrap();
}

/// The agent refuses a pool that is not for the node.
#[test]
fn a_pool_whose_file_is_not_yet_written_is_not_passed_over() {
    let fixture = Fixture::of_pools(&json!({ "pools": ["rail0", "spare"] }));
    write(fixture.data_dir(), &second("spare"));
    for answer in [Reply::Local, Reply::Allocate { families: Vec::new() }] {
        let agent = Agent::start(&fixture, move |_| Some(answer.clone()));
        let words = ["pool rail0", "its agent has not written"];
        assert_says(&fixture.try_add("a").unwrap_err(), Code::TRY_AGAIN, &words);
        assert_eq!(agent.end().len(), 1, "the agent is asked once");
    }
    assert!(
        !fixture
            .data_dir()
            .join(format!("pools/spare/boot-{BOOT_ID}"))
            .exists()
    );
}

#[test]
fn pools_are_tried_by_priority_and_then_in_order() {
    let fixture = Fixture::of_pools(&json!({ "pools": ["rail0", "spare", "third"] }));
    let file = |name: &str, third: u8, priority: i32| {
        let mut file = pool(name, &[&format!("10.{third}.0.32/32")]);
        file.ranges = vec![range(&format!("10.{third}.0.0/24"))];
        file.priority = priority;
        write(fixture.data_dir(), &file);
    };
    file("rail0", 0, -1);
    file("spare", 1, 7);
    file("third", 2, 7);
    let _agent = Agent::start(&fixture, |_| Some(refused(Code::EXHAUSTED, "exhausted")));
    let given: Vec<_> = ["a", "b", "c"].iter().flat_map(|pod| fixture.add(pod)).collect();
    assert_eq!(given, ["10.1.0.32", "10.2.0.32", "10.0.0.32"]);
    file("rail0", 0, 8);
    assert_eq!(fixture.add("a"), ["10.1.0.32"], "an attachment keeps its address");
}

#[test]
fn a_passing_error_does_not_lead_to_the_next_pool() {
    let fixture = fixture(&["rail0", "spare"], &["spare"]);
    assert_says(
        &fixture.try_add("b").unwrap_err(),
        Code::TRY_AGAIN,
        &["pool rail0", "agent.sock"],
    );
    for code in [Code::API_UNREACHABLE, Code::POOL_UNKNOWN] {
        let _agent = Agent::start(&fixture, move |_| Some(refused(code, "for this reason")));
        assert_says(
            &fixture.try_add("b").unwrap_err(),
            code,
            &["pool rail0", "for this reason"],
        );
    }
}

/// A node whose STATUS succeeds gets pods, so STATUS fails at each pool at which ADD ends its search.
#[test]
fn status_fails_at_a_pool_at_which_add_fails() {
    for code in [Code::POOL_UNKNOWN, Code::TRY_AGAIN] {
        let fixture = Fixture::of_pools(&json!({ "pools": ["misspelt", "spare"] }));
        write(fixture.data_dir(), &second("spare"));
        let _agent = Agent::start(&fixture, move |_| Some(refused(code, "for this reason")));
        assert_eq!(fixture.try_add("a").unwrap_err().code, code);
        assert_says(
            &fixture.status().unwrap_err(),
            Code::NOT_AVAILABLE,
            &["network net: pool misspelt", "for this reason"],
        );
    }
    let fixture = fixture(&["rail0", "misspelt", "spare"], &[]);
    let _agent = Agent::start(&fixture, |request| match request.pool.as_str() {
        "misspelt" => Some(refused(Code::POOL_UNKNOWN, "there is no IPPool misspelt")),
        _ => Some(refused(Code::EXHAUSTED, "exhausted: 254 of 254 in use")),
    });
    let (add, status) = (fixture.try_add("b").unwrap_err(), fixture.status().unwrap_err());
    assert_eq!((add.msg, add.details), (status.msg, status.details));
}

#[test]
fn the_last_error_does_not_hide_the_earlier_ones() {
    let fixture = fixture(&["rail0"], &["misspelt"]);
    let _agent = Agent::start(&fixture, |request| match request.pool.as_str() {
        "misspelt" => Some(refused(Code::POOL_UNKNOWN, "there is no IPPool misspelt")),
        _ => Some(refused(Code::EXHAUSTED, "exhausted: 254 of 254 in use")),
    });
    let error = fixture.try_add("b").unwrap_err();
    assert_says(
        &error,
        Code::POOL_UNKNOWN,
        &[
            "network net: pool misspelt: there is no IPPool",
            "pool rail0: exhausted: 254 of 254 in use",
        ],
    );
}

#[test]
fn a_pool_for_other_nodes_or_namespaces_leads_to_the_next() {
    let fixture = fixture(&["rail0", "spare"], &[]);
    for (i, code) in [Code::POOL_NOT_HERE, Code::POOL_NOT_FOR_NAMESPACE]
        .into_iter()
        .enumerate()
    {
        let _agent = Agent::start(&fixture, move |_| Some(refused(code, "for this reason")));
        fixture.try_add(&format!("b{i}")).unwrap();
    }
}

#[test]
fn when_every_pool_is_exhausted_the_error_has_each_reason() {
    let fixture = fixture(&["rail0", "spare"], &["third"]);
    let agent = Agent::start(&fixture, |request| match request.pool.as_str() {
        "third" => Some(refused(
            Code::POOL_NOT_HERE,
            "its nodeSelector leaves out node n1",
        )),
        _ => Some(refused(Code::EXHAUSTED, "exhausted: 254 of 254 in use")),
    });
    for i in 0..4 {
        fixture.add(&format!("b{i}"));
    }
    let error = fixture.try_add("c").unwrap_err();
    assert_says(
        &error,
        Code::EXHAUSTED,
        &[
            "network net: pool rail0: exhausted",
            "pool third: its nodeSelector leaves out",
            "pool spare: exhausted",
        ],
    );
    let status = fixture.status().unwrap_err();
    assert_says(
        &status,
        Code::NOT_AVAILABLE,
        &["pool rail0: exhausted", "pool spare"],
    );
    let asked = agent.end();
    let order: Vec<&str> = asked
        .iter()
        .rev()
        .take(3)
        .map(|request| request.pool.as_str())
        .collect();
    assert_eq!(order, ["spare", "third", "rail0"]);
    assert_eq!(asked.last().unwrap().verb, Verb::Status);
}

#[test]
fn a_requested_address_is_searched_in_every_pool() {
    let fixture = fixture(&["rail0", "spare"], &[]);
    let given = fixture.request("b", &["10.1.0.34"]).unwrap();
    assert_eq!(given.ips[0].address.to_string(), "10.1.0.34/24");
    let error = fixture.request("c", &["10.2.0.1"]).unwrap_err();
    assert_says(
        &error,
        Code::ADDRESS_OUTSIDE,
        &[
            "pool rail0",
            "10.0.0.1-10.0.0.254",
            "pool spare",
            "10.1.0.1-10.1.0.254",
        ],
    );
}
