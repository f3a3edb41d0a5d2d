// SPDX-License-Identifier: Apache-2.0
//! The report: what was tested, where, and the result of each step.
//!
//! Invariant: table and JSON have the same facts and steps.

use super::log::{Log, Outcome};
use super::port::Port;
use super::program::first_line;
use crate::args;
use crate::table::Table;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// A report.
#[derive(Debug)]
pub struct Report {
    facts: Vec<(&'static str, String)>,
    log: Log,
}

impl Report {
    /// Makes the report of the steps in `log` on `port`.
    pub fn of(port: &Port, options: &args::Selftest, log: Log) -> Self {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let shared = if port.shared { "shared" } else { "exclusive" };
        let facts = vec![
            ("rdmanet", env!("CARGO_PKG_VERSION").to_owned()),
            ("plugin", plugin(&options.plugins)),
            ("kernel", kernel.trim().to_owned()),
            ("OFED", or_none(first_line("ofed_info", &["-s"]))),
            ("master", port.master.clone()),
            (
                "RDMA device",
                or_none(port.rdma.as_ref().map(|rdma| rdma.device.clone())),
            ),
            (
                "link driver",
                or_none(first_line("ethtool", &["-i", &port.master])),
            ),
            ("children", or_none(port.way.map(|way| way.to_string()))),
            ("RDMA devices", shared.to_owned()),
        ];
        Self { facts, log }
    }

    /// Whether a step failed.
    pub fn failed(&self) -> bool {
        self.log.failed()
    }

    /// The report for people.
    pub fn text(&self) -> String {
        let mut facts = Table::new(&["FACT", "VALUE"]);
        for (name, value) in &self.facts {
            facts.row([(*name).to_owned(), value.clone()]);
        }
        let mut steps = Table::new(&["RESULT", "MS", "STEP"]);
        for step in &self.log.steps {
            let (result, why) = match &step.outcome {
                Outcome::Ok => ("ok", String::new()),
                Outcome::Failed(why) => ("FAILED", format!(": {why}")),
                Outcome::NotRun(why) => ("not run", format!(": {why}")),
            };
            let seen = step.seen.as_ref().map(|seen| format!(" ({seen})"));
            steps.row([
                result.to_owned(),
                step.millis.to_string(),
                format!("{}{}{why}", step.name, seen.unwrap_or_default()),
            ]);
        }
        let end = if self.failed() {
            "FAILED: attach this report to the bug"
        } else {
            "no step failed"
        };
        format!("{}\n{}\n{end}\n", facts.render(), steps.render())
    }

    /// The report for programs.
    pub fn json(&self) -> Value {
        let facts = self.facts.iter();
        let facts: serde_json::Map<String, Value> = facts
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        json!({ "node": facts, "steps": self.log.steps, "failed": self.failed() })
    }
}

/// The version line that the plugin prints outside a CNI call.
fn plugin(directory: &Path) -> String {
    let output = Command::new(directory.join("cni-ipoib"))
        .env_remove("CNI_COMMAND")
        .stdin(Stdio::null())
        .output();
    let printed = output
        .map(|output| String::from_utf8_lossy(&output.stderr).into_owned())
        .unwrap_or_default();
    let line = printed.lines().next().unwrap_or("prints no version");
    line.split(": ").next().unwrap_or(line).to_owned()
}
