// SPDX-License-Identifier: Apache-2.0
//! The lines of an attachment's file: intents, of which the last usable one holds, the notes of processes, and [`DONE`].
//!
//! Invariant: any content is parsed, because damaged content must not keep a container from being removed.
//!
//! Invariant: an intent that has a sum is used only as ADD wrote it for this attachment. DEL deletes the links and the file that it names, and waits
//! for a whole link that it names. A changed line would name those of another attachment, or one that never returns.

use super::notes::{self, Running};
use crate::intent::Intent;
use crate::mark::fnv1a_64;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The line that a complete ADD writes last.
pub(super) const DONE: &str = "done";

/// The content of an attachment's file.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) intent: Option<Intent>,
    pub(super) done: bool,
    pub(super) running: Option<Running>,
    /// Whether the file has lines, and none of them is an intent.
    pub(super) damaged: bool,
}

impl Content {
    /// Parses the bytes of the file at `place`, which need not be text.
    pub(super) fn parse(place: &Path, content: &[u8]) -> Self {
        let (notes, lines): (Vec<&[u8]>, Vec<&[u8]>) = content
            .split(|byte| *byte == b'\n')
            .partition(|line| notes::is_note(line));
        let is_written = lines.iter().any(|line| !line.is_empty());
        let last = last_with_sum(place, &lines).or_else(|| last_of_first_lines(place, &lines));
        Self {
            damaged: is_written && last.is_none(),
            done: last
                .as_ref()
                .is_some_and(|(at, _)| lines.get(at + 1) == Some(&DONE.as_bytes())),
            intent: last.map(|(_, intent)| intent),
            running: notes.last().and_then(|line| Running::parse(line)),
        }
    }
}

/// The last intent with a sum, and its line. Lines before it may be damaged: the sum proves this one.
fn last_with_sum(place: &Path, lines: &[&[u8]]) -> Option<(usize, Intent)> {
    let last_first = lines.iter().enumerate().rev();
    last_first
        .filter(|(_, line)| has_sum(line))
        .find_map(|(at, line)| Some((at, intent_of(place, line)?)))
}

/// The last of the intents at the beginning of the file, and its line.
fn last_of_first_lines(place: &Path, lines: &[&[u8]]) -> Option<(usize, Intent)> {
    let first = lines.iter().map_while(|line| intent_of(place, line));
    first.enumerate().last()
}

/// The line of `intent` in the attachment's file at `place`.
pub(super) fn line_of(place: &Path, intent: &Intent) -> serde_json::Result<String> {
    let mut line = serde_json::to_string(intent)?;
    line.pop();
    let sum = sum_of(place, line.as_bytes());
    line.push_str(&sum);
    line.push('\n');
    Ok(line)
}

/// The intent of a line that is a complete object.
///
/// Other lines are not given to `serde_json`, because its error is expensive: it contains the column, and the first search
/// for that asks the processor for its features, which traps in a virtual machine.
fn intent_of(place: &Path, line: &[u8]) -> Option<Intent> {
    (line.starts_with(b"{") && is_unchanged(place, line)).then(|| serde_json::from_slice(line).ok())?
}

/// Whether the sum at the end of the line is that of its content and of `place`. Releases before the sum wrote none.
fn is_unchanged(place: &Path, line: &[u8]) -> bool {
    if !has_sum(line) {
        return true;
    }
    let content = line.len().saturating_sub(SUM_LENGTH);
    let (content, sum) = line.split_at(content);
    sum == sum_of(place, content).as_bytes()
}

fn has_sum(line: &[u8]) -> bool {
    // A string in JSON has a backslash before each quote.
    line.windows(KEY.len()).any(|part| part == KEY)
}

/// The key of the sum in an intent's line. Releases before the sum ignore it.
const KEY: &[u8] = br#""sum":"#;

/// The length of what [`sum_of`] returns.
const SUM_LENGTH: usize = r#","sum":"0123456789abcdef"}"#.len();

/// The end of an intent's line that begins with `content`. The sum includes the place of the file, so the line of another
/// attachment has another sum.
fn sum_of(place: &Path, content: &[u8]) -> String {
    let sum = fnv1a_64(&[place.as_os_str().as_bytes(), b"\n", content].concat());
    format!(r#","sum":"{sum:016x}"}}"#)
}
