// SPDX-License-Identifier: Apache-2.0
//! Damage to files below the state directory.

use common::mutate::{self, Random};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The files below `directory` with their content, sorted by path.
pub(super) fn files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push((path.clone(), fs::read(path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// Damages one of `files`, most often the attachment's file `own`. Paths below `state` in it may become paths below `outside`.
/// Returns what it did.
pub(super) fn damage(
    random: &mut Random,
    files: &[(PathBuf, Vec<u8>)],
    own: &Path,
    (state, outside): (&Path, &Path),
) -> String {
    let (any, _) = random.pick(files);
    let path = if random.one_in(2) { own } else { any };
    let content = fs::read(path).unwrap_or_default();
    let (what, content) = match random.below(8) {
        0 => ("removed", None),
        1 => ("emptied", Some(Vec::new())),
        2 => ("got the content of another", Some(random.pick(files).1.clone())),
        3 => {
            let name = path.file_name().unwrap().to_string_lossy();
            let other = if name.starts_with("c1@net1") {
                "c2@net2"
            } else {
                "c1@net1"
            };
            let renamed = path.with_file_name(format!("{other}{}", name.get(7..).unwrap_or_default()));
            fs::write(renamed, &content).unwrap();
            ("renamed", None)
        }
        4 => {
            let text = String::from_utf8_lossy(&content).into_owned();
            let text = text.replace(&state.display().to_string(), &outside.display().to_string());
            ("names files elsewhere", Some(text.into_bytes()))
        }
        5 => ("some bytes", Some(with_other_bytes(random, content))),
        _ => ("a value", Some(with_another_value(random, &content))),
    };
    match content {
        Some(content) => fs::write(path, content).unwrap(),
        None => fs::remove_file(path).unwrap_or_default(),
    }
    format!("{}: {what}", path.strip_prefix(state).unwrap().display())
}

fn with_other_bytes(random: &mut Random, mut content: Vec<u8>) -> Vec<u8> {
    mutate::bytes(random, &mut content);
    content
}

/// The content with another value in one of its lines. A line of this release keeps a sum: one without is of an earlier release.
fn with_another_value(random: &mut Random, content: &[u8]) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = content.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let at = random.below(lines.len());
    if let Ok(mut value) = serde_json::from_slice::<Value>(&lines[at]) {
        let sum = value.get("sum").cloned();
        mutate::json(random, &mut value);
        if let (Some(sum), Some(object)) = (sum, value.as_object_mut()) {
            object.entry("sum").or_insert(sum);
        }
        lines[at] = value.to_string().into_bytes();
    }
    lines.join(&b'\n')
}
