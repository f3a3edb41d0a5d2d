// SPDX-License-Identifier: Apache-2.0
//! Writes that must change the object.

use super::*;
use crate::{IpAddressSpec, IpBlockStatus};
use std::time::Duration;

fn address(since: Option<Time>) -> IpAddress {
    let spec = IpAddressSpec {
        pool: "rail0".to_owned(),
        address: "10.0.0.9".to_owned(),
        block: "10.0.0.0/28".to_owned(),
        node: NodeRef {
            node: "a".to_owned(),
            node_uid: "1".to_owned(),
        },
        state: AddressState::Bound,
        attachment: None,
        pod: None,
        holder: None,
        since,
        quarantine_seconds: None,
    };
    IpAddress::new("default-0a000009", spec)
}

fn written(address: &IpAddress) -> serde_json::Value {
    serde_json::to_value(&address.spec).unwrap()
}

#[test]
fn each_of_many_renewals_in_one_second_changes_the_stored_object() {
    let mut now = address(None);
    for _ in 0..5 {
        let before = written(&now);
        now = renewed(now);
        assert_ne!(written(&now), before);
    }
}

#[test]
fn a_renewal_by_a_slow_clock_changes_the_stored_object() {
    let ahead = address(Some(Time(Timestamp::now() + SignedDuration::from_hours(1))));
    assert_ne!(written(&renewed(ahead.clone())), written(&ahead));
}

#[test]
fn a_late_renewal_stores_the_current_time() {
    let before = Timestamp::now();
    let long_ago = before - SignedDuration::from_hours(1);
    let after = renewed(address(Some(Time(long_ago)))).spec.since.unwrap();
    // An object stores whole seconds.
    assert!(after.0 > before - SignedDuration::from_secs(1));
}

#[test]
fn an_address_belongs_to_the_space_in_its_full_name() {
    let ip: IpAddr = "10.0.0.9".parse().unwrap();
    let mut address = address(None);
    for (space, other) in [
        ("fab", "fab-2"),
        ("fab-2", "fab"),
        ("a", "a-4"),
        ("default", "def"),
    ] {
        address.metadata.name = Some(address_name(space, ip));
        assert_eq!(ip_in(&address, space), Some(ip));
        assert_eq!(ip_in(&address, other), None, "{other} is not {space}");
    }
}

#[test]
fn a_block_that_is_claimed_with_leases_is_in_use_until_a_report_says_otherwise() {
    let cidr = BlockCidr::of("10.0.0.0/28".parse().unwrap()).unwrap();
    let by = Owner {
        node: "a".into(),
        uid: "1".into(),
    };
    let mut block = new_block("default-10.0.0.0-28", "rail0", cidr, &by, Duration::ZERO);
    assert!(!in_use(&block));
    block
        .annotations_mut()
        .insert(IN_USE.to_owned(), "before this claim".to_owned());
    assert!(in_use(&block));
    block.status = Some(IpBlockStatus::default());
    assert!(!in_use(&block));
}
