// SPDX-License-Identifier: Apache-2.0
//! The numbers as Markdown.

use crate::crowd::Crowd;
use bench_kube::gauge::Phase;
use std::fmt::Write;

/// The table of the phases with `agents` agents.
pub(crate) fn phases(phases: &[Phase], agents: usize) -> String {
    let mut text = String::from(
        "| what happens | s | requests | per agent | a second | MB of answers | MB of watch events | CPU s, API server | etcd | memory MiB, API server | etcd | etcd's file | all agents | watches it gave up |\n\
         | --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |\n",
    );
    for phase in phases {
        let (time, total) = (phase.time.as_secs_f64(), number(phase.total()));
        let _ = writeln!(
            text,
            "| {} | {time:.1} | {} | {:.2} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {} | {} | {} | {} | {} |",
            phase.name,
            phase.total(),
            total / number(agents),
            total / time,
            phase.answers,
            phase.watches,
            phase.server_cpu.as_secs_f64(),
            phase.etcd_cpu.as_secs_f64(),
            phase.server_rss,
            phase.etcd_rss,
            phase.etcd_file,
            phase.own_rss,
            phase.ended,
        );
    }
    text.push_str("\nThe requests of each:\n\n");
    for phase in phases.iter().filter(|phase| phase.total() > 0) {
        let each: Vec<String> = phase
            .requests
            .iter()
            .map(|(what, n)| format!("{n} {what}"))
            .collect();
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
        let _ = writeln!(text, "- {}: {}{refused}", phase.name, each.join(", "));
    }
    text
}

/// The table of the crowds.
pub(crate) fn crowds(crowds: &[Crowd]) -> String {
    let mut text = String::from(
        "| full before | nodes that claim at once | s | conflicts per claim | lists of names per claim | requests per claim |\n\
         | --: | --: | --: | --: | --: | --: |\n",
    );
    for crowd in crowds {
        let nodes = number(crowd.nodes);
        let _ = writeln!(
            text,
            "| {} % | {} | {:.1} | {:.2} | {:.2} | {:.1} |",
            crowd.full,
            crowd.nodes,
            crowd.phase.time.as_secs_f64(),
            number(crowd.conflicts) / nodes,
            number(crowd.lists) / nodes,
            number(crowd.phase.total()) / nodes,
        );
    }
    text
}

fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}
