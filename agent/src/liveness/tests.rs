// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn an_existing_pod_keeps_its_address_until_its_del() {
    for namespace in [Namespace::Gone, Namespace::Replaced] {
        assert!(matches!(
            conclude(namespace, &PodState::Exists),
            Conclusion::MaybeUsed(_)
        ));
    }
}

#[test]
fn a_missing_netns_proves_an_address_unused_without_the_api_server() {
    let unknown = PodState::Unknown("timeout".to_owned());
    let Conclusion::Unused(why) = conclude(Namespace::Gone, &unknown) else {
        panic!("kept")
    };
    assert!(why.contains("is gone") && why.contains("timeout"), "{why}");
}

#[test]
fn the_reason_for_an_unused_address_names_the_netns_and_the_pod() {
    for (pod, word) in [
        (PodState::Gone, "Pod object"),
        (PodState::Ended("Failed".to_owned()), "has ended (Failed)"),
        (PodState::Replaced("uid-2".to_owned()), "uid-2"),
        (PodState::HasNewerSandbox, "newer sandbox"),
        (PodState::Unnamed, "no pod"),
    ] {
        let Conclusion::Unused(why) = conclude(Namespace::Replaced, &pod) else {
            panic!("kept")
        };
        assert!(
            why.contains("was replaced by another of the same name") && why.contains(word),
            "{why}"
        );
    }
}
