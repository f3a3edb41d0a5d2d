// SPDX-License-Identifier: Apache-2.0
//! Type and reasons of the Node condition that reports whether its links have carrier.

/// The types of conditions on a Node.
pub mod kind {
    /// Every link that counts has carrier. The domain prefix keeps the type apart from the types of other programs, as
    /// the comment on `metav1.Condition.type` asks.
    pub const LINKS_READY: &str = "rdmanet.io/LinksReady";
}

/// Reasons of the condition.
pub mod reason {
    /// True: all links have carrier.
    pub const LINKS_UP: &str = "LinksUp";
    /// True: a bond works without one of its ports.
    pub const BOND_DEGRADED: &str = "BondDegraded";
    /// False: a port, or a bond with all of its ports, has no carrier.
    pub const LINK_DOWN: &str = "LinkDown";
    /// Unknown: the links that the condition was about are no longer on the node, or all are set down.
    pub const NO_LINKS: &str = "NoLinks";
}
