// SPDX-License-Identifier: Apache-2.0
//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};

#[cfg(test)]
mod tests;

pub(crate) const USAGE: &str = "\
Measures cni-ipoib and rdma-ipam beside the reference macvlan and host-local plugins.

bench --bin DIR --peers DIR [--runs N] [--leases LIST] [--seed N] [--markdown FILE]

  --bin DIR        folder that holds cni-ipoib and rdma-ipam
  --peers DIR      folder that holds macvlan and host-local (tests/go/build macvlan host-local)
  --runs N         samples of each operation on each side (default 100)
  --leases LIST    live leases at which the IPAM plugins are measured, ascending (default 10,1000,5000)
  --seed N         repeats the random order of an earlier run
  --markdown FILE  also writes the report to FILE

Runs as root. Everything happens in namespaces and a temporary directory (TMPDIR chooses the file system) of its own.
";

/// The command line.
#[derive(Debug)]
pub(crate) enum Command {
    Usage,
    Measure(Options),
}

/// One run.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) bin: PathBuf,
    pub(crate) peers: PathBuf,
    pub(crate) runs: usize,
    pub(crate) leases: Vec<usize>,
    pub(crate) seed: u64,
    pub(crate) markdown: Option<PathBuf>,
}

/// The highest number of leases for which the benchmark's /16 also has room for a burst and addresses in cooldown.
const MOST_LEASES: usize = 30_000;

/// Parses the arguments after the program's name.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command> {
    let mut args = args.into_iter();
    let (mut bin, mut peers, mut markdown) = (None, None, None);
    let (mut runs, mut leases, mut seed) = (100, vec![10, 1000, 5000], None);
    while let Some(arg) = args.next() {
        let option = arg.to_string_lossy().into_owned();
        if option == "--help" || option == "-h" {
            return Ok(Command::Usage);
        }
        let mut value = || {
            args.next()
                .ok_or_else(|| Error::Usage(format!("{option} needs a value")))
        };
        match option.as_str() {
            "--bin" => bin = Some(PathBuf::from(value()?)),
            "--peers" => peers = Some(PathBuf::from(value()?)),
            "--markdown" => markdown = Some(PathBuf::from(value()?)),
            "--runs" => runs = number(&option, &value()?)?,
            "--seed" => seed = Some(number(&option, &value()?)?),
            "--leases" => leases = ascending(&value()?)?,
            _ => return Err(Error::Usage(format!("unknown argument '{option}'"))),
        }
    }
    if runs == 0 {
        return Err(Error::Usage("--runs 0 measures nothing".into()));
    }
    Ok(Command::Measure(Options {
        bin: bin.ok_or_else(|| Error::Usage("--bin DIR is missing".into()))?,
        peers: peers.ok_or_else(|| Error::Usage("--peers DIR is missing".into()))?,
        runs,
        leases,
        seed: seed.unwrap_or_else(arbitrary_seed),
        markdown,
    }))
}

fn number<N: std::str::FromStr>(option: &str, value: &OsString) -> Result<N> {
    let text = value.to_string_lossy();
    text.parse()
        .map_err(|_| Error::Usage(format!("{option} '{text}' is not a whole number")))
}

fn ascending(value: &OsString) -> Result<Vec<usize>> {
    let text = value.to_string_lossy();
    let levels: Vec<usize> = text
        .split(',')
        .map(|level| number("--leases", &level.into()))
        .collect::<Result<_>>()?;
    if !levels.is_sorted_by(|lower, upper| lower < upper) {
        return Err(Error::Usage(format!(
            "--leases '{text}' does not ascend: levels are filled one on the other"
        )));
    }
    if levels.last().is_some_and(|&most| most > MOST_LEASES) {
        return Err(Error::Usage(format!(
            "--leases '{text}' exceeds {MOST_LEASES}: the pool is a /16"
        )));
    }
    Ok(levels)
}

fn arbitrary_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs() ^ u64::from(now.subsec_nanos())
}
