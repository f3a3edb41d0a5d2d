// SPDX-License-Identifier: Apache-2.0
//! The kernel's modes of links, with the names that `ip link` uses.

use netlink_packet_route::link as wire;
use std::fmt;
use std::str::FromStr;

/// The text is not the name of a mode. The message lists the names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not one of {known}")]
pub struct ModeError {
    text: String,
    known: String,
}

/// Defines an enum with the names of its values, and its conversion from and to the wire type.
macro_rules! mode {
    ($(#[$doc:meta])* $name:ident as $wire:ty { $($(#[$value_doc:meta])* $value:ident = $text:literal as $code:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$value_doc])* $value,)*
        }

        impl $name {
            /// Every value, in the kernel's order.
            pub const ALL: &[Self] = &[$(Self::$value),*];

            /// The name that `ip link` uses.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)*
                }
            }

            pub(super) fn encode(self) -> $wire {
                match self {
                    $(Self::$value => <$wire>::$code,)*
                }
            }

            /// `None` for a value of a newer kernel.
            pub(super) fn decode(code: $wire) -> Option<Self> {
                match code {
                    $(<$wire>::$code => Some(Self::$value),)*
                    _ => None,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = ModeError;

            fn from_str(text: &str) -> Result<Self, ModeError> {
                let known = || Self::ALL.iter().map(|m| m.as_str()).collect::<Vec<_>>().join(", ");
                let found = Self::ALL.iter().copied().find(|mode| mode.as_str() == text);
                found.ok_or_else(|| ModeError { text: text.to_owned(), known: known() })
            }
        }
    };
}

mode! {
    /// How IPoIB carries packets (`IFLA_IPOIB_MODE`).
    IpoibMode as wire::IpoibMode {
        /// Unreliable datagrams; the MTU is the fabric's less 4 bytes (RFC 4391).
        Datagram = "datagram" as Datagram,
        /// Reliable connections; MTU up to 65520 bytes (RFC 4755).
        Connected = "connected" as Connected,
    }
}

mode! {
    /// Which macvlans of one parent exchange frames (`IFLA_MACVLAN_MODE`).
    MacvlanMode as wire::MacVlanMode {
        /// None.
        Private = "private" as Private,
        /// All, through a switch that returns frames to the port they came from.
        Vepa = "vepa" as Vepa,
        /// Directly.
        Bridge = "bridge" as Bridge,
        /// The only macvlan of its parent; it uses the parent's address.
        Passthru = "passthru" as Passthrough,
        /// Each receives frames only from the hardware addresses on its list.
        Source = "source" as Source,
    }
}

mode! {
    /// On which layer an ipvlan shares its parent (`IFLA_IPVLAN_MODE`).
    IpvlanMode as wire::IpVlanMode {
        /// With broadcast and multicast.
        L2 = "l2" as L2,
        /// Routed by the parent's namespace, without broadcast.
        L3 = "l3" as L3,
        /// As `l3`, and frames pass the packet filter of the parent's namespace.
        L3s = "l3s" as L3S,
    }
}

mode! {
    /// How a bond spreads its frames over its ports (`IFLA_BOND_MODE`).
    BondMode as wire::BondMode {
        /// One port after the other.
        BalanceRr = "balance-rr" as BalanceRr,
        /// One port carries all frames, the others are standby. The only mode for InfiniBand ports
        /// (`bond_enslave`).
        ActiveBackup = "active-backup" as ActiveBackup,
        /// By a hash of the addresses.
        BalanceXor = "balance-xor" as BalanceXor,
        /// Every port sends every frame.
        Broadcast = "broadcast" as Broadcast,
        /// By LACP.
        Ieee8023ad = "802.3ad" as Ieee8023Ad,
        /// By the load of each port.
        BalanceTlb = "balance-tlb" as BalanceTlb,
        /// As `balance-tlb`, and received frames are spread too.
        BalanceAlb = "balance-alb" as BalanceAlb,
    }
}

mode! {
    /// Whose hardware address an active-backup bond has (`IFLA_BOND_FAIL_OVER_MAC`).
    FailOverMac as wire::BondFailOverMac {
        /// One address for all ports; an InfiniBand port cannot be given an address.
        None = "none" as None,
        /// The address of the active port; it changes with the active port.
        Active = "active" as Active,
        /// The address of the first port; it moves to the active port.
        Follow = "follow" as Follow,
    }
}

mode! {
    /// How the kernel makes the IPv6 link-local address of a link (`IFLA_INET6_ADDR_GEN_MODE`).
    AddrGenMode as wire::In6AddrGenMode {
        /// From the hardware address. IPoIB children of one port share the part that is used.
        Eui64 = "eui64" as Eui64,
        /// Not at all.
        None = "none" as None,
        /// From the secret in the namespace's `stable_secret` (RFC 7217).
        StablePrivacy = "stable_secret" as StablePrivacy,
        /// From a secret that the kernel generates for this link (RFC 7217).
        Random = "random" as Random,
    }
}

#[cfg(test)]
mod tests;
