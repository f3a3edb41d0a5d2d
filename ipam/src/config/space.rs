// SPDX-License-Identifier: Apache-2.0
//! Among which networks of a node an address is unique.
//!
//! host-local keeps the addresses of each network apart. whereabouts (v0.9.4) keeps those of each
//! `network_name` apart, and all networks without one together: it creates one `IPPool` for each range, and with
//! `enable_overlapping_ranges`, which is `true` by default, an object for each address (`IPPoolName` and
//! `NormalizeIP` of its `pkg/storage/kubernetes/ipam.go`, `UnmarshalJSON` of its `pkg/types/types.go`).

use super::raw::RawIpam;
use serde::{Deserialize, Serialize};

/// The networks of one data directory among which an address is unique. Within a network, and among the
/// networks of one `network_name`, an address is always unique.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Space {
    /// This network alone: the promise of host-local, and of whereabouts with a `network_name`.
    Network,
    /// The networks in whereabouts' spelling that have the same subnet: its promise without
    /// `enable_overlapping_ranges`.
    Range,
    /// The networks in whereabouts' spelling: its default. Leases of pools, and of earlier versions, have this
    /// value too.
    #[default]
    Node,
}

impl Space {
    /// The space of a configuration with ranges.
    pub(super) fn of(ipam: &RawIpam) -> Self {
        let theirs = ipam.range.is_some() || ipam.ip_ranges.is_some();
        match (&ipam.network_name, ipam.enable_overlapping_ranges) {
            (None, Some(true)) => Self::Node,
            (None, None) if theirs => Self::Node,
            (None, Some(false)) if theirs => Self::Range,
            _ => Self::Network,
        }
    }
}
