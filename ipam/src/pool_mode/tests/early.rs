// SPDX-License-Identifier: Apache-2.0
//! Addresses of a pool that a main plugin must probe, and addresses in cooldown in an exhausted cluster.

use super::{Agent, fixture, pool, refused, write};
use crate::agent::{Reply, Verb};
use crate::pool::{Allocation, PoolFile};
use crate::testing::{Fixture, attachment, range};
use common::cni::dispatch::Plugin;
use common::cni::{Code, Error, PROBES, UNFINISHED};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

fn add(fixture: &Fixture, id: &str) -> Result<(String, bool), Error> {
    let result = fixture.plugin.add(
        &fixture.call(&json!({PROBES: true})),
        &attachment(id),
        Path::new("/netns"),
    )?;
    Ok((result.ips[0].address.ip().to_string(), result.ips[0].probe))
}

fn given(address: &str, probe: bool) -> (String, bool) {
    (address.to_owned(), probe)
}

/// A node whose only address was released a moment ago.
fn resting() -> Fixture {
    let fixture = fixture(&pool("rail0", &["10.0.0.33/32"]));
    fixture.add("a");
    fixture.pass(Duration::from_secs(60));
    fixture.del("a").unwrap();
    fixture
}

#[test]
fn an_exhausted_pool_allocates_a_resting_address_and_probes_it() {
    let fixture = resting();
    let agent = Agent::start(&fixture, |_| {
        Some(refused(Code::EXHAUSTED, "pool rail0: no address is left"))
    });
    assert_eq!(
        fixture.try_add("b").unwrap_err().code,
        Code::RESTING,
        "not without a probe"
    );
    assert_eq!(add(&fixture, "b").unwrap(), given("10.0.0.33", true));
    fixture.assert_sound("after a resting address was given");
    let asked: Vec<Verb> = agent.end().iter().map(|request| request.verb).collect();
    assert_eq!(asked, [Verb::Claim, Verb::Claim], "the agent is asked first");
}

/// A pool of addresses that are objects of the cluster.
fn per_address() -> Fixture {
    let mut file = pool("rail0", &[]);
    file.allocation = Allocation::Agent;
    fixture(&file)
}

#[test]
fn the_agent_is_asked_for_a_resting_address_if_all_are_taken() {
    let fixture = per_address();
    let agent = Agent::start(&fixture, |request| {
        Some(match (request.verb, request.early) {
            (Verb::Allocate, false) => refused(Code::EXHAUSTED, "pool rail0 is exhausted"),
            (Verb::Allocate, true) => Reply::Addresses {
                addresses: vec!["10.0.0.200".parse().unwrap()],
            },
            _ => Reply::Done,
        })
    });
    let error = fixture.try_add("a").unwrap_err();
    assert_eq!(error.code, Code::EXHAUSTED, "not without a probe");
    assert_eq!(add(&fixture, "a").unwrap(), given("10.0.0.200", true));
    fixture.assert_sound("with a resting address of the cluster");
    assert_eq!(fixture.names("asking"), [""; 0]);
    let asked = agent.end();
    let early: Vec<bool> = asked
        .iter()
        .filter(|request| request.verb == Verb::Allocate)
        .map(|request| request.early)
        .collect();
    assert_eq!(early, [false, false, true]);
}

/// "exhausted" alone would send a person to the ranges of the pool, although the API server is what does not answer.
#[test]
fn the_error_of_an_exhausted_pool_contains_why_no_resting_address_was_found() {
    let fixture = per_address();
    let agent = Agent::start(&fixture, |request| {
        Some(match (request.verb, request.early) {
            (Verb::Allocate, false) => refused(Code::EXHAUSTED, "pool rail0 is exhausted"),
            (Verb::Allocate, true) => refused(
                Code::API_UNREACHABLE,
                "pool rail0: the API server does not answer",
            ),
            _ => Reply::Done,
        })
    });
    let error = add(&fixture, "a").unwrap_err();
    assert_eq!(error.code, Code::EXHAUSTED);
    assert!(error.msg.contains("is exhausted"), "{error}");
    let why = "pool rail0: whether an address rests is not known: the API server does not answer";
    assert!(error.details.contains(why), "{error:?}");
    assert_eq!(fixture.names("asking"), [""; 0]);
    drop(agent);
}

