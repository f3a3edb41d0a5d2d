// SPDX-License-Identifier: Apache-2.0
//! The report: Markdown with aligned tables, so that the same text is readable on the terminal and in the file.

use std::fs;
use std::time::{Duration, SystemTime};

use crate::attach::{self, Samples};
use crate::leases::{self, BURST, Level};
use crate::options::Options;
use crate::plugin::Programs;
use crate::process::Cost;
use crate::sides::{Pair, SIDES, Side};
use crate::stats::Summary;
use bench::figures::{millis, quantile};
use bench::machine;
use bench::table::Table;

#[cfg(test)]
mod tests;

const OPERATION: [&str; 9] = [
    "case",
    "op",
    "n",
    "median ms",
    "p95 ms",
    "min ms",
    "CPU ms",
    "peak MiB",
    "minor faults",
];
const RATIO: [&str; 6] = ["case", "op", "median", "min", "CPU", "peak memory"];

/// The measurements of one run.
pub(crate) struct Report<'a> {
    pub(crate) options: &'a Options,
    /// The description of the run's node.
    pub(crate) arena: String,
    pub(crate) programs: &'a Pair<Programs>,
    /// The load that other programs put on the machine, in percent of all processors.
    pub(crate) others_percent: u64,
    pub(crate) attach: attach::Measured,
    pub(crate) leases: leases::Measured,
}

impl Report<'_> {
    /// The whole report.
    pub(crate) fn render(&self) -> String {
        let mut ratios = Table::new(RATIO);
        let attach = self.attach_table(&mut ratios).render();
        let ipam = self.ipam_table(&mut ratios).render();
        format!(
            "{heading}\n\
             ### An attachment: macvlan link with an address\n\n{attach}\n\
             ### The IPAM plugin alone, by live leases\n\n{ipam}\n\
             ### {BURST} processes at once\n\n{bursts}\n\
             ### Ours divided by the reference's\n\n{ratios}{flatness}",
            heading = self.heading(),
            bursts = bursts(&self.leases.levels).render(),
            ratios = ratios.render(),
            flatness = flatness(&self.leases.levels),
        )
    }

    fn attach_table(&self, ratios: &mut Table) -> Table {
        let names = Pair {
            ours: "cni-ipoib + rdma-ipam",
            reference: "macvlan + host-local",
        };
        let mut operations = Table::new(OPERATION);
        add_samples(
            &mut operations,
            ratios,
            &self.attach.samples,
            &names.map(|&name| name.to_owned()),
        );
        operations.extend(floor(&self.attach.floor));
        operations
    }

    fn ipam_table(&self, ratios: &mut Table) -> Table {
        let mut operations = Table::new(OPERATION);
        for level in &self.leases.levels {
            add_samples(&mut operations, ratios, &level.single, &ipam_names(level.leases));
        }
        operations.extend(floor(&self.leases.floor));
        operations
    }

    fn heading(&self) -> String {
        let Options {
            runs, leases, seed, ..
        } = self.options;
        let levels: Vec<String> = leases.iter().map(ToString::to_string).collect();
        let sizes: Vec<String> = SIDES
            .iter()
            .flat_map(|&side| sizes(&self.programs[side]))
            .collect();
        format!(
            "## {date}\n\n\
             Machine: {machine}; {arena}. Other programs kept it {others} % busy during the run.\n\
             Command: `bench --bin DIR --peers DIR --runs {runs} --leases {levels} --seed {seed}`, one run, both \
             sides and the no-op in one random order.\n\
             Binaries: {sizes}.\n\n\
             Times are of whole processes with their delegates, from fork to exit. CPU is user and system time, peak \
             memory that of the larger of plugin and delegate (the largest sample); the no-op is a {linkage} \
             program that does nothing, and the least that can be measured.\n",
            linkage = if cfg!(target_feature = "crt-static") {
                "static"
            } else {
                "dynamically linked"
            },
            date = today(),
            machine = machine::describe(),
            arena = self.arena,
            others = self.others_percent,
            levels = levels.join(","),
            sizes = sizes.join(", "),
        )
    }
}

