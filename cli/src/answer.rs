// SPDX-License-Identifier: Apache-2.0
//! The output of a command, and the exit status of the process.

use serde_json::Value;

/// The output of a command.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The text for people.
    pub text: String,
    /// The same for programs.
    pub json: Value,
    /// The meaning of the exit status.
    pub outcome: Outcome,
}

/// The meaning of the exit status. A [`Failure`] has exit status 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// 0: done, nothing is wrong.
    Fine,
    /// 1: done, and something is wrong or left to do.
    Found,
}

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

impl Failure {
    /// One sentence.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl From<common::cni::Error> for Failure {
    fn from(error: common::cni::Error) -> Self {
        if error.details.is_empty() {
            Self(error.msg)
        } else {
            Self(format!("{}: {}", error.msg, error.details))
        }
    }
}

/// The exit status of the process.
pub fn exit_status(outcome: &Result<Answer, Failure>) -> u8 {
    match outcome {
        Ok(answer) if answer.outcome == Outcome::Fine => 0,
        Ok(_) => 1,
        Err(_) => 2,
    }
}
