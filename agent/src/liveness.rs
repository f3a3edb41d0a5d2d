// SPDX-License-Identifier: Apache-2.0
//! Decides whether an address is proven unused.
//!
//! The only proof is that the network namespace is gone: an address lives in its namespace. A missing Pod object alone proves
//! nothing, since a pod that was deleted by force may still run. A Pod object that exists may get a new sandbox while the DEL of
//! the old one is still to come, unless its phase is final. So the agent checks both, as long as the API server answers.

/// The state of the network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Namespace {
    /// No namespace has its name.
    Gone,
    /// Its name now belongs to another namespace.
    Replaced,
}

/// The state of the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PodState {
    /// Its object exists.
    Exists,
    /// Its object exists and has this final phase.
    Ended(String),
    /// Its object is gone.
    Gone,
    /// Its name has passed to a pod with this UID.
    Replaced(String),
    /// It has a newer sandbox on this node, with the same interface.
    HasNewerSandbox,
    /// The runtime did not name a pod.
    Unnamed,
    /// The API server does not answer.
    Unknown(String),
}

/// The conclusion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Conclusion {
    /// The address is unused, for this reason.
    Unused(String),
    /// The address may be in use, for this reason.
    MaybeUsed(String),
}

/// Concludes from the states of namespace and pod.
pub(crate) fn conclude(namespace: Namespace, pod: &PodState) -> Conclusion {
    let namespace = match namespace {
        Namespace::Gone => "its network namespace is gone",
        Namespace::Replaced => "its network namespace was replaced by another of the same name",
    };
    let pod = match pod {
        PodState::Exists => {
            return Conclusion::MaybeUsed(format!(
                "{namespace}, but its Pod object exists, and the DEL may still come"
            ));
        }
        PodState::Ended(phase) => format!("and its pod has ended ({phase})"),
        PodState::Gone => "and its Pod object is gone".to_owned(),
        PodState::Replaced(uid) => format!("and a Pod with UID {uid} has its pod's name now"),
        PodState::HasNewerSandbox => "and its pod has a newer sandbox".to_owned(),
        PodState::Unnamed => "and its lease names no pod".to_owned(),
        PodState::Unknown(why) => {
            format!("and the API server does not report whether its pod exists ({why})")
        }
    };
    Conclusion::Unused(format!("{namespace}, {pod}"))
}

#[cfg(test)]
mod tests;
