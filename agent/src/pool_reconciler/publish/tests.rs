// SPDX-License-Identifier: Apache-2.0
//! The match of objects and leases.

use super::*;
use common::cni::{CniResult, ContainerId, IfName};
use ipam::config::Space;
use ipam::store::Sandbox;
use std::time::Duration;

const IP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9));

fn lease(inode: u64, api: Vec<IpAddr>) -> StoredLease {
    StoredLease {
        lease: Lease {
            owner: Attachment {
                container_id: ContainerId::try_from("c1".to_owned()).unwrap(),
                ifname: IfName::try_from("net1".to_owned()).unwrap(),
            },
            network: "rail0".to_owned(),
            sandbox: Sandbox::default(),
            api,
            space: Space::default(),
            since: String::new(),
            since_boot: Duration::ZERO,
            result: CniResult::default(),
        },
        inode,
    }
}

#[test]
fn an_existing_address_object_belongs_to_no_lease_until_it_is_renewed() {
    let mut published = Published::default();
    assert!(!published.has(IP, &lease(1, Vec::new())));
    published.note(IP, &lease(1, Vec::new()));
    assert!(published.has(IP, &lease(1, Vec::new())));
}

#[test]
fn the_object_of_an_earlier_lease_does_not_belong_to_the_next_lease() {
    let mut published = Published::default();
    published.note(IP, &lease(1, Vec::new()));
    assert!(!published.has(IP, &lease(2, Vec::new())));
}

#[test]
fn a_lease_allocated_through_the_api_server_has_an_address_object() {
    assert!(Published::default().has(IP, &lease(1, vec![IP])));
}
