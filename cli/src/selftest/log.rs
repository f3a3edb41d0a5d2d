// SPDX-License-Identifier: Apache-2.0
//! The result of each step, and its time.
//!
//! Invariant: every step that was begun is in the log, in order.

use serde::Serialize;
use std::time::Instant;

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "result", content = "why")]
pub enum Outcome {
    /// The step passed.
    Ok,
    /// The step failed.
    Failed(String),
    /// The step was not run.
    NotRun(String),
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// What was tested, as a sentence that is true if the step passed.
    pub name: String,
    /// The result.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// A measured value, e.g. a bandwidth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
    /// The duration in milliseconds.
    pub millis: u128,
}

/// All steps, in order.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// The steps.
    pub steps: Vec<Step>,
}

impl Log {
    /// Runs `work`. Returns its value if the step passed.
    pub fn step<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T, String>) -> Option<T> {
        let start = Instant::now();
        let result = work();
        let millis = start.elapsed().as_millis();
        let (outcome, value) = match result {
            Ok(value) => (Outcome::Ok, Some(value)),
            Err(why) => (Outcome::Failed(why), None),
        };
        self.push(name, outcome, millis);
        value
    }

    /// Records a step that was not run.
    pub fn not_run(&mut self, name: &str, why: impl Into<String>) {
        self.push(name, Outcome::NotRun(why.into()), 0);
    }

    /// Adds a measured value to the last step.
    pub fn seen(&mut self, what: impl Into<String>) {
        if let Some(step) = self.steps.last_mut() {
            step.seen = Some(what.into());
        }
    }

    /// Whether a step failed.
    pub fn failed(&self) -> bool {
        self.steps
            .iter()
            .any(|step| matches!(step.outcome, Outcome::Failed(_)))
    }

    fn push(&mut self, name: &str, outcome: Outcome, millis: u128) {
        self.steps.push(Step {
            name: name.to_owned(),
            outcome,
            seen: None,
            millis,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_step_does_not_fail_the_selftest_and_a_failed_step_does() {
        let mut log = Log::default();
        assert_eq!(log.step("one", || Ok(1)), Some(1));
        log.seen("1 of 1");
        log.not_run("two", "no program");
        assert!(!log.failed());
        assert_eq!(log.step("three", || Err::<(), _>("why".to_owned())), None);
        assert!(log.failed());
        let outcomes: Vec<_> = log.steps.iter().map(|step| step.outcome.clone()).collect();
        let not_run = Outcome::NotRun("no program".to_owned());
        assert_eq!(
            outcomes,
            [Outcome::Ok, not_run, Outcome::Failed("why".to_owned())]
        );
        let seen: Vec<_> = log.steps.iter().filter_map(|step| step.seen.as_deref()).collect();
        assert_eq!(seen, ["1 of 1"]);
    }
}
