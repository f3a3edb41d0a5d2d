// SPDX-License-Identifier: Apache-2.0
//! Runs `ip -json` and parses its output.
//!
//! Invariant: nothing here changes the node.

use crate::output::CommandError;
use serde_json::Value;
use std::process::Command;

/// Runs `ip -json` with these words and returns its list.
///
/// # Errors
/// `ip` is missing, fails, or prints no JSON.
pub fn list(words: &[&str]) -> Result<Vec<Value>, CommandError> {
    let failed = |why: String| CommandError(format!("ip -json {}: {why}", words.join(" ")));
    let output = Command::new("ip").arg("-json").args(words).output();
    let output = output.map_err(|e| failed(format!("{e}; is iproute2 installed?")))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    if output.stdout.iter().all(u8::is_ascii_whitespace) {
        return Ok(Vec::new());
    }
    serde_json::from_slice(&output.stdout).map_err(|e| failed(e.to_string()))
}

/// The value of `key` as text; empty if there is none.
pub fn field(object: &Value, key: &str) -> String {
    match &object[key] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
