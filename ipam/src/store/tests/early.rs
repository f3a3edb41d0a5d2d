// SPDX-License-Identifier: Apache-2.0
//! Addresses in cooldown for pods whose main plugin probes them.

use super::single;
use crate::testing::{Fault, Fixture, attachment};
use common::cni::dispatch::Plugin;
use common::cni::{Args, Code, Error, PROBES};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

/// Calls ADD as a main plugin that probes. Returns the addresses, each with its probe mark.
fn add(fixture: &Fixture, id: &str, pod: &str) -> Result<Vec<(String, bool)>, Error> {
    let mut call = fixture.call(&json!({PROBES: true}));
    call.args = Args::parse(&format!("K8S_POD_NAMESPACE=ns;K8S_POD_NAME={pod}")).unwrap();
    let result = fixture.plugin.add(&call, &attachment(id), Path::new("/netns"))?;
    let addresses = result
        .ips
        .iter()
        .map(|ip| (ip.address.ip().to_string(), ip.probe));
    Ok(addresses.collect())
}

fn probed(address: &str) -> Vec<(String, bool)> {
    vec![(address.to_owned(), true)]
}

#[test]
fn a_resting_address_goes_only_to_a_plugin_that_probes() {
    let fixture = single("10.0.0.4/32");
    assert_eq!(add(&fixture, "a", "p").unwrap(), [("10.0.0.4".to_owned(), false)]);
    fixture.pass(Duration::from_secs(60));
    fixture.del("a").unwrap();
    assert_eq!(fixture.try_add("b").unwrap_err().code, Code::TRY_AGAIN);
    assert_eq!(fixture.status().unwrap_err().code, Code::NOT_AVAILABLE);
    fixture
        .plugin
        .status(&fixture.call(&json!({PROBES: true})))
        .unwrap();
    assert_eq!(add(&fixture, "b", "p").unwrap(), probed("10.0.0.4"));
    fixture.assert_sound("after a resting address was given");
    assert_eq!(add(&fixture, "b", "p").unwrap(), probed("10.0.0.4"), "ADD again");
    let again = fixture.try_add("b").unwrap();
    assert!(!again.ips[0].probe, "a plugin that does not probe gets no mark");
    assert_eq!(add(&fixture, "c", "p").unwrap_err().code, Code::EXHAUSTED);
}

#[test]
fn a_pod_gets_its_own_resting_address_first() {
    let fixture = single("10.0.0.0/30");
    for (id, pod) in [("a", "one"), ("b", "two")] {
        add(&fixture, id, pod).unwrap();
    }
    fixture.pass(Duration::from_secs(60));
    fixture.del("a").unwrap();
    fixture.pass(Duration::from_secs(1));
    fixture.del("b").unwrap();
    assert_eq!(add(&fixture, "c", "two").unwrap(), probed("10.0.0.2"));
    fixture.pass(Duration::from_secs(60));
    fixture.del("c").unwrap();
    add(&fixture, "d", "other").unwrap();
    add(&fixture, "e", "other").unwrap();
    fixture.pass(Duration::from_secs(60));
    fixture.del("e").unwrap();
    fixture.del("d").unwrap();
    assert_eq!(
        add(&fixture, "f", "new").unwrap(),
        probed("10.0.0.1"),
        "in the order of their ends, then of their numbers"
    );
}

/// The main plugin found another host with the address and released it at once.
#[test]
fn an_address_that_was_released_at_once_is_the_last_choice() {
    let fixture = single("10.0.0.0/30");
    add(&fixture, "a", "one").unwrap();
    add(&fixture, "b", "two").unwrap();
    fixture.pass(Duration::from_secs(60));
    fixture.del("a").unwrap();
    fixture.del("b").unwrap();
    assert_eq!(add(&fixture, "c", "one").unwrap(), probed("10.0.0.1"));
    fixture.del("c").unwrap();
    assert_eq!(
        add(&fixture, "d", "one").unwrap(),
        probed("10.0.0.2"),
        "not its own address again"
    );
}

#[test]
fn free_and_requested_addresses_come_before_resting_ones() {
    let fixture = single("10.0.0.0/30");
    add(&fixture, "a", "one").unwrap();
    fixture.pass(Duration::from_secs(60));
    fixture.del("a").unwrap();
    assert_eq!(
        add(&fixture, "b", "one").unwrap(),
        [("10.0.0.2".to_owned(), false)]
    );
    let call = fixture.call(&json!({PROBES: true, "runtimeConfig": {"ips": ["10.0.0.1"]}}));
    let asked = fixture
        .plugin
        .add(&call, &attachment("c"), Path::new("/netns"))
        .unwrap();
    assert!(asked.ips[0].probe, "an early allocation is in cooldown again");
}

