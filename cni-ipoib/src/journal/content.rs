// SPDX-License-Identifier: Apache-2.0
//! The lines of an attachment's file: intents, of which the last complete one holds, the notes of processes, and [`DONE`].
//!
//! Invariant: any content is parsed, because damaged content must not keep a container from being removed.

use super::notes::{self, Running};
use crate::intent::Intent;

/// The line that a complete ADD writes last.
pub(super) const DONE: &str = "done";

/// The content of an attachment's file.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) intent: Option<Intent>,
    pub(super) done: bool,
    pub(super) running: Option<Running>,
}

impl Content {
    /// Parses bytes, which need not be text.
    pub(super) fn parse(content: &[u8]) -> Self {
        let (notes, lines): (Vec<&[u8]>, Vec<&[u8]>) = content
            .split(|byte| *byte == b'\n')
            .partition(|line| notes::is_note(line));
        let mut lines = lines.into_iter().peekable();
        let mut intent = lines.next().and_then(intent_of);
        // A later complete line replaces the earlier one.
        while intent.is_some()
            && let Some(later) = lines.peek().and_then(|line| intent_of(line))
        {
            intent = Some(later);
            lines.next();
        }
        Self {
            intent,
            done: lines.next() == Some(DONE.as_bytes()),
            running: notes.last().and_then(|line| Running::parse(line)),
        }
    }
}

/// The intent of a line that is a complete object.
///
/// Other lines are not given to `serde_json`, because its error is expensive: it contains the column, and the first search
/// for that asks the processor for its features, which traps in a virtual machine.
fn intent_of(line: &[u8]) -> Option<Intent> {
    line.starts_with(b"{")
        .then(|| serde_json::from_slice(line).ok())?
}
