// SPDX-License-Identifier: Apache-2.0
//! The start and the end of a pod's network, as kubelet and a container runtime call a plugin.
//!
//! A runtime that gets an error for ADD calls DEL for the same sandbox. Kubelet then starts another sandbox of the same
//! pod after 10 to 15 s. A DEL that failed is repeated. Source: `backOffPeriod` and
//! `workerBackOffPeriodJitterFactor` in `pkg/kubelet` of Kubernetes v1.37.1.

use crate::call::Answer;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The shortest pause after an error.
pub const BACK_OFF: Duration = Duration::from_secs(10);

/// The greatest random addition to [`BACK_OFF`], as a part of it.
const JITTER: f64 = 0.5;

/// The plugin and the clock that a pod's start uses.
pub trait Runtime {
    /// Calls ADD for `sandbox`. `None` if the node is busy with other pods until `deadline`.
    fn add(&self, sandbox: &str, deadline: Instant) -> Option<Answer>;

    /// Calls DEL for `sandbox`.
    fn del(&self, sandbox: &str) -> Answer;

    /// Waits.
    fn wait(&self, time: Duration);

    /// The time.
    fn now(&self) -> Instant;
}

/// The network of a pod after its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// The last sandbox.
    pub sandbox: String,
    /// Its address; `None` if the time limit passed.
    pub address: Option<IpAddr>,
    /// The end of the last call.
    pub at: Instant,
    /// The number of ADDs with an error.
    pub refused: usize,
    /// The error of the last of them.
    pub error: String,
}

/// Starts `pod`. It starts no sandbox after `deadline`.
pub fn start(pod: &str, deadline: Instant, runtime: &impl Runtime) -> Started {
    let (mut refused, mut error) = (0, String::new());
    loop {
        let sandbox = format!("{pod}-{refused}");
        let answer = runtime.add(&sandbox, deadline);
        let address = answer.as_ref().filter(|answer| answer.succeeded).map(address);
        let failed = answer.filter(|answer| !answer.succeeded);
        let mut given_up = address.is_none() && failed.is_none();
        if let Some(failed) = failed {
            (refused, error) = (refused + 1, failed.stdout);
            end(&sandbox, deadline, runtime);
            given_up = !waited(deadline, runtime);
        }
        if given_up || address.is_some() {
            return Started {
                sandbox,
                address,
                at: runtime.now(),
                refused,
                error,
            };
        }
    }
}

/// Ends `sandbox`. Returns the number of DELs with an error. It repeats no DEL after `deadline`.
pub fn end(sandbox: &str, deadline: Instant, runtime: &impl Runtime) -> usize {
    let mut refused = 0;
    while !runtime.del(sandbox).succeeded {
        refused += 1;
        if !waited(deadline, runtime) {
            break;
        }
    }
    refused
}

/// Waits as after an error. Returns false, without waiting, if the pause ends after `deadline`.
fn waited(deadline: Instant, runtime: &impl Runtime) -> bool {
    let pause = BACK_OFF + BACK_OFF.mul_f64(JITTER * fastrand::f64());
    let in_time = runtime.now() + pause < deadline;
    if in_time {
        runtime.wait(pause);
    }
    in_time
}

/// The address in the result of ADD, without its prefix.
fn address(answer: &Answer) -> IpAddr {
    let address = answer.address();
    let (address, _) = address.split_once('/').unwrap();
    address.parse().unwrap()
}

#[cfg(test)]
mod tests;
