// SPDX-License-Identifier: Apache-2.0

use super::*;

/// Otherwise the agent would allocate again from blocks that it has just closed.
#[test]
fn a_late_answer_does_not_register_a_deleted_node_again() {
    let reading = |asked: u64, node: Option<&str>| NodeReading {
        asked: Duration::from_secs(asked),
        registration: node.map(|uid| Registration {
            owner: block::Owner {
                node: "n".into(),
                uid: uid.into(),
            },
            labels: BTreeMap::new(),
            lost: false,
            conditions: BTreeMap::new(),
        }),
    };
    let mut known = None;
    reading(1, Some("u")).replace_older(&mut known);
    assert!(known.as_ref().unwrap().registration.is_some());
    reading(3, None).replace_older(&mut known);
    reading(2, Some("u")).replace_older(&mut known);
    assert!(known.unwrap().registration.is_none());
}