fn sizes(programs: &Programs) -> Vec<String> {
    let of = |program: &std::path::PathBuf| {
        let name = program
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        fs::metadata(program).map_or(format!("{name} of unknown size"), |file| {
            format!(
                "{name} {}.{} MB",
                file.len() / 1_000_000,
                file.len() / 100_000 % 10
            )
        })
    };
    vec![of(&programs.link), of(&programs.ipam)]
}

fn ipam_names(leases: usize) -> Pair<String> {
    Pair {
        ours: format!("rdma-ipam, {leases} leases"),
        reference: format!("host-local, {leases} leases"),
    }
}

fn add_samples(operations: &mut Table, ratios: &mut Table, samples: &Samples, names: &Pair<String>) {
    for (op, costs) in [("ADD", &samples.add), ("DEL", &samples.del)] {
        let summaries = costs.map(|costs| Summary::of(costs));
        for side in SIDES {
            operations.extend(summaries[side].map(|summary| operation(&names[side], op, &summary)));
        }
        if let Pair {
            ours: Some(ours),
            reference: Some(reference),
        } = summaries
        {
            let case = format!("{} / {}", names[Side::Ours], names[Side::Reference]);
            ratios.extend([ratio(case, op, &ours, &reference)]);
        }
    }
}

/// The row of the process that does nothing.
fn floor(costs: &[Cost]) -> Option<Vec<String>> {
    Summary::of(costs).map(|summary| operation("no-op", "exec", &summary))
}

fn operation(case: &str, op: &str, summary: &Summary) -> Vec<String> {
    vec![
        case.to_owned(),
        op.to_owned(),
        summary.samples.to_string(),
        millis(Some(summary.median)),
        millis(Some(summary.p95)),
        millis(Some(summary.min)),
        millis(Some(summary.cpu)),
        mebibytes(summary.peak_kib),
        summary.minor_faults.to_string(),
    ]
}

fn ratio(case: String, op: &str, ours: &Summary, reference: &Summary) -> Vec<String> {
    vec![
        case,
        op.to_owned(),
        quotient(ours.median, reference.median),
        quotient(ours.min, reference.min),
        quotient(ours.cpu, reference.cpu),
        divided(ours.peak_kib, reference.peak_kib),
    ]
}

fn bursts(levels: &[Level]) -> Table {
    let mut table = Table::new(["live leases", "op", "rdma-ipam ms", "host-local ms", "ratio"]);
    for level in levels {
        for (op, times) in [("ADD", &level.burst.add), ("DEL", &level.burst.del)] {
            if let Pair {
                ours: Some(ours),
                reference: Some(reference),
            } = times.map(|times| quantile(times, 50))
            {
                let ratio = quotient(ours, reference);
                let cells = [
                    level.leases.to_string(),
                    op.into(),
                    millis(Some(ours)),
                    millis(Some(reference)),
                    ratio,
                ];
                table.extend([cells.to_vec()]);
            }
        }
    }
    table
}

/// The ratio of ADD's duration on the fullest store to that on the emptiest.
fn flatness(levels: &[Level]) -> String {
    let [first, .., last] = levels else {
        return String::new();
    };
    let median_of = |level: &Level, side| Summary::of(&level.single.add[side]).map(|summary| summary.median);
    let growth = Pair::of(|side| Some(quotient(median_of(last, side)?, median_of(first, side)?)));
    let Pair {
        ours: Some(ours),
        reference: Some(reference),
    } = growth
    else {
        return String::new();
    };
    format!(
        "\nADD at {} leases takes {ours} times as long as at {} with rdma-ipam, {reference} times with host-local.\n",
        last.leases, first.leases,
    )
}

/// The date in UTC: year-month-day.
fn today() -> String {
    let now = humantime::format_rfc3339(SystemTime::now()).to_string();
    now.chars().take(10).collect()
}

fn mebibytes(kibibytes: u64) -> String {
    let hundredths = (kibibytes * 100 + 512) / 1024;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

fn quotient(ours: Duration, reference: Duration) -> String {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    divided(micros(ours), micros(reference))
}

/// `ours / reference` with two decimals; a dash if the divisor is zero.
fn divided(ours: u64, reference: u64) -> String {
    let hundredths = (u128::from(ours) * 100 + u128::from(reference / 2)).checked_div(u128::from(reference));
    hundredths.map_or("-".into(), |hundredths| {
        format!("{}.{:02}", hundredths / 100, hundredths % 100)
    })
}
