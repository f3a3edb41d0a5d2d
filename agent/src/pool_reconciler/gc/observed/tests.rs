// SPDX-License-Identifier: Apache-2.0
//! The times at which a node lists its addresses.

use super::*;
use block::Owner;

const OBSERVE: Duration = Duration::from_secs(30);

fn registered(uid: &str) -> NodeIdentity {
    NodeIdentity::Registered(Owner {
        node: "n".into(),
        uid: uid.into(),
    })
}

fn gone() -> NodeIdentity {
    NodeIdentity::Gone("n".into())
}

/// The state without suspects, just after a complete check.
fn at_rest() -> Observed {
    Observed {
        listed: Some(Instant::now()),
        kept_as: Some(registered("1")),
        ..Observed::default()
    }
}

#[test]
fn an_agent_that_has_just_started_lists_its_addresses() {
    assert!(Observed::default().must_list(&registered("1"), OBSERVE, None));
}

#[test]
fn an_idle_agent_does_not_list_its_addresses() {
    assert!(!at_rest().must_list(&registered("1"), OBSERVE, None));
}

#[test]
fn an_agent_of_a_deleted_node_lists_its_addresses_each_time() {
    let observed = Observed {
        kept_as: Some(gone()),
        ..at_rest()
    };
    assert!(observed.must_list(&gone(), OBSERVE, None));
}

#[test]
fn an_agent_lists_its_addresses_until_they_name_its_new_node() {
    assert!(at_rest().must_list(&registered("2"), OBSERVE, None));
    let late = Observed {
        kept_as: None,
        ..at_rest()
    };
    assert!(late.must_list(&registered("1"), OBSERVE, None));
}

#[test]
fn an_agent_lists_the_objects_of_a_lost_pool_only_until_none_is_suspect() {
    let must_list = |observed: &Observed, last_write| {
        observed.must_list_lost(&registered("1"), Duration::from_millis(1), last_write)
    };
    assert!(
        must_list(&Observed::default(), None),
        "an agent that has just started"
    );
    let mut observed = Observed {
        collected_as: Some(registered("1")),
        ..Observed::default()
    };
    assert!(!must_list(&observed, None));
    assert!(must_list(&observed, Some(Instant::now())));
    observed
        .addresses
        .observe(&"default-0a000001/7".to_owned(), Instant::now());
    assert!(must_list(&observed, None));
}

#[test]
fn an_agent_of_a_deleted_node_lists_the_objects_of_a_lost_pool_each_time() {
    let observed = Observed {
        collected_as: Some(gone()),
        ..Observed::default()
    };
    assert!(observed.must_list_lost(&gone(), OBSERVE, None));
}

#[test]
fn an_agent_that_has_written_an_address_lists_its_addresses() {
    let last_write = Some(Instant::now());
    assert!(at_rest().must_list(&registered("1"), OBSERVE, last_write));
}

#[test]
fn an_agent_with_a_suspect_address_lists_its_addresses_again() {
    let mut observed = at_rest();
    observed
        .addresses
        .observe(&"default-0a000001/7".to_owned(), Instant::now());
    assert!(observed.must_list(&registered("1"), OBSERVE, None));
}

#[test]
fn an_idle_agent_lists_its_addresses_again_after_a_long_pause() {
    let interval = Duration::from_millis(1);
    let observed = at_rest();
    std::thread::sleep(interval * IDLE_INTERVALS);
    assert!(observed.must_list(&registered("1"), interval, None));
}
