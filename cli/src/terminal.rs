// SPDX-License-Identifier: Apache-2.0
//! Text for terminals. A user who may change one pod chooses texts that an administrator reads, such as those of the
//! annotation `network-status`. In a terminal, a control character moves the cursor, writes the clipboard or begins a
//! row, and a control of text direction changes the order of words.
//!
//! Invariant: a text on a terminal has no such character, except the line breaks of the command itself.

/// Escapes `text` for a place in one line.
pub fn line(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        let reorders = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        let breaks = matches!(c, '\u{2028}' | '\u{2029}');
        if c.is_control() || reorders || breaks {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    safe
}

/// Escapes `text`, and keeps its line breaks.
pub fn lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(line).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests;
