// SPDX-License-Identifier: Apache-2.0
//! The kernel's modes of links, under the names that `ip link` gives them.

use netlink_packet_route::link as wire;
use std::fmt;
use std::str::FromStr;

/// A text that names no mode; says which names exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not one of {known}")]
pub struct ModeError {
    text: String,
    known: String,
}

/// Defines an enum with the names of its values, and its way to and from the wire type.
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

            /// `None` for a value that a newer kernel may have.
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
    /// Who hears whom among the macvlans of one parent (`IFLA_MACVLAN_MODE`).
    MacvlanMode as wire::MacVlanMode {
        /// Nobody hears another one.
        Private = "private" as Private,
        /// Through the switch, which must send back what came from the same port.
        Vepa = "vepa" as Vepa,
        /// Directly.
        Bridge = "bridge" as Bridge,
        /// The only one on its parent, whose address it takes.
        Passthru = "passthru" as Passthrough,
        /// Only from the hardware addresses on a list.
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
        /// As `l3`, with the packet filter of the parent's namespace in the way.
        L3s = "l3s" as L3S,
    }
}

mode! {
    /// How a bond spreads its frames over its ports (`IFLA_BOND_MODE`).
    BondMode as wire::BondMode {
        /// One port after the other.
        BalanceRr = "balance-rr" as BalanceRr,
        /// One port carries everything, the others wait: all that InfiniBand ports can do (`bond_enslave`).
        ActiveBackup = "active-backup" as ActiveBackup,
        /// By a hash of the addresses.
        BalanceXor = "balance-xor" as BalanceXor,
        /// All ports send everything.
        Broadcast = "broadcast" as Broadcast,
        /// By LACP.
        Ieee8023ad = "802.3ad" as Ieee8023Ad,
        /// By the load of each port.
        BalanceTlb = "balance-tlb" as BalanceTlb,
        /// The same, and what is received is spread too.
        BalanceAlb = "balance-alb" as BalanceAlb,
    }
}

mode! {
    /// Whose hardware address an active-backup bond has (`IFLA_BOND_FAIL_OVER_MAC`).
    FailOverMac as wire::BondFailOverMac {
        /// One for all ports; InfiniBand ports cannot be given one.
        None = "none" as None,
        /// That of the active port, so that it changes with it.
        Active = "active" as Active,
        /// The first one's, handed on to whichever is active.
        Follow = "follow" as Follow,
    }
}

mode! {
    /// How a link makes its IPv6 link-local address (`IFLA_INET6_ADDR_GEN_MODE`).
    AddrGenMode as wire::In6AddrGenMode {
        /// From the hardware address. IPoIB children of one port share the part it is made from.
        Eui64 = "eui64" as Eui64,
        /// Not at all.
        None = "none" as None,
        /// From the secret in the namespace's `stable_secret` (RFC 7217).
        StablePrivacy = "stable_secret" as StablePrivacy,
        /// From a secret that the kernel draws for this link (RFC 7217).
        Random = "random" as Random,
    }
}

#[cfg(test)]
mod tests;
