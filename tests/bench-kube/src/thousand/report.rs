// SPDX-License-Identifier: Apache-2.0
//! The numbers as Markdown: a row for each measurement, a column for each side.

use crate::pods::Outcome;
use crate::{AT_ONCE, Scale};
use bench::machine::describe;
use bench::table::Table;
use bench_kube::sides::Witness;
use bench_kube::witness::{Assignment, duplicates};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// The report of a run.
pub(crate) fn render(scale: Scale, outcomes: &[Outcome]) -> String {
    let mut table = Table::new(["", outcomes[0].title, outcomes[1].title, outcomes[2].title]);
    table.extend(rows(scale).into_iter().map(|(name, cell)| {
        let cells = outcomes.iter().map(cell);
        std::iter::once(name).chain(cells).collect()
    }));
    let mut text = format!(
        "{} pods on {} nodes, {AT_ONCE} calls at once on each node, at most {} s for the starts of a side.\nMachine: {}.\n\n{}",
        scale.pods,
        scale.nodes,
        scale.limit.as_secs(),
        describe(),
        table.render(),
    );
    for outcome in outcomes {
        for (error, count) in errors(outcome) {
            let _ = write!(text, "\n{}: {count} pods last failed with {error}", outcome.title);
        }
    }
    text
}

type Cell = Box<dyn Fn(&Outcome) -> String>;

/// The rows: each with its name and the text of an outcome's cell.
fn rows(scale: Scale) -> Vec<(String, Cell)> {
    let pods = usize::try_from(scale.pods).unwrap();
    let share = move |percent: usize| -> (String, Cell) {
        let name = match percent {
            100 => "s until the last pod has its address".to_owned(),
            _ => format!("s until {percent} % of the pods have an address"),
        };
        (
            name,
            Box::new(move |outcome| reached(&outcome.times, pods * percent / 100)),
        )
    };
    let row =
        |name: &str, cell: fn(&Outcome) -> String| -> (String, Cell) { (name.to_owned(), Box::new(cell)) };
    vec![
        row("addresses that may be allocated", |outcome| {
            outcome.addresses.to_string()
        }),
        row("load average before", |outcome| outcome.load.clone()),
        row("pods with an address", |outcome| outcome.given.len().to_string()),
        share(50),
        share(90),
        share(99),
        share(100),
        row("ADDs with an error, all repeated", |outcome| {
            outcome
                .starts
                .iter()
                .map(|pod| pod.refused)
                .sum::<usize>()
                .to_string()
        }),
        row("requests per pod for its start", |outcome| {
            per_pod(outcome, outcome.add_requests)
        }),
        row("addresses of two pods", |outcome| {
            let assignments: Vec<Assignment> = outcome
                .given
                .iter()
                .map(|given| given.assignment.clone())
                .collect();
            duplicates(&assignments).to_string()
        }),
        row("addresses without a record", |outcome| {
            sum(&outcome.witnesses, |witness| witness.difference.unrecorded)
        }),
        row("records of no address", |outcome| leaks(&outcome.witnesses)),
        row("s until all pods have ended", |outcome| seconds(outcome.ends)),
        row("DELs with an error", |outcome| outcome.refused_dels.to_string()),
        row("requests per pod for its end", |outcome| {
            per_pod(outcome, outcome.del_requests)
        }),
        row("records left after the last DEL", |outcome| {
            leaks(&outcome.at_once)
        }),
        row("records left when none was left, or after 60 s", |outcome| {
            leaks(&outcome.settled)
        }),
        row("s until then", |outcome| seconds(outcome.settling)),
    ]
}

/// The time of the pod with this number, in the order of their times.
fn reached(times: &[Duration], number: usize) -> String {
    times
        .get(number.max(1) - 1)
        .map_or("-".to_owned(), |time| seconds(*time))
}

fn seconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64())
}

fn per_pod(outcome: &Outcome, requests: usize) -> String {
    let number = |count: usize| f64::from(u32::try_from(count).unwrap());
    format!("{:.1}", number(requests) / number(outcome.starts.len()))
}

/// The leaked records, by place if there are any.
fn leaks(witnesses: &[Witness]) -> String {
    sum(witnesses, |witness| witness.difference.leaked)
}

/// The sum over all places. If it is not 0, the places follow.
fn sum(witnesses: &[Witness], count: fn(&Witness) -> usize) -> String {
    let total: usize = witnesses.iter().map(count).sum();
    let places = witnesses.iter().filter(|witness| count(witness) > 0);
    let places: Vec<String> = places
        .map(|witness| format!("{} in {}", count(witness), witness.name))
        .collect();
    if total == 0 {
        return total.to_string();
    }
    places.join(", ")
}

/// The last errors of all pods that had one, and their numbers.
fn errors(outcome: &Outcome) -> BTreeMap<String, usize> {
    let mut errors = BTreeMap::new();
    for pod in outcome.starts.iter().filter(|pod| pod.refused > 0) {
        let error: serde_json::Value = serde_json::from_str(&pod.error).unwrap_or_default();
        let text = format!("code {}: {}", error["code"], error["msg"]);
        *errors.entry(text).or_default() += 1;
    }
    errors
}
