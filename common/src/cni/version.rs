// SPDX-License-Identifier: Apache-2.0
//! The specification versions that the plugins support.

/// A version of the CNI specification. Versions are matched by their exact text, as the specification asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 0.1.0
    V0_1_0,
    /// 0.2.0
    V0_2_0,
    /// 0.3.0
    V0_3_0,
    /// 0.3.1
    V0_3_1,
    /// 0.4.0, the first with CHECK
    V0_4_0,
    /// 1.0.0
    V1_0_0,
    /// 1.1.0, the first with GC and STATUS
    V1_1_0,
}

impl Version {
    /// Every version, oldest first.
    pub const ALL: [Self; 7] = [
        Self::V0_1_0,
        Self::V0_2_0,
        Self::V0_3_0,
        Self::V0_3_1,
        Self::V0_4_0,
        Self::V1_0_0,
        Self::V1_1_0,
    ];

    /// The newest version; the default for a caller that names no known version.
    pub const LATEST: Self = Self::V1_1_0;

    /// The version as it is written in `cniVersion`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// Every version as it is written, oldest first.
    pub fn all_str() -> Vec<&'static str> {
        Self::ALL.iter().map(|v| v.as_str()).collect()
    }

    /// Parses a `cniVersion`. An empty one is 0.1.0, whose configurations had none. None if the version is not supported.
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::V0_1_0);
        }
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