#[test]
fn an_old_version_gets_no_resting_address() {
    let fixture = single("10.0.0.4/32");
    fixture.add("a");
    fixture.pass(Duration::from_secs(60));
    fixture.del("a").unwrap();
    for more in [
        json!({PROBES: true, "cniVersion": "0.2.0"}),
        json!({PROBES: "true"}),
        json!({PROBES: false}),
    ] {
        let error = fixture
            .plugin
            .add(&fixture.call(&more), &attachment("b"), Path::new("/netns"))
            .unwrap_err();
        assert_eq!(error.code, Code::TRY_AGAIN, "{more}: {error}");
    }
}

#[test]
fn an_address_of_a_range_whose_lease_ended_without_del_is_probed() {
    let fixture = single("10.0.0.4/32");
    add(&fixture, "a", "p").unwrap();
    fixture.pass(Duration::from_secs(60));
    assert!(fixture.release_without_del("a").unwrap());
    fixture.pass(Duration::from_secs(31));
    assert_eq!(add(&fixture, "b", "p").unwrap(), probed("10.0.0.4"));
    fixture.pass(Duration::from_secs(60));
    fixture.del("b").unwrap();
    fixture.pass(Duration::from_secs(31));
    assert_eq!(add(&fixture, "c", "p").unwrap(), [("10.0.0.4".to_owned(), false)]);
}

#[test]
fn a_sweep_keeps_the_addresses_that_must_be_probed() {
    let fixture = single("10.0.0.0/29");
    for id in ["a", "b"] {
        add(&fixture, id, "p").unwrap();
    }
    fixture.pass(Duration::from_secs(60));
    fixture.release_without_del("a").unwrap();
    fixture.del("b").unwrap();
    fixture.pass(Duration::from_secs(31));
    fixture.with_store(|store| store.enter().unwrap().sweep(usize::MAX));
    assert_eq!(fixture.names("resting"), ["10.0.0.1"]);
}

#[test]
fn a_release_without_del_that_is_killed_at_any_step_keeps_the_mark() {
    let mut at = 0;
    loop {
        let fixture = single("10.0.0.4/32");
        add(&fixture, "a", "p").unwrap();
        fixture.pass(Duration::from_secs(60));
        fixture.fault(Fault::Die { at, torn: true });
        // The result does not matter here: the process may have been killed after its last change.
        let _ = fixture.release_without_del("a");
        let met = fixture.fault_was_met();
        fixture.fault(Fault::None);
        // The next call finishes the release, or the agent repeats it.
        fixture.with_store(|store| drop(store.enter().unwrap()));
        fixture.release_without_del("a").unwrap();
        fixture.assert_sound(&format!("the release died at {at}"));
        fixture.pass(Duration::from_secs(31));
        assert_eq!(
            add(&fixture, "b", "p").unwrap(),
            probed("10.0.0.4"),
            "the release died at {at}"
        );
        if !met {
            break;
        }
        at += 1;
    }
    assert!(at >= 4, "{at} steps were tried, which cannot be all");
}

/// The mark of a release without DEL does not reach another node, so a block with such an address stays.
#[test]
fn a_block_keeps_an_address_that_another_host_answered_for() {
    let fixture = single("10.0.0.4/32");
    add(&fixture, "a", "p").unwrap();
    fixture.pass(Duration::from_secs(60));
    fixture.release_without_del("a").unwrap();
    fixture.pass(Duration::from_secs(31));
    assert_eq!(add(&fixture, "b", "p").unwrap(), probed("10.0.0.4"));
    // The probe finds a host.
    fixture.pass(Duration::from_secs(1));
    fixture.del("b").unwrap();
    fixture.pass(Duration::from_secs(31));
    let pool = crate::testing::pool_file("rail0", &["10.0.0.0/28"]);
    let blocks = ["10.0.0.0/28".parse().unwrap()];
    let suspect = || {
        let usage = fixture.with_store(|store| store.enter().unwrap().usage(Some(&pool), &blocks));
        usage.unwrap()[0].suspect
    };
    assert_eq!(suspect(), 1);
    fixture.pass(Duration::from_secs(3600));
    assert_eq!(suspect(), 0);
    let swept = fixture.with_store(|store| store.enter().unwrap().sweep(usize::MAX));
    assert_eq!(swept, 1, "no record stays for ever after a brief lease");
}
