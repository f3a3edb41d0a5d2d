// SPDX-License-Identifier: Apache-2.0
//! The output of a command, and the exit status of the process.

use crate::table::wrapped;
use serde::Serialize;
use serde_json::Value;

/// The width of text, in columns.
pub const WIDTH: usize = 110;

/// The output of a command.
#[derive(Clone, Debug)]
pub struct Output {
    /// The text.
    pub text: String,
    /// The same data for programs.
    pub json: Value,
    /// The meaning of the exit status.
    pub outcome: Outcome,
}

/// The meaning of the exit status. A [`CommandError`] has exit status 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// 0: done, no problem was found.
    Fine,
    /// 1: done, and the output names a problem, or work that is left to do.
    Found,
}

impl Outcome {
    /// [`Self::Found`] if `found`.
    pub fn of(found: bool) -> Self {
        if found { Self::Found } else { Self::Fine }
    }
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Pods have no network or no RDMA, or two pods may have the same address.
    Fail,
    /// Something works worse than it should, or was left behind.
    Warn,
    /// For information, or it resolves by itself.
    Info,
}

/// A contradiction or a fault, of the cluster or of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// The severity.
    pub level: Severity,
    /// The kind of a finding about the cluster; empty for a finding about a node.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub kind: &'static str,
    /// The subject: an address, a block, a pool, a port.
    pub subject: String,
    /// The description, and why it matters.
    pub text: String,
    /// What to do.
    pub remedy: String,
}

impl Finding {
    /// A finding about a node.
    pub fn new(
        level: Severity,
        subject: impl Into<String>,
        text: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            level,
            kind: "",
            subject: subject.into(),
            text: text.into(),
            remedy: remedy.into(),
        }
    }

    /// The text for people.
    pub fn describe(&self) -> String {
        let level = match self.level {
            Severity::Fail => "FAIL",
            Severity::Warn => "WARN",
            Severity::Info => "INFO",
        };
        // Wrapping drops the blank before a finding without a kind.
        let sentence = format!("{} {}: {}", self.kind, self.subject, self.text);
        let (sentence, remedy) = (wrapped(&sentence, 6, WIDTH), wrapped(&self.remedy, 9, WIDTH));
        format!("{level}  {sentence}\n      -> {remedy}\n")
    }
}

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CommandError(pub String);

impl CommandError {
    /// One sentence.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl From<common::cni::Error> for CommandError {
    fn from(error: common::cni::Error) -> Self {
        if error.details.is_empty() {
            Self(error.msg)
        } else {
            Self(format!("{}: {}", error.msg, error.details))
        }
    }
}

/// The exit status of the process.
pub fn exit_status(outcome: &Result<Output, CommandError>) -> u8 {
    match outcome {
        Ok(output) if output.outcome == Outcome::Fine => 0,
        Ok(_) => 1,
        Err(_) => 2,
    }
}
