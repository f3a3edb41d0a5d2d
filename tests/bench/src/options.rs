// SPDX-License-Identifier: Apache-2.0
//! The command line.

use clap::Parser;
use std::path::PathBuf;

#[cfg(test)]
mod tests;

/// The highest number of leases for which the benchmark's /16 also has room for a burst and addresses in cooldown.
const MOST_LEASES: usize = 30_000;

/// Measures cni-ipoib and rdma-ipam beside the reference macvlan and host-local plugins.
///
/// Runs as root. Everything happens in namespaces and a temporary directory (TMPDIR chooses the file system) of its own.
#[derive(Debug, PartialEq, Parser)]
pub(crate) struct Options {
    /// Directory that holds cni-ipoib and rdma-ipam
    #[arg(long, value_name = "DIR")]
    pub(crate) bin: PathBuf,
    /// Directory that holds macvlan and host-local (tests/go/build macvlan host-local)
    #[arg(long, value_name = "DIR")]
    pub(crate) peers: PathBuf,
    /// Samples of each operation on each side
    #[arg(long, value_name = "N", default_value = "100", value_parser = samples)]
    pub(crate) runs: usize,
    /// Live leases at which the IPAM plugins are measured, ascending
    #[arg(long, value_name = "LIST", default_value = "10,1000,5000", value_parser = ascending)]
    pub(crate) leases: Levels,
    /// Repeats the random order of an earlier run
    #[arg(long, value_name = "N", default_value_t = fastrand::u64(..), hide_default_value = true)]
    pub(crate) seed: u64,
    /// Also writes the report to FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
}

/// Numbers of leases, ascending.
pub(crate) type Levels = Vec<usize>;

fn samples(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("0 samples measure nothing".to_owned()),
        Ok(count) => Ok(count),
        Err(error) => Err(error.to_string()),
    }
}

fn ascending(text: &str) -> Result<Levels, String> {
    let levels: Result<Levels, _> = text.split(',').map(str::parse).collect();
    let levels = levels.map_err(|error| error.to_string())?;
    if !levels.is_sorted_by(|lower, upper| lower < upper) {
        return Err("the list does not ascend: levels are filled one on the other".to_owned());
    }
    if levels.last().is_some_and(|&most| most > MOST_LEASES) {
        return Err(format!("a level exceeds {MOST_LEASES}: the pool is a /16"));
    }
    Ok(levels)
}
