// SPDX-License-Identifier: Apache-2.0
//! When the API server is asked for this node's addresses.

use super::*;
use block::Owner;

const OBSERVE: Duration = Duration::from_secs(30);

fn registered(uid: &str) -> Me {
    Me::Registered(Owner {
        node: "n".into(),
        uid: uid.into(),
    })
}

fn gone() -> Me {
    Me::Gone("n".into())
}

/// Nothing is suspect, and all was well a moment ago.
fn at_rest() -> Suspects {
    Suspects {
        listed: Some(Instant::now()),
        kept_as: Some(registered("1")),
        ..Suspects::default()
    }
}

#[test]
fn an_agent_that_has_just_started_asks_for_its_addresses() {
    assert!(Suspects::default().may_be(&registered("1"), OBSERVE));
}

#[test]
fn an_agent_at_rest_does_not_ask() {
    assert!(!at_rest().may_be(&registered("1"), OBSERVE));
}

#[test]
fn an_agent_whose_node_is_gone_asks_each_time() {
    let suspects = Suspects {
        kept_as: Some(gone()),
        ..at_rest()
    };
    assert!(suspects.may_be(&gone(), OBSERVE));
}

#[test]
fn a_node_that_was_registered_anew_asks_until_its_addresses_say_so() {
    assert!(at_rest().may_be(&registered("2"), OBSERVE));
    let late = Suspects {
        kept_as: None,
        ..at_rest()
    };
    assert!(late.may_be(&registered("1"), OBSERVE));
}

#[test]
fn an_agent_that_has_written_an_address_asks() {
    let mut suspects = at_rest();
    suspects.wrote();
    assert!(suspects.may_be(&registered("1"), OBSERVE));
}

#[test]
fn what_is_suspect_is_looked_at_again() {
    let mut suspects = at_rest();
    suspects
        .addresses
        .insert("default-0a000001/7".to_owned(), Instant::now());
    assert!(suspects.may_be(&registered("1"), OBSERVE));
}

#[test]
fn what_was_done_behind_its_back_is_found_by_and_by() {
    let observe = Duration::from_millis(1);
    let suspects = at_rest();
    std::thread::sleep(observe * SELDOM);
    assert!(suspects.may_be(&registered("1"), observe));
}
