// SPDX-License-Identifier: Apache-2.0
//! Finds what is newer than the sandbox of a lease: another sandbox of its pod, or a later pod of the same name.
//!
//! Invariant: only a lease that names its pod is compared, and only with leases for the same interface.

use ipam::store::StoredLease;
use std::collections::HashMap;
use std::time::Duration;

/// When a lease was made, and for which UID.
type Made = (Duration, Option<String>);

/// The leases of each interface of each pod name.
pub(super) struct Sandboxes(HashMap<(String, String), Vec<Made>>);

/// What has a newer lease for the interface of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Newer {
    /// A newer sandbox of the pod. A lease without a UID counts as one of the same pod.
    Sandbox,
    /// A later pod of the same name.
    Pod,
}

impl Sandboxes {
    pub(super) fn of(leases: &[StoredLease]) -> Self {
        let mut all: HashMap<_, Vec<Made>> = HashMap::new();
        for stored in leases {
            if let Some(key) = Self::key(stored) {
                let made = (stored.lease.since_boot, stored.lease.sandbox.uid.clone());
                all.entry(key).or_default().push(made);
            }
        }
        Self(all)
    }

    fn key(stored: &StoredLease) -> Option<(String, String)> {
        let pod = stored.lease.sandbox.pod.clone()?;
        Some((pod, stored.lease.owner.ifname.to_string()))
    }

    /// What has a newer lease for the same pod name and interface. A newer sandbox of the pod comes before a later pod.
    pub(super) fn newer_than(&self, stored: &StoredLease) -> Option<Newer> {
        let all = self.0.get(&Self::key(stored)?)?;
        let newer = all.iter().filter(|(since, _)| *since > stored.lease.since_boot);
        newer
            .map(|(_, uid)| match (&stored.lease.sandbox.uid, uid) {
                (Some(ours), Some(theirs)) if ours != theirs => Newer::Pod,
                _ => Newer::Sandbox,
            })
            .min()
    }
}
