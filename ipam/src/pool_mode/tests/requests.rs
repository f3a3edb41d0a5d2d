// SPDX-License-Identifier: Apache-2.0
//! A node's requests to its agent for a block or a pool, and the effect of the answers.

use super::{Agent, assert_says, fixture, pool, refused, write};
use crate::agent::{Reply, Verb};
use crate::pool::{Allocation, BlockState};
use crate::range::Family;
use crate::testing::{attachment, block};
use common::cni::{Code, Error};
use std::time::Duration;

#[test]
fn a_node_without_free_addresses_asks_the_agent_for_a_block() {
    let mut file = pool("rail0", &["10.0.0.32/32"]);
    let fixture = fixture(&file);
    fixture.add("a");
    let dir = fixture.data_dir().to_owned();
    let agent = Agent::start(&fixture, move |_| {
        file.blocks.push(block("10.0.0.64/30", BlockState::Active));
        write(&dir, &file);
        Some(Reply::Local)
    });
    assert_eq!(fixture.add("b"), ["10.0.0.64"]);
    assert_eq!(fixture.add("c"), ["10.0.0.65"]);
    let asked = agent.end();
    let [claim] = asked.as_slice() else {
        panic!("one request for two attachments: {asked:?}");
    };
    assert_eq!(
        (claim.verb, claim.families.as_slice()),
        (Verb::Claim, [Family::V4].as_slice())
    );
    let asked_by = claim.attachment.as_ref().unwrap();
    assert_eq!(
        (&asked_by.owner, asked_by.network.as_str()),
        (&attachment("b"), "net")
    );
    assert_eq!(claim.pod.as_ref().unwrap().uid.as_deref(), Some("u-1"));
}

#[test]
fn without_an_agent_the_error_has_the_pools_usage_and_a_remedy() {
    let fixture = fixture(&pool("rail0", &["10.0.0.32/31"]));
    fixture.add("a");
    fixture.add("b");
    let error = fixture.try_add("c").unwrap_err();
    let words = [
        "network net: pool rail0: all 2 IPv4 addresses in 1 block of this node are in use",
        "agent.sock: it is not there",
        "see whether the agent's pod runs on this node",
        "100 of 254 addresses in use and 96 outside every block",
    ];
    assert_says(&error, Code::TRY_AGAIN, &words);
}

#[test]
fn a_refusal_keeps_its_code_and_reports_the_nodes_usage() {
    let here = "all 1 IPv4 addresses in 1 block of this node are in use";
    for (code, msg) in [
        (Code::EXHAUSTED, "exhausted: 254 of 254 in use"),
        (Code::API_UNREACHABLE, "the API server does not answer"),
        (Code::POOL_UNKNOWN, "no IPPool of that name"),
        (Code::POOL_NOT_HERE, "its nodeSelector leaves out node n1"),
    ] {
        let fixture = fixture(&pool("rail0", &["10.0.0.32/32"]));
        fixture.add("a");
        let _agent = Agent::start(&fixture, move |_| Some(refused(code, msg)));
        assert_says(
            &fixture.try_add("b").unwrap_err(),
            code,
            &["pool rail0", msg, here, "100 of 254"],
        );
        assert_eq!(fixture.names("leases"), ["a@eth0"]);
    }
}

#[test]
fn errors_name_the_pool_exactly_once() {
    for (code, said, wanted) in [
        (
            Code::EXHAUSTED,
            "pool rail0 is exhausted: every block has an owner",
            "network net: pool rail0 is exhausted: every block has an owner",
        ),
        (
            Code::EXHAUSTED,
            "pool rail0: this node has 1 blocks",
            "network net: pool rail0: this node has 1 blocks",
        ),
        (
            Code::EXHAUSTED,
            "pool rail01 has a gateway",
            "network net: pool rail0: pool rail01 has a gateway",
        ),
        (
            Code::API_UNREACHABLE,
            "pool rail0: the API server does not answer",
            "network net: pool rail0: all 1 IPv4 addresses in 1 block of this node are in use; the API server does not answer",
        ),
    ] {
        let fixture = fixture(&pool("rail0", &["10.0.0.32/32"]));
        fixture.add("a");
        let _agent = Agent::start(&fixture, move |_| Some(refused(code, said)));
        assert_eq!(fixture.try_add("b").unwrap_err().msg, wanted);
    }
}

