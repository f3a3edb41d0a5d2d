// SPDX-License-Identifier: Apache-2.0
//! The programs of today and of an earlier version, for tests that run both.

use crate::programs::{earlier, ours, program};
use std::path::{Path, PathBuf};

/// The version of rdmanet that a program is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// What this workspace builds.
    Today,
    /// What `tests/earlier` built, in the directory `RDMANET_EARLIER`.
    Earlier,
}

/// Flags of both daemons, and the environment variables that have set them in any version. A daemon ignores a variable that it
/// does not know, but refuses such a flag.
const VARIABLES: [(&str, &[&str]); 7] = [
    (
        "--reconcile-interval",
        &["RDMANET_RECONCILE_INTERVAL", "RDMANET_TICK"],
    ),
    (
        "--report-interval",
        &["RDMANET_REPORT_INTERVAL", "RDMANET_MIRROR"],
    ),
    (
        "--observation-interval",
        &["RDMANET_OBSERVATION_INTERVAL", "RDMANET_OBSERVE"],
    ),
    ("--idle", &["RDMANET_IDLE"]),
    ("--log", &["RDMANET_LOG"]),
    ("--quarantine", &["RDMANET_QUARANTINE"]),
    ("--quarantine-in-use", &["RDMANET_QUARANTINE_IN_USE"]),
];

impl Version {
    /// The other version.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Today => Self::Earlier,
            Self::Earlier => Self::Today,
        }
    }

    /// Whether the version has a controller. Before 22 November 2026, agents did its work.
    pub fn has_controller(self) -> bool {
        self == Self::Today || earlier().join("rdmanet-controller").is_file()
    }

    /// The directory of the manifests, `conf/`.
    pub fn manifests(self) -> PathBuf {
        match self {
            Self::Today => Path::new(env!("CARGO_MANIFEST_DIR")).join("../conf"),
            Self::Earlier => earlier().join("conf"),
        }
    }

    /// The directory of both plugins.
    pub fn plugins(self) -> &'static Path {
        match self {
            Self::Today => ours(),
            Self::Earlier => earlier(),
        }
    }

    /// The program `name`.
    pub fn program(self, name: &str) -> PathBuf {
        match self {
            Self::Today => program(name),
            Self::Earlier => {
                let path = earlier().join(name);
                assert!(path.is_file(), "the earlier version has no {}", path.display());
                path
            }
        }
    }
}

/// The environment of an earlier daemon that has the effect of `flags`. A flag without a variable is left out.
pub fn environment(flags: &[String]) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    for pair in flags.windows(2) {
        let known = VARIABLES.iter().find(|(flag, _)| pair[0] == *flag);
        let names = known.map_or(&[][..], |(_, names)| names);
        all.extend(names.iter().map(|name| (*name, pair[1].clone())));
    }
    all
}
