// SPDX-License-Identifier: Apache-2.0
//! What proves that nobody uses an address any more.
//!
//! The one proof is that the network namespace is gone: an address lives in it. A Pod object that is gone proves nothing by
//! itself, since a pod that was deleted by force may still run; and one that is there may get a new sandbox, whose DEL of
//! the old one is still to come. So both are asked for, as long as there is an API server to ask.

/// What has become of the network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// Nothing has its name.
    Gone,
    /// Its name stands for another.
    Replaced,
}

/// What has become of the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodSight {
    /// Its object is there.
    There,
    /// Its object is gone.
    Gone,
    /// Its name has passed to a pod with this UID.
    Another(String),
    /// It has a newer sandbox on this node, with the same interface.
    HasNewerSandbox,
    /// The runtime did not name a pod.
    Unnamed,
    /// The API server cannot be asked.
    Unknown(String),
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Nobody uses it, for this reason.
    Unused(String),
    /// That is not proven.
    Kept(String),
}

/// What follows from both.
pub fn finding(namespace: Namespace, pod: &PodSight) -> Finding {
    let namespace = match namespace {
        Namespace::Gone => "its network namespace is gone",
        Namespace::Replaced => "the name of its network namespace stands for another one",
    };
    let pod = match pod {
        PodSight::There => {
            return Finding::Kept(format!(
                "{namespace}, but its pod is there and may be about to DEL"
            ));
        }
        PodSight::Gone => "and its Pod object too".to_owned(),
        PodSight::Another(uid) => format!("and the name of its pod has passed to {uid}"),
        PodSight::HasNewerSandbox => "and its pod has a newer sandbox".to_owned(),
        PodSight::Unnamed => "and it was of no pod".to_owned(),
        PodSight::Unknown(why) => format!("and its pod cannot be asked for ({why})"),
    };
    Finding::Unused(format!("{namespace}, {pod}"))
}

#[cfg(test)]
mod tests {
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
}
