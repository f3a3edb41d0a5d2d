// SPDX-License-Identifier: Apache-2.0
//! The numbers as Markdown.

use crate::crowd::Crowd;
use bench::figures::number;
use bench::table::Table;
use bench_kube::gauge::Phase;
use std::fmt::Write;

/// The table of the phases with `agents` agents.
pub(crate) fn phases(phases: &[Phase], agents: usize) -> String {
    let mut table = Table::new([
        "what happens",
        "s",
        "requests",
        "per agent",
        "a second",
        "MB of answers",
        "MB of watch events",
        "CPU s, API server",
        "etcd",
        "memory MiB, API server",
        "etcd",
        "etcd's file",
        "all agents",
        "watches it gave up",
    ]);
    table.extend(phases.iter().map(|phase| {
        let (time, total) = (phase.time.as_secs_f64(), number(phase.total()));
        vec![
            phase.name.clone(),
            format!("{time:.1}"),
            phase.total().to_string(),
            format!("{:.2}", total / number(agents)),
            format!("{:.1}", total / time),
            format!("{:.1}", phase.answers),
            format!("{:.1}", phase.watches),
            format!("{:.1}", phase.server_cpu.as_secs_f64()),
            format!("{:.1}", phase.etcd_cpu.as_secs_f64()),
            phase.server_rss.to_string(),
            phase.etcd_rss.to_string(),
            phase.etcd_file.to_string(),
            phase.own_rss.to_string(),
            phase.ended.to_string(),
        ]
    }));
    let mut text = table.render();
    text.push_str("\nThe requests of each:\n\n");
    for phase in phases.iter().filter(|phase| phase.total() > 0) {
        let refused: Vec<String> = phase
            .refused
            .iter()
            .map(|(code, n)| format!("{n} with {code}"))
            .collect();
        let refused = if refused.is_empty() {
            String::new()
        } else {
            format!("; refused: {}", refused.join(", "))
        };
        let _ = writeln!(text, "- {}: {}{refused}", phase.name, phase.each_request());
    }
    text
}

/// The table of the crowds.
pub(crate) fn crowds(crowds: &[Crowd]) -> String {
    let mut table = Table::new([
        "full before, %",
        "nodes that claim at once",
        "s",
        "conflicts per claim",
        "lists of names per claim",
        "requests per claim",
    ]);
    table.extend(crowds.iter().map(|crowd| {
        let nodes = number(crowd.nodes);
        vec![
            crowd.full.to_string(),
            crowd.nodes.to_string(),
            format!("{:.1}", crowd.phase.time.as_secs_f64()),
            format!("{:.2}", number(crowd.conflicts) / nodes),
            format!("{:.2}", number(crowd.lists) / nodes),
            format!("{:.1}", number(crowd.phase.total()) / nodes),
        ]
    }));
    table.render()
}
