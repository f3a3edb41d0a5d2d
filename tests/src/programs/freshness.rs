// SPDX-License-Identifier: Apache-2.0
//! Whether a program was built from the sources of this workspace as they are now.
//!
//! Cargo builds the programs of another package only for `cargo build`, so a suite alone would test those of the last build.
//! Beside each program cargo writes the list of its sources, `NAME.d`, in the syntax of make.

use std::fs;
use std::path::{Path, PathBuf};

/// Why `program` does not show how the sources of the workspace `root` behave; none if it does.
///
/// It compares times of modification, as cargo does. It does not see a change of a `Cargo.toml`.
pub(super) fn staleness(program: &Path, root: &Path) -> Option<String> {
    let list = program.with_extension("d");
    let Ok(text) = fs::read_to_string(&list) else {
        return Some(format!("{} is missing, the list of its sources", list.display()));
    };
    let built = fs::metadata(program).and_then(|of| of.modified()).ok();
    let sources = sources(&text);
    if !sources.iter().any(|source| source.starts_with(root)) {
        return Some(format!("it was not built from {}", root.display()));
    }
    let changed = |source: &&PathBuf| {
        let written = fs::metadata(source).and_then(|of| of.modified()).ok();
        written.is_none() || written > built
    };
    let newer = sources.iter().find(changed)?;
    Some(format!("{} has changed since its build", newer.display()))
}

/// The paths after the colon. A backslash stands before each space in a path.
fn sources(text: &str) -> Vec<PathBuf> {
    let (_, list) = text.split_once(": ").unwrap_or_default();
    let paths = list.trim_end().replace("\\ ", "\0");
    paths
        .split(' ')
        .map(|path| PathBuf::from(path.replace('\0', " ")))
        .collect()
}

#[cfg(test)]
mod tests;
