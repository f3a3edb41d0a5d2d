// SPDX-License-Identifier: Apache-2.0
//! The logical state of a port, which sysfs and netlink report alike.

use std::fmt;

/// The logical state of a port (InfiniBand Architecture § 14.2.5.6, `PortInfo:PortState`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// No physical link.
    Down,
    /// Physical link up; the subnet manager has not configured the port yet.
    Init,
    /// Configured, but not active yet.
    Armed,
    /// Carries traffic.
    Active,
    /// Active, with its link lost for a moment.
    ActiveDefer,
    /// Anything else, e.g. `NOP`.
    Unknown,
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Down => "down",
            Self::Init => "initializing",
            Self::Armed => "armed",
            Self::Active => "active",
            Self::ActiveDefer => "active, deferred",
            Self::Unknown => "unknown",
        })
    }
}

impl PortState {
    /// What the subnet manager has not done for an InfiniBand port in this state; `None` if it has done its part, or
    /// the port has no physical link.
    pub fn unfinished(self) -> Option<&'static str> {
        match self {
            Self::Down | Self::Active => None,
            Self::Init => Some("no subnet manager has configured it"),
            Self::Armed | Self::ActiveDefer | Self::Unknown => {
                Some("the subnet manager has not finished configuring it")
            }
        }
    }

    /// Parses sysfs' `4: ACTIVE`; the number is the specification's.
    pub(crate) fn parse(text: &str) -> Self {
        let code = text.split(':').next().and_then(|number| number.parse().ok());
        code.map_or(Self::Unknown, Self::from_code)
    }

    /// The state with the specification's number.
    pub(crate) fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Down,
            2 => Self::Init,
            3 => Self::Armed,
            4 => Self::Active,
            5 => Self::ActiveDefer,
            _ => Self::Unknown,
        }
    }
}
