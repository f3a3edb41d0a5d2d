// SPDX-License-Identifier: Apache-2.0
//! Allocations of the old plugin that cannot be read, after the switch of their network.

use super::*;

/// The entry could be the address of a pod that runs. No network names the old plugin any more.
#[test]
fn a_pool_does_not_change_while_an_allocation_of_the_old_plugin_cannot_be_read() {
    let reading = of_whereabouts(&[range("10.0.0.0/24")], &[]);
    let closed = accepted(&steps(&reading, &Snapshot::default())[0]);
    let mut open = closed.clone();
    open.spec.node_selector = None;
    let records = |offset: &str| {
        let allocations = json!({ offset: { "id": "c", "podref": "ml/odd" } });
        let spec = json!({ "range": "10.0.0.0/24", "allocations": allocations });
        of_whereabouts(&[], &[object("10.0.0.0-24", &spec)])
    };
    for pool in [closed, open] {
        let name = pool.name_any();
        let snapshot = Snapshot::of(vec![pool], vec![], vec![]);
        assert_eq!(steps(&records("9"), &snapshot).len(), 1);
        let (planned, refused) = plan(&records("x"), &snapshot, &OPTIONS);
        assert!(planned.is_empty(), "{planned:?}");
        let [refusal] = &refused[..] else {
            panic!("{refused:?}")
        };
        let text = format!("{refusal:?}");
        assert!(
            text.contains(&name) && text.contains("(ml/odd) is not an offset"),
            "{text}"
        );
    }
}
