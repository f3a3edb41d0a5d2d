// SPDX-License-Identifier: Apache-2.0
//! The words of the condition of a Node that says whether its links carry.

/// The types of conditions on a Node.
pub mod kind {
    /// Every link that counts has carrier. The domain keeps it apart from everybody else's, as the comment on
    /// `metav1.Condition.type` asks.
    pub const LINKS_READY: &str = "rdmanet.io/LinksReady";
}

/// Why it has its status.
pub mod reason {
    /// True: all have carrier.
    pub const LINKS_UP: &str = "LinksUp";
    /// True: a bond goes on without one of its ports.
    pub const BOND_DEGRADED: &str = "BondDegraded";
    /// False: a port, or a bond with all of its ports, has no carrier.
    pub const LINK_DOWN: &str = "LinkDown";
    /// Unknown: the links that the condition was about are not on the node any more, or all are set down.
    pub const NO_LINKS: &str = "NoLinks";
}