#[test]
fn the_error_of_a_request_that_no_resting_address_could_meet_says_nothing_of_them() {
    let fixture = fixture(&pool("rail0", &["10.0.0.32/30"]));
    let outside = json!({PROBES: true, "runtimeConfig": {"ips": ["192.0.2.1"]}});
    let added = fixture
        .plugin
        .add(&fixture.call(&outside), &attachment("a"), Path::new("/netns"));
    let error = added.unwrap_err();
    assert_eq!(error.code, Code::ADDRESS_OUTSIDE);
    assert_eq!(error.details, "", "{error:?}");
}

/// A hanging agent would cost each ADD its time limit twice.
#[test]
fn an_agent_that_did_not_refuse_for_want_of_addresses_is_not_asked_again() {
    let fixture = per_address();
    let agent = Agent::start(&fixture, |request| {
        let code = Code::API_UNREACHABLE;
        Some(match request.verb {
            Verb::Allocate => refused(code, "pool rail0: the API server does not answer"),
            _ => Reply::Done,
        })
    });
    assert_eq!(add(&fixture, "a").unwrap_err().code, Code::API_UNREACHABLE);
    let asked = agent.end();
    let requests = asked.iter().filter(|request| request.verb == Verb::Allocate);
    assert_eq!(requests.count(), 1);
    assert_eq!(fixture.names("asking"), [""; 0]);
}

#[test]
fn another_block_is_preferred_to_a_resting_address() {
    let fixture = resting();
    let dir = fixture.data_dir().to_owned();
    let agent = Agent::start(&fixture, move |_| {
        write(&dir, &pool("rail0", &["10.0.0.33/32", "10.0.0.40/32"]));
        Some(Reply::Local)
    });
    assert_eq!(add(&fixture, "b").unwrap(), given("10.0.0.40", false));
    drop(agent);
}

#[test]
fn a_free_address_of_a_fallback_pool_is_preferred_to_a_resting_one() {
    let fixture = resting();
    let mut file = pool("rail0", &["10.0.0.33/32"]);
    file.fallback = vec!["spare".parse().unwrap()];
    write(fixture.data_dir(), &file);
    write(fixture.data_dir(), &pool("spare", &["10.0.0.50/32"]));
    let agent = Agent::start(&fixture, |_| {
        Some(refused(Code::EXHAUSTED, "pool rail0: no address is left"))
    });
    assert_eq!(add(&fixture, "b").unwrap(), given("10.0.0.50", false));
    assert_eq!(add(&fixture, "c").unwrap(), given("10.0.0.33", true));
    drop(agent);
}

#[test]
fn without_an_agent_a_resting_address_is_allocated() {
    let fixture = resting();
    assert_eq!(add(&fixture, "b").unwrap(), given("10.0.0.33", true));
    assert_eq!(
        add(&fixture, "c").unwrap_err().code,
        Code::TRY_AGAIN,
        "and there is no other"
    );
}

#[test]
fn status_of_a_prober_fails_if_only_one_family_has_a_resting_address() {
    let mut file = pool("rail0", &["10.0.0.33/32", "fd00::10/128"]);
    file.ranges.push(range("fd00::/64"));
    let fixture = fixture(&file);
    let status = || fixture.plugin.status(&fixture.call(&json!({PROBES: true})));
    fixture.add("a");
    fixture.del("a").unwrap();
    status().unwrap();
    std::fs::write(fixture.file("addresses/fd00::10"), "").unwrap();
    let agent = Agent::start(&fixture, |_| {
        Some(refused(Code::EXHAUSTED, "pool rail0: no address is left"))
    });
    add(&fixture, "b").unwrap_err();
    assert_eq!(status().unwrap_err().code, Code::NOT_AVAILABLE);
    drop(agent);
}

