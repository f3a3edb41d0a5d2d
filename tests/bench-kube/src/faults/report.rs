// SPDX-License-Identifier: Apache-2.0
//! The numbers as Markdown: a row for each fault and side.

use bench::machine::describe_with_load;
use bench::table::Table;
use std::time::Duration;

/// What a fault left.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) fault: &'static str,
    pub(crate) side: &'static str,
    pub(crate) pods: usize,
    /// Pods that got the address of a living pod.
    pub(crate) duplicates: usize,
    /// Pods that got no address by all their ADDs.
    pub(crate) without: usize,
    /// Leaked addresses after [`crate::SETTLE`].
    pub(crate) soon: usize,
    /// Leaked addresses after [`crate::COLLECTION`].
    pub(crate) late: usize,
    /// The time from the end of the fault until no address was leaked, or until `late`.
    pub(crate) cleaned: Duration,
    /// Leaked addresses after the run of a cleaner with a schedule. `None` if the side has no such cleaner.
    pub(crate) scheduled: Option<usize>,
    /// Addresses of the pods on a lost node that have no record in the end.
    pub(crate) exposed: usize,
}

/// The table of all outcomes, below the seed and the machine.
pub(crate) fn render(pods: usize, seed: u64, outcomes: &[Outcome]) -> String {
    let mut table = Table::new([
        "fault",
        "side",
        "pods",
        "duplicates",
        "pods without address",
        "leaked after 15 s",
        "leaked after 180 s",
        "s until then",
        "leaked after ip-reconciler",
        "free on a lost node",
    ]);
    table.extend(outcomes.iter().map(|outcome| {
        vec![
            outcome.fault.to_owned(),
            outcome.side.to_owned(),
            outcome.pods.to_string(),
            outcome.duplicates.to_string(),
            outcome.without.to_string(),
            outcome.soon.to_string(),
            outcome.late.to_string(),
            outcome.cleaned.as_secs().to_string(),
            outcome
                .scheduled
                .map_or("-".to_owned(), |leaked| leaked.to_string()),
            outcome.exposed.to_string(),
        ]
    }));
    let machine = describe_with_load();
    format!(
        "{pods} pods for each fault, seed {seed}. {machine}\n\n{}",
        table.render()
    )
}
