// SPDX-License-Identifier: Apache-2.0
//! An interface that a pod has from the plugins.

use std::fmt;

/// An interface of a pod. The runtime will call a plugin of ours to delete it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceInUse {
    /// The network.
    pub network: String,
    /// The container's id.
    pub container: String,
    /// The interface in the pod.
    pub ifname: String,
    /// `namespace/name`, where it is known.
    pub pod: Option<String>,
    /// The evidence for this use.
    pub evidence: String,
}

impl fmt::Display for InterfaceInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            network,
            container,
            ifname,
            pod,
            evidence,
        } = self;
        let pod = pod.as_deref().unwrap_or("a pod");
        write!(
            f,
            "{pod}: {ifname} of network {network}, container {container} ({evidence})"
        )
    }
}
