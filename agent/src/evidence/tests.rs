// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn a_pod_that_is_there_keeps_its_address_until_its_del() {
    for namespace in [Namespace::Gone, Namespace::Replaced] {
        assert!(matches!(finding(namespace, &PodSight::There), Finding::Kept(_)));
    }
}

#[test]
fn a_namespace_that_is_gone_tells_all_when_nobody_can_be_asked() {
    let unknown = PodSight::Unknown("timeout".to_owned());
    let Finding::Unused(why) = finding(Namespace::Gone, &unknown) else {
        panic!("kept")
    };
    assert!(why.contains("is gone") && why.contains("timeout"), "{why}");
}

#[test]
fn the_evidence_names_namespace_and_pod() {
    for (pod, word) in [
        (PodSight::Gone, "Pod object"),
        (PodSight::Another("uid-2".to_owned()), "uid-2"),
        (PodSight::HasNewerSandbox, "newer sandbox"),
        (PodSight::Unnamed, "no pod"),
    ] {
        let Finding::Unused(why) = finding(Namespace::Replaced, &pod) else {
            panic!("kept")
        };
        assert!(why.contains("stands for another") && why.contains(word), "{why}");
    }
}
