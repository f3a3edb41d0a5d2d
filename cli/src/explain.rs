// SPDX-License-Identifier: Apache-2.0
//! `rdmanet explain`: finds the error of a plugin in any text, and prints its meaning and remedy.
//!
//! Multus returns code 999 for each failed network and puts the plugin's message into its own. So the code in the tables
//! is lost. Therefore each error of ours ends with `rdmanet error N` (`common::cni::error`).
//!
//! Invariant: the meanings and remedies are those of `docs/operate.md`, which is compiled in.

use crate::output::{CommandError, Outcome, Output};
use crate::terminal;
use common::cni::error::MARK;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Read};

/// The page whose last table has every code.
const OPERATE: &str = include_str!("../../docs/operate.md");

/// The heading of that table.
const HEADING: &str = "\n## Error codes\n";

/// The text before a plugin's message in the messages of libcni (`invoke` and `libcni/api.go`) and of Multus.
const PREFIXES: [&str; 5] = [
    "failed (add): ",
    "failed (delete): ",
    "failed (check): ",
    "failed (gc): ",
    "failed (status): ",
];

/// The text of Multus before the name of a network (`pkg/multus/multus.go`). Thick Multus puts a plugin's message behind the name.
const NETWORK: &str = "error adding container to network \"";

/// The largest text that is read from stdin, in bytes; the events of a whole namespace are smaller.
const TEXT_MAX: u64 = 16 << 20;

/// An error of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PluginError {
    code: u32,
    /// The plugin's message, if the text has it.
    message: String,
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row<'t> {
    from: &'t str,
    meaning: &'t str,
    remedy: &'t str,
}

/// Explains the errors in `words`, or else those on stdin.
///
/// # Errors
/// Stdin is a terminal or cannot be read.
pub fn run(words: &[String]) -> Result<Output, CommandError> {
    let text = match words {
        [] => stdin()?,
        [one] if one == "-" => stdin()?,
        words => words.join(" "),
    };
    Ok(explain(&text))
}

fn stdin() -> Result<String, CommandError> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Err(CommandError::new(
            "nothing to explain; pass a code or a message, or pipe a text: kubectl describe pod NAME | rdmanet explain",
        ));
    }
    let mut bytes = Vec::new();
    stdin
        .take(TEXT_MAX)
        .read_to_end(&mut bytes)
        .map_err(|e| CommandError(format!("cannot read stdin: {e}")))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Explains all errors in `text`.
pub fn explain(text: &str) -> Output {
    let table = table(OPERATE);
    let found = find(text);
    if found.is_empty() {
        return no_error_in(text);
    }
    let mut out = String::new();
    let mut documents = Vec::new();
    for PluginError { code, message } in &found {
        let row = table.get(code);
        let (from, meaning, remedy) = match row {
            Some(row) => (row.from, row.meaning, row.remedy),
            None => (
                "-",
                "this version of rdmanet has no such code",
                "use the command of the version that is installed on the nodes",
            ),
        };
        let _ = writeln!(out, "code {code}, from {from}: {meaning}");
        if !message.is_empty() {
            let _ = writeln!(out, "  message  {}", terminal::line(message));
        }
        let _ = writeln!(out, "  remedy   {remedy}\n");
        documents.push(json!({
            "code": code, "from": from, "meaning": meaning, "remedy": remedy, "message": message,
        }));
    }
    Output {
        text: out,
        json: json!({ "errors": documents }),
        outcome: Outcome::Fine,
    }
}

fn no_error_in(text: &str) -> Output {
    let mut answer = format!("no error of rdmanet: the text does not contain \"{MARK}N\"\n");
    if text.contains("Multus") || text.contains("multus") {
        answer.push_str(
            "Multus returns code 999 for any failed network; the message names the plugin that failed\n",
        );
    }
    Output {
        text: answer,
        json: json!({ "errors": [] }),
        outcome: Outcome::Found,
    }
}

/// The errors in `text`, each once.
fn find(text: &str) -> Vec<PluginError> {
    let trimmed = text.trim();
    if let Ok(code) = trimmed.parse() {
        let message = String::new();
        return vec![PluginError { code, message }];
    }
    if let Ok(Value::Object(document)) = serde_json::from_str::<Value>(trimmed)
        && let (Some(code), Some(message)) = (
            document.get("code").and_then(Value::as_u64),
            document.get("msg").and_then(Value::as_str),
        )
        && let Ok(code) = u32::try_from(code)
        && !message.contains(MARK)
    {
        let message = message.to_owned();
        return vec![PluginError { code, message }];
    }
    let mut found: Vec<PluginError> = text.lines().flat_map(find_in_line).collect();
    found.sort();
    found.dedup();
    found
}

/// The errors in one line: an Event has one, a log may have several.
fn find_in_line(line: &str) -> Vec<PluginError> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.find(MARK) {
        let (before, after) = (&rest[..at], &rest[at + MARK.len()..]);
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if let Ok(code) = after[..digits].parse() {
            let message = message(before);
            found.push(PluginError { code, message });
        }
        rest = &after[digits..];
    }
    found
}

/// The plugin's message at the end of `before`.
fn message(before: &str) -> String {
    let network = before.rfind(NETWORK).and_then(|at| {
        let name = at + NETWORK.len();
        Some(name + before[name..].find("\": ")? + 3)
    });
    let start = PREFIXES
        .iter()
        .filter_map(|prefix| Some(before.rfind(prefix)? + prefix.len()))
        .chain(network)
        .max()
        .unwrap_or_default();
    let words = before[start..].trim();
    words.strip_suffix(';').unwrap_or(words).to_owned()
}

/// The rows of the table of error codes in `page`.
fn table(page: &str) -> BTreeMap<u32, Row<'_>> {
    let section = page.split_once(HEADING).map_or("", |(_, section)| section);
    let end = section.find("\n## ").unwrap_or(section.len());
    section[..end]
        .lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line
                .strip_prefix("| ")?
                .strip_suffix(" |")?
                .split(" | ")
                .collect();
            let [code, from, meaning, remedy] = cells.as_slice() else {
                return None;
            };
            let row = Row {
                from,
                meaning,
                remedy,
            };
            Some((code.parse().ok()?, row))
        })
        .collect()
}

#[cfg(test)]
mod tests;