/// The search for a free address ends at a pool whose error passes by itself.
#[test]
fn without_an_agent_a_resting_address_precedes_a_free_one_of_the_next_pool() {
    let mut fixture = resting();
    let data_dir = fixture.ipam["dataDir"].clone();
    fixture.ipam = json!({"pools": ["rail0", "spare"], "dataDir": data_dir});
    write(fixture.data_dir(), &pool("spare", &["10.0.0.50/32"]));
    assert_eq!(add(&fixture, "b").unwrap(), given("10.0.0.33", true));
    let error = add(&fixture, "c").unwrap_err();
    assert_eq!(
        error.code,
        Code::TRY_AGAIN,
        "the spare pool is not tried: {error}"
    );
}

#[test]
fn an_address_of_a_block_that_changed_hands_is_probed() {
    let mut file = pool("rail0", &["10.0.0.32/30"]);
    file.blocks[0].epoch = 2;
    let fixture = fixture(&file);
    assert_eq!(add(&fixture, "a").unwrap(), given("10.0.0.32", true));
    let other = fixture.try_add("a").unwrap();
    assert!(!other.ips[0].probe, "a plugin that does not probe gets no mark");
}

#[test]
fn an_address_of_a_taken_over_block_is_probed_until_used_here() {
    let mut file = pool("rail0", &["10.0.0.33/32"]);
    file.blocks[0].epoch = 2;
    file.cooldown_seconds = 0;
    let fixture = fixture(&file);
    let used = |id: &str, seconds: u64| {
        let given = add(&fixture, id).unwrap();
        fixture.pass(Duration::from_secs(seconds));
        fixture.del(id).unwrap();
        given
    };
    assert_eq!(used("a", 3), given("10.0.0.33", true));
    assert_eq!(
        used("b", 60),
        given("10.0.0.33", true),
        "the first pod released it at once"
    );
    assert_eq!(used("c", 60), given("10.0.0.33", false));
    file.blocks[0].epoch = 3;
    write_as_agent(&fixture, &file);
    assert_eq!(
        used("d", 60),
        given("10.0.0.33", true),
        "the block was released again"
    );
    assert_eq!(used("e", 60), given("10.0.0.33", false));
    assert_eq!(
        std::fs::read_dir(fixture.network().join("used")).unwrap().count(),
        1,
        "the old epoch is discarded"
    );
}

/// Writes the pool as the agent does.
fn write_as_agent(fixture: &Fixture, pool: &PoolFile) {
    fixture.with_store(|store| store.enter().unwrap().write_pool(pool).unwrap());
}

/// The epoch of a block starts anew when its object is deleted. Another node may have had the block since.
#[test]
fn a_block_that_comes_back_with_the_same_epoch_is_probed_again() {
    let mut with_block = pool("rail0", &["10.0.0.33/32"]);
    with_block.blocks[0].epoch = 2;
    with_block.cooldown_seconds = 0;
    let fixture = fixture(&with_block);
    let used = |id: &str| {
        let given = add(&fixture, id).unwrap();
        fixture.pass(Duration::from_secs(60));
        fixture.del(id).unwrap();
        given
    };
    assert_eq!(used("a"), given("10.0.0.33", true));
    write_as_agent(&fixture, &with_block);
    assert_eq!(used("b"), given("10.0.0.33", false), "the block stayed");
    let without = PoolFile {
        blocks: Vec::new(),
        ..with_block.clone()
    };
    write_as_agent(&fixture, &without);
    write_as_agent(&fixture, &with_block);
    assert_eq!(used("c"), given("10.0.0.33", true));
}

/// The main plugin waits longer for carrier than a brief lease lasts, and then removes the attachment without a probe.
#[test]
fn an_address_of_a_failed_add_is_probed_again_however_long_the_add_took() {
    let mut taken_over = pool("rail0", &["10.0.0.33/32"]);
    taken_over.blocks[0].epoch = 2;
    taken_over.cooldown_seconds = 0;
    for fixture in [without_del(), fixture(&taken_over)] {
        for id in ["b", "c"] {
            assert_eq!(add(&fixture, id).unwrap(), given("10.0.0.33", true), "{id}");
            fixture.pass(Duration::from_secs(300));
            let failed = fixture.call(&json!({PROBES: true, UNFINISHED: true}));
            let del = fixture
                .plugin
                .del(&failed, &attachment(id), Some(Path::new("/netns")));
            del.unwrap();
            fixture.pass(Duration::from_secs(31));
        }
    }
}

