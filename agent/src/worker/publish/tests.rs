// SPDX-License-Identifier: Apache-2.0
//! Which objects belong to leases.

use super::*;
use common::cni::{CniResult, ContainerId, IfName};
use ipam::store::Sandbox;
use std::time::Duration;

const IP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9));

fn lease(inode: u64, api: Vec<IpAddr>) -> HeldLease {
    HeldLease {
        lease: Lease {
            owner: Attachment {
                container_id: ContainerId::try_from("c1".to_owned()).unwrap(),
                ifname: IfName::try_from("net1".to_owned()).unwrap(),
            },
            network: "rail0".to_owned(),
            sandbox: Sandbox::default(),
            api,
            since: String::new(),
            since_boot: Duration::ZERO,
            result: CniResult::default(),
        },
        inode,
    }
}

#[test]
fn an_object_that_was_found_is_nobodys_until_it_is_renewed() {
    let mut published = Published::default();
    assert!(!published.has(IP, &lease(1, Vec::new())));
    published.note(IP, &lease(1, Vec::new()));
    assert!(published.has(IP, &lease(1, Vec::new())));
}

#[test]
fn the_object_of_an_earlier_lease_is_not_that_of_the_next_one() {
    let mut published = Published::default();
    published.note(IP, &lease(1, Vec::new()));
    assert!(!published.has(IP, &lease(2, Vec::new())));
}

#[test]
fn a_lease_that_came_by_way_of_the_api_server_has_its_object() {
    assert!(Published::default().has(IP, &lease(1, vec![IP])));
}
