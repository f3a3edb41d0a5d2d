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
mod tests;