#[test]
fn an_exhausted_pool_reports_when_a_resting_address_is_free() {
    let fixture = fixture(&pool("rail0", &["10.0.0.32/31"]));
    fixture.add("a");
    fixture.add("b");
    fixture.del("a").unwrap();
    fixture.pass(Duration::from_secs(10));
    let _agent = Agent::start(&fixture, |_| {
        Some(refused(Code::EXHAUSTED, "exhausted: 254 of 254 in use"))
    });
    let error = fixture.try_add("c").unwrap_err();
    assert_says(
        &error,
        Code::RESTING,
        &["1 of 2 IPv4", "try again in 20 s", "254 of 254"],
    );
    fixture.pass(Duration::from_secs(20));
    assert_eq!(fixture.add("c"), ["10.0.0.32"]);
}

#[test]
fn the_agent_is_asked_once_for_a_missing_pool() {
    let fixture = fixture(&pool("other", &[]));
    assert_says(
        &fixture.try_add("a").unwrap_err(),
        Code::TRY_AGAIN,
        &["pool rail0: this node has no part of it yet", "agent.sock"],
    );
    let dir = fixture.data_dir().to_owned();
    let mut answers = 0;
    let agent = Agent::start(&fixture, move |_| {
        answers += 1;
        if answers == 2 {
            write(&dir, &pool("rail0", &["10.0.0.32/30"]));
        }
        Some(Reply::Local)
    });
    assert_says(
        &fixture.try_add("a").unwrap_err(),
        Code::TRY_AGAIN,
        &["its agent has not written", "pool.json; try again"],
    );
    assert!(
        !fixture.network().exists(),
        "no directory is created for an unknown pool"
    );
    assert_eq!(fixture.add("a"), ["10.0.0.32"]);
    assert_eq!(agent.end().len(), 2);
}

#[test]
fn the_agent_is_asked_once_about_a_namespace_that_is_not_admitted() {
    let mut file = pool("rail0", &["10.0.0.32/30"]);
    file.namespaces = Some(vec!["other".to_owned()]);
    let fixture = fixture(&file);
    let absent = fixture.try_add("a").unwrap_err();
    assert_says(
        &absent,
        Code::TRY_AGAIN,
        &["pods of namespace ns get no address of it; admitted: other"],
    );
    let dir = fixture.data_dir().to_owned();
    let mut answers = 0;
    let agent = Agent::start(&fixture, move |_| {
        answers += 1;
        if answers == 2 {
            file.namespaces = Some(vec!["ns".to_owned(), "other".to_owned()]);
            write(&dir, &file);
        }
        Some(Reply::Local)
    });
    let refused = fixture.try_add("a").unwrap_err();
    assert_says(
        &refused,
        Code::POOL_NOT_FOR_NAMESPACE,
        &["namespace ns", "admitted: other", "namespaceSelector"],
    );
    assert_eq!(fixture.add("a"), ["10.0.0.32"]);
    assert_eq!(agent.end().len(), 2);
}

#[test]
fn in_a_sticky_pool_other_pods_need_no_agent() {
    let mut file = pool("rail0", &["10.0.0.32/30"]);
    file.allocation = Allocation::Sticky;
    for (pod, asks) in [
        (Some("train/db-0"), true),
        (Some("train/db-17"), true),
        (Some("train/db-0-x7k2p"), false),
        (Some("train/db-"), false),
        (Some("train/db"), false),
        (None, false),
    ] {
        assert_eq!(file.asks_agent(pod), asks, "{pod:?}");
    }
    let fixture = fixture(&file);
    assert_eq!(fixture.add("a"), ["10.0.0.32"]);
}

#[test]
fn add_ends_at_the_limit_when_other_calls_take_the_claimed_blocks() {
    let mut fixture = fixture(&pool("rail0", &["10.0.0.32/32"]));
    fixture.add("a");
    fixture.plugin.agent.limit = Duration::from_secs(1);
    let agent = Agent::start(&fixture, |_| Some(Reply::Local));
    let error = fixture.try_add("b").unwrap_err();
    assert_says(&error, Code::TRY_AGAIN, &["all 1 IPv4"]);
    let count = agent.end().len();
    // The pauses between the requests bound their number from above.
    assert!((1..=140).contains(&count), "{count} requests in a second");
}

#[test]
fn status_asks_the_agent_and_claims_nothing() {
    let fixture = fixture(&pool("rail0", &["10.0.0.32/32"]));
    fixture.add("a");
    let agent = Agent::start(&fixture, |_| Some(Reply::Done));
    fixture.status().unwrap();
    assert_eq!(agent.end()[0].verb, Verb::Status);
    let _agent = Agent::start(&fixture, |_| {
        Some(Reply::refused(Error::new(
            Code::EXHAUSTED,
            "exhausted: 254 of 254 in use",
        )))
    });
    assert_says(
        &fixture.status().unwrap_err(),
        Code::NOT_AVAILABLE,
        &["pool rail0: exhausted", "all 1 IPv4"],
    );
}
