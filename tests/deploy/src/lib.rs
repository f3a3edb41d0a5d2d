// SPDX-License-Identifier: Apache-2.0
//! What the suites of this crate share: the programs, and the manifests as kustomize and Helm make them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a fixture that cannot be made fails its test, and says why"
)]

pub mod api;
pub mod manifests;

use std::path::{Path, PathBuf};

/// A program of this workspace, beside the one that runs.
pub fn program(name: &str) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let path = here.parent().and_then(Path::parent).unwrap().join(name);
    assert!(
        path.is_file(),
        "{} is not there: run `cargo build --workspace --bins`",
        path.display()
    );
    path
}

/// The workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}
