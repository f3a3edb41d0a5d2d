// SPDX-License-Identifier: Apache-2.0
//! Resting addresses for pods whose main plugin probes them.

use super::single;
use crate::testing::{Rig, attachment};
use common::cni::dispatch::Plugin;
use common::cni::{Args, Code, Error, PROBES};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

/// ADD by a main plugin that probes: returns the addresses, each with its probe mark.
fn add(rig: &Rig, id: &str, pod: &str) -> Result<Vec<(String, bool)>, Error> {
    let mut call = rig.call(&json!({PROBES: true}));
    call.args = Args::parse(&format!("K8S_POD_NAMESPACE=ns;K8S_POD_NAME={pod}")).unwrap();
    let result = rig.plugin.add(&call, &attachment(id), Path::new("/netns"))?;
    let told = result
        .ips
        .iter()
        .map(|ip| (ip.address.ip().to_string(), ip.probe));
    Ok(told.collect())
}

fn probed(address: &str) -> Vec<(String, bool)> {
    vec![(address.to_owned(), true)]
}

#[test]
fn a_resting_address_goes_only_to_a_plugin_that_probes() {
    let rig = single("10.0.0.4/32");
    assert_eq!(add(&rig, "a", "p").unwrap(), [("10.0.0.4".to_owned(), false)]);
    rig.pass(Duration::from_secs(60));
    rig.del("a").unwrap();
    assert_eq!(rig.try_add("b").unwrap_err().code, Code::TRY_AGAIN);
    assert_eq!(rig.status().unwrap_err().code, Code::NOT_AVAILABLE);
    rig.plugin.status(&rig.call(&json!({PROBES: true}))).unwrap();
    assert_eq!(add(&rig, "b", "p").unwrap(), probed("10.0.0.4"));
    rig.assert_sound("after a resting address was given");
    assert_eq!(add(&rig, "b", "p").unwrap(), probed("10.0.0.4"), "ADD again");
    let again = rig.try_add("b").unwrap();
    assert!(!again.ips[0].probe, "a plugin that does not probe gets no mark");
    assert_eq!(add(&rig, "c", "p").unwrap_err().code, Code::EXHAUSTED);
}

#[test]
fn a_pod_gets_its_own_resting_address_first() {
    let rig = single("10.0.0.0/30");
    for (id, pod) in [("a", "one"), ("b", "two")] {
        add(&rig, id, pod).unwrap();
    }
    rig.pass(Duration::from_secs(60));
    rig.del("a").unwrap();
    rig.pass(Duration::from_secs(1));
    rig.del("b").unwrap();
    assert_eq!(add(&rig, "c", "two").unwrap(), probed("10.0.0.2"));
    rig.pass(Duration::from_secs(60));
    rig.del("c").unwrap();
    add(&rig, "d", "other").unwrap();
    add(&rig, "e", "other").unwrap();
    rig.pass(Duration::from_secs(60));
    rig.del("e").unwrap();
    rig.del("d").unwrap();
    assert_eq!(
        add(&rig, "f", "new").unwrap(),
        probed("10.0.0.1"),
        "in the order of their ends, then of their numbers"
    );
}

/// The main plugin found another host with the address and released it at once.
#[test]
fn an_address_that_was_released_at_once_is_the_last_choice() {
    let rig = single("10.0.0.0/30");
    add(&rig, "a", "one").unwrap();
    add(&rig, "b", "two").unwrap();
    rig.pass(Duration::from_secs(60));
    rig.del("a").unwrap();
    rig.del("b").unwrap();
    assert_eq!(add(&rig, "c", "one").unwrap(), probed("10.0.0.1"));
    rig.del("c").unwrap();
    assert_eq!(
        add(&rig, "d", "one").unwrap(),
        probed("10.0.0.2"),
        "not its own again"
    );
}

#[test]
fn free_and_requested_addresses_come_before_resting_ones() {
    let rig = single("10.0.0.0/30");
    add(&rig, "a", "one").unwrap();
    rig.pass(Duration::from_secs(60));
    rig.del("a").unwrap();
    assert_eq!(add(&rig, "b", "one").unwrap(), [("10.0.0.2".to_owned(), false)]);
    let call = rig.call(&json!({PROBES: true, "runtimeConfig": {"ips": ["10.0.0.1"]}}));
    let asked = rig
        .plugin
        .add(&call, &attachment("c"), Path::new("/netns"))
        .unwrap();
    assert!(asked.ips[0].probe, "it was given at once before, and rests");
}

#[test]
fn an_old_version_gets_no_resting_address() {
    let rig = single("10.0.0.4/32");
    rig.add("a");
    rig.pass(Duration::from_secs(60));
    rig.del("a").unwrap();
    for more in [
        json!({PROBES: true, "cniVersion": "0.2.0"}),
        json!({PROBES: "true"}),
        json!({PROBES: false}),
    ] {
        let error = rig
            .plugin
            .add(&rig.call(&more), &attachment("b"), Path::new("/netns"))
            .unwrap_err();
        assert_eq!(error.code, Code::TRY_AGAIN, "{more}: {error}");
    }
}
