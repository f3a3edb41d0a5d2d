// SPDX-License-Identifier: Apache-2.0
//! Alerts and dashboard of `conf/monitoring`, evaluated by Prometheus' own code (`tests/go/checks/promeval`) with what agents and
//! controllers serve, and the names of these metrics.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use tests::programs::checks;

/// What a Prometheus has scraped: a directory for each moment, with a file for each target.
pub struct Scrapes {
    dir: TempDir,
    moments: usize,
}

impl Default for Scrapes {
    fn default() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            moments: 0,
        }
    }
}

/// As [`Scrapes::alerts`], after one moment. No counter grows in it.
pub fn alerts_at_once(targets: &[(&str, String)]) -> Vec<String> {
    let mut scrapes = Scrapes::default();
    scrapes.add(targets);
    scrapes.alerts()
}

/// A line for each problem that Prometheus' linter (`tests/go/checks/promlint`) has with the metrics that the targets serve: the
/// metric and the problem. The targets are those of [`Scrapes::add`].
pub fn problems(targets: &[(&str, String)]) -> Vec<String> {
    let mut scrapes = Scrapes::default();
    let files = scrapes.write(targets);
    printed(Command::new(checks().join("promlint")).args(files))
}

/// The lines that a program prints. It must succeed.
fn printed(command: &mut Command) -> Vec<String> {
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text.lines().map(str::to_owned).collect()
}

impl Scrapes {
    /// Adds a moment, which counts as five minutes after the one before: the targets by name, each with its response to GET of
    /// `/metrics`.
    ///
    /// # Panics
    /// If Prometheus' linter finds a problem.
    pub fn add(&mut self, targets: &[(&str, String)]) {
        assert_eq!(problems(targets), [""; 0]);
        self.write(targets);
    }

    /// Writes a file for each target of a new moment, and returns their paths.
    fn write(&mut self, targets: &[(&str, String)]) -> Vec<PathBuf> {
        self.moments += 1;
        let moment = self.dir.path().join(self.moments.to_string());
        fs::create_dir(&moment).unwrap();
        let written = targets.iter().map(|(name, response)| {
            let path = moment.join(name);
            fs::write(&path, response).unwrap();
            path
        });
        written.collect()
    }

    /// A line for each alert that would fire at the last moment once it held long enough: its name and its summary.
    pub fn alerts(&self) -> Vec<String> {
        self.evaluate("alerts.yaml")
    }

    /// A line for each query of the dashboard: the number of series that it finds, and the title of its panel.
    pub fn panels(&self) -> Vec<String> {
        self.evaluate("dashboard.json")
    }

    fn evaluate(&self, file: &str) -> Vec<String> {
        let monitoring = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conf/monitoring");
        let moments = (1..=self.moments).map(|moment| self.dir.path().join(moment.to_string()));
        let mut command = Command::new(checks().join("promeval"));
        printed(command.arg(monitoring.join(file)).args(moments))
    }
}
