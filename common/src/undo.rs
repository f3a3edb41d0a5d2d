// SPDX-License-Identifier: Apache-2.0
//! Undoes completed steps, unless the whole work succeeds.
//!
//! Invariant: steps are undone in reverse order, each exactly once. A step that fails or panics does not stop
//! the others. `Drop` undoes work that ends early (`?`, a panic).

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A transaction over `C`: each effect registers the step that undoes it.
pub struct Undo<'c, C> {
    target: &'c mut C,
    steps: Vec<Step<'c, C>>,
}

/// Undoes one effect, or returns the reason why it could not.
type Back<'c, C> = Box<dyn FnOnce(&mut C) -> Result<(), String> + 'c>;

struct Step<'c, C> {
    name: Cow<'static, str>,
    back: Back<'c, C>,
}

/// A step that could not be undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotUndone {
    /// The name of the step, e.g. `delete the link net1`.
    pub step: String,
    /// The error and its causes.
    pub reason: String,
}

impl Display for NotUndone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.step, self.reason)
    }
}

impl<'c, C> Undo<'c, C> {
    /// Starts a transaction over `target`.
    pub fn new(target: &'c mut C) -> Self {
        Self {
            target,
            steps: Vec::new(),
        }
    }

    /// The object that the effects work on, for effects that need no undo.
    pub fn target(&mut self) -> &mut C {
        self.target
    }

    /// Registers an undo step. `name` completes the sentence "cannot {name}".
    ///
    /// Call it *before* an effect that may half succeed, such as a delegate that is killed at its time limit.
    /// The step must then succeed if there is nothing to undo.
    pub fn remember<E: Display>(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        back: impl FnOnce(&mut C) -> Result<(), E> + 'c,
    ) {
        let back = Box::new(|target: &mut C| back(target).map_err(|error| error.to_string()));
        self.steps.push(Step {
            name: name.into(),
            back,
        });
    }

    /// Keeps every effect.
    pub fn commit(mut self) {
        self.steps.clear();
    }

    /// Undoes every effect now. Returns the failures in the order of the attempts.
    pub fn rollback(mut self) -> Vec<NotUndone> {
        self.take_back()
    }

    fn take_back(&mut self) -> Vec<NotUndone> {
        let mut failures = Vec::new();
        while let Some(Step { name, back }) = self.steps.pop() {
            // A second panic during an unwind would abort the process and with it the remaining steps.
            let outcome = catch_unwind(AssertUnwindSafe(|| back(self.target)))
                .unwrap_or_else(|_| Err("panicked; this is a bug".to_owned()));
            if let Err(reason) = outcome {
                failures.push(NotUndone {
                    step: name.into_owned(),
                    reason,
                });
            }
        }
        failures
    }
}

impl<C> Drop for Undo<'_, C> {
    fn drop(&mut self) {
        for failure in self.take_back() {
            tracing::error!(step = %failure.step, error = %failure.reason, "cannot undo a step");
        }
    }
}

#[cfg(test)]
mod tests;
