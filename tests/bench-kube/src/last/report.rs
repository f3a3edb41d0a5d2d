// SPDX-License-Identifier: Apache-2.0
//! The numbers as Markdown.

use crate::pods::Started;
use bench::figures::{millis, number, quantile};
use bench::table::Table;
use bench_kube::gauge::Phase;
use std::fmt::Write;
use std::time::Duration;

/// The cost of filling a part of the pool.
pub(crate) struct Band {
    /// The number of addresses in use at its end.
    pub(crate) to: usize,
    pub(crate) calls: Vec<Started>,
    pub(crate) phase: Phase,
    /// The number of blocks at its end, and how many of them are shared.
    pub(crate) blocks: usize,
    pub(crate) shared: usize,
}

/// The behaviour of an exhausted pool.
pub(crate) struct Ends {
    /// The time from the last address until the status is exhausted.
    pub(crate) exhausted: Duration,
    pub(crate) refused: Vec<Duration>,
    /// The number of requests during the refusals, including all other requests of the agents.
    pub(crate) requests: usize,
    pub(crate) released: Vec<Duration>,
    /// The time from the first DEL until no block is shared.
    pub(crate) apart: Duration,
}

/// The table of the bands.
pub(crate) fn bands(bands: &[Band]) -> String {
    let mut table = Table::new([
        "addresses in use",
        "pods",
        "s",
        "p50 ms",
        "p99 ms",
        "longest ms",
        "ADDs per pod",
        "refused as exhausted",
        "requests per pod",
        "blocks",
        "of them shared",
    ]);
    table.extend(bands.iter().map(row));
    let mut text = table.render();
    text.push_str("\nThe requests of each:\n\n");
    for band in bands {
        let _ = writeln!(text, "- {}: {}", band.phase.name, band.phase.each_request());
    }
    text
}

fn row(band: &Band) -> Vec<String> {
    let times: Vec<Duration> = band.calls.iter().map(|pod| pod.time).collect();
    let calls: usize = band.calls.iter().map(|pod| pod.calls).sum();
    let pods = number(band.calls.len());
    vec![
        band.to.to_string(),
        band.calls.len().to_string(),
        format!("{:.1}", band.phase.time.as_secs_f64()),
        millis(quantile(&times, 50)),
        millis(quantile(&times, 99)),
        millis(quantile(&times, 100)),
        format!("{:.2}", number(calls) / pods),
        band.calls.iter().map(|pod| pod.wrong).sum::<usize>().to_string(),
        format!("{:.2}", number(band.phase.total()) / pods),
        band.blocks.to_string(),
        band.shared.to_string(),
    ]
}

/// The text about the exhausted pool.
pub(crate) fn ends(ends: &Ends) -> String {
    format!(
        "The pool said that it was exhausted {:.1} s after the last address was given. One more ADD on each of {} nodes was refused with \
         code 110 after {} ms in the median, {} ms at most, for {} requests. {} DELs took {} ms in the median, {} ms at most; no \
         block was shared any more {:.1} s after the first of them.\n",
        ends.exhausted.as_secs_f64(),
        ends.refused.len(),
        millis(quantile(&ends.refused, 50)),
        millis(quantile(&ends.refused, 100)),
        ends.requests,
        ends.released.len(),
        millis(quantile(&ends.released, 50)),
        millis(quantile(&ends.released, 100)),
        ends.apart.as_secs_f64(),
    )
}
