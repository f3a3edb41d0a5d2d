// SPDX-License-Identifier: Apache-2.0
//! The evidence that an address is not in use.

use super::*;
use crate::testing::{address, with};

const IP: &str = "10.1.0.16";

/// The evidence about an object of node `a`, whose pod does not exist. `change` gets the cluster.
fn evidence(change: impl FnOnce(&mut Snapshot)) -> Result<String, String> {
    let mut snapshot = with(&[], &[address("rail0", IP, "a", "p")]);
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
