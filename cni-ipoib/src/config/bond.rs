// SPDX-License-Identifier: Apache-2.0
//! The key `bond`: how a master that is a bond is used.

use std::fmt;
use std::str::FromStr;

/// How a bond serves as a parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BondUse {
    /// One `IPoIB` child of each port, bonded in the pod; on Ethernet a child of the bond itself.
    #[default]
    InPod,
    /// One `IPoIB` child of the port that is active now.
    Active,
    /// Refused.
    Refuse,
}

impl BondUse {
    const ALL: [Self; 3] = [Self::InPod, Self::Active, Self::Refuse];

    fn as_str(self) -> &'static str {
        match self {
            Self::InPod => "inPod",
            Self::Active => "active",
            Self::Refuse => "refuse",
        }
    }
}

impl fmt::Display for BondUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for BondUse {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|known| known.as_str() == text);
        found.ok_or_else(|| format!("{text:?} is not one of inPod, active, refuse"))
    }
}