#[test]
fn an_address_that_needed_no_probe_needs_none_after_a_failed_add() {
    let fixture = fixture(&pool("rail0", &["10.0.0.33/32"]));
    assert_eq!(add(&fixture, "a").unwrap(), given("10.0.0.33", false));
    let failed = fixture.call(&json!({PROBES: true, UNFINISHED: true}));
    fixture.plugin.del(&failed, &attachment("a"), None).unwrap();
    fixture.pass(Duration::from_secs(31));
    assert_eq!(add(&fixture, "b").unwrap(), given("10.0.0.33", false));
}

/// A node with one address, whose lease the agent ended without DEL. The address has rested.
fn without_del() -> Fixture {
    let fixture = fixture(&pool("rail0", &["10.0.0.33/32"]));
    assert_eq!(add(&fixture, "a").unwrap(), given("10.0.0.33", false));
    fixture.pass(Duration::from_secs(60));
    assert!(fixture.release_without_del("a").unwrap());
    fixture.pass(Duration::from_secs(31));
    fixture
}

#[test]
fn an_address_whose_lease_ended_without_del_is_probed_until_it_is_used_again() {
    let fixture = without_del();
    assert_eq!(add(&fixture, "b").unwrap(), given("10.0.0.33", true));
    fixture.pass(Duration::from_secs(60));
    fixture.del("b").unwrap();
    fixture.pass(Duration::from_secs(31));
    assert_eq!(add(&fixture, "c").unwrap(), given("10.0.0.33", false));
}

#[test]
fn a_requested_address_whose_lease_ended_without_del_is_probed() {
    let fixture = without_del();
    let call = fixture.call(&json!({PROBES: true, "runtimeConfig": {"ips": ["10.0.0.33"]}}));
    let result = fixture.plugin.add(&call, &attachment("b"), Path::new("/netns"));
    assert!(result.unwrap().ips[0].probe);
}

#[test]
fn an_address_that_another_host_answered_for_is_probed_again() {
    let fixture = without_del();
    for id in ["b", "c"] {
        assert_eq!(add(&fixture, id).unwrap(), given("10.0.0.33", true), "{id}");
        // The probe finds a host with the address, so ADD fails and ends the lease.
        fixture.pass(Duration::from_secs(1));
        fixture.del(id).unwrap();
        fixture.pass(Duration::from_secs(31));
    }
}

/// Another node does not probe an address of a returned block, so no sweep removes the record before the
/// block may be returned.
#[test]
fn an_address_that_another_host_answered_for_is_recorded_for_the_quarantine() {
    let mut file = pool("rail0", &["10.0.0.33/32"]);
    file.quarantine_seconds = 7200;
    file.blocks[0].epoch = 2;
    let fixture = fixture(&file);
    assert_eq!(add(&fixture, "a").unwrap(), given("10.0.0.33", true));
    // The probe finds a host.
    fixture.pass(Duration::from_secs(1));
    fixture.del("a").unwrap();
    let suspect_after_sweep = || {
        fixture.with_store(|store| {
            let locked = store.enter().unwrap();
            locked.sweep(usize::MAX);
            let usage = locked.usage(Some(&file), &["10.0.0.32/28".parse().unwrap()]);
            usage.unwrap()[0].suspect
        })
    };
    fixture.pass(Duration::from_secs(7199));
    assert_eq!(suspect_after_sweep(), 1);
    fixture.pass(Duration::from_secs(1));
    assert_eq!(suspect_after_sweep(), 0);
    assert_eq!(fixture.names("resting"), [""; 0]);
}

#[test]
fn an_address_that_any_node_may_have_used_is_probed() {
    let fixture = fixture(&pool("rail0", &[]));
    let agent = Agent::start(&fixture, |request| {
        Some(match request.verb {
            Verb::Claim => Reply::Allocate { families: Vec::new() },
            _ => Reply::Addresses {
                addresses: vec!["10.0.0.77".parse().unwrap()],
            },
        })
    });
    assert_eq!(add(&fixture, "a").unwrap(), given("10.0.0.77", true));
    drop(agent);
}
