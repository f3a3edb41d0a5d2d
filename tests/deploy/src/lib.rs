// SPDX-License-Identifier: Apache-2.0
//! The helpers of this crate: the programs, and the manifests as kustomize and Helm render them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a fixture that cannot be made fails its test, and says why"
)]

pub mod api;
pub mod manifests;

use std::path::{Path, PathBuf};

pub use tests::programs::program;

/// The workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}
