// SPDX-License-Identifier: Apache-2.0
//! The evidence that an address is not in use.

use super::*;
use crate::cluster::tests::client;
use crate::testing::{address, orphaned, with};
use std::path::Path;

const IP: &str = "10.1.0.16";

/// The time at which an orphan was marked.
const MARKED: &str = "1970-01-01T00:10:00Z";

/// The evidence about an orphan of node `a`, whose pod does not exist. `change` gets the cluster.
fn evidence(change: impl FnOnce(&mut Snapshot)) -> Result<String, String> {
    let mut snapshot = with(&[], &[orphaned("rail0", IP, "a", "p", MARKED)]);
    change(&mut snapshot);
    let (ip, object) = snapshot.addresses.iter().next().unwrap();
    evidence_of_object(&snapshot, object, &[], *ip).map_err(|error| error.0)
}

#[test]
fn an_address_of_a_registered_node_is_not_released() {
    let refused = evidence(|_| {}).unwrap_err();
    assert!(refused.contains("node a, which exists"), "{refused}");
}

/// The machine of a Node that was deleted and registered itself again still runs its containers.
#[test]
fn an_address_of_a_node_that_was_registered_again_is_left_to_its_agent() {
    let again = |snapshot: &mut Snapshot| {
        snapshot.nodes.insert("a".to_owned(), "another-uid".to_owned());
    };
    let refused = evidence(again).unwrap_err();
    assert!(
        refused.contains("the agent of the node frees the address"),
        "{refused}"
    );
    let without_agent = |snapshot: &mut Snapshot| {
        again(snapshot);
        snapshot.agents.remove("a");
    };
    let evidence = evidence(without_agent).unwrap();
    assert!(evidence.contains("on node a, which is gone"), "{evidence}");
}

#[test]
fn an_address_of_a_node_that_is_gone_is_released() {
    let gone = |snapshot: &mut Snapshot| {
        snapshot.nodes.remove("a");
    };
    let evidence = evidence(gone).unwrap();
    assert!(evidence.contains("on node a, which is gone"), "{evidence}");
}

/// What `release` does about an object of node `a`, which is gone, one minute before the end of the quarantine.
async fn released_early(object: serde_json::Value) -> String {
    let mut snapshot = with(&[], &[object]);
    snapshot.nodes.remove("a");
    let data = tempfile::tempdir().unwrap();
    let options = args::Release {
        address: IP.parse().ok(),
        node: None,
        pool: None,
        yes: true,
        leases: args::DataDir {
            data_dir: data.path().to_owned(),
        },
        access: crate::cluster::Access::default(),
    };
    let early = "HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 1970 00:19:00 GMT\r\nContent-Length: 0\r\n\r\n";
    let done = release_address(&client(early), &snapshot, IP.parse().unwrap(), &options).await;
    done.unwrap_err().to_string()
}

#[tokio::test]
async fn an_orphaned_address_is_not_released_during_its_quarantine() {
    let refused = released_early(orphaned("rail0", IP, "a", "p", MARKED)).await;
    assert!(
        refused.contains("10.1.0.16 is in quarantine for 61 s more"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_bound_address_of_a_gone_node_is_not_released() {
    let refused = released_early(address("rail0", IP, "a", "p")).await;
    assert!(refused.contains("its quarantine has not begun"), "{refused}");
}

/// The lease of an interface of a container, in the store of `pool` on this machine.
fn lease(pool: &str, container: &str, ifname: &str) -> Record {
    let lease = crate::testing::lease(container, ifname);
    let place = Place::of_pool(Path::new("/data"), &pool.to_owned().try_into().unwrap());
    Record::Lease(place, Box::new(StoredLease { lease, inode: 1 }))
}

/// Two pools in two address spaces may have the same private range, and a container may lose the DEL of one interface.
#[test]
fn a_lease_of_another_attachment_frees_no_address_of_a_living_node() {
    let snapshot = with(&[], &[address("rail0", IP, "b", "p")]);
    let (ip, object) = snapshot.addresses.iter().next().unwrap();
    let evidence = |lease: Record| evidence_of_object(&snapshot, object, &[lease], *ip);
    assert!(evidence(lease("rail0", "c-p", "net1")).is_ok(), "its own lease");
    for other in [
        lease("rail1", "c-p", "net1"),
        lease("rail0", "c-q", "net1"),
        lease("rail0", "c-p", "net2"),
    ] {
        let refused = evidence(other).unwrap_err().0;
        assert!(refused.contains("node b, which exists"), "{refused}");
    }
}
