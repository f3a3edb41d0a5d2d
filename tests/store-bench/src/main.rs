// SPDX-License-Identifier: Apache-2.0
//! How long one ADD takes, as a whole process, on each candidate for rdma-ipam's store.
//!
//! Called as `store-bench [ROUNDS]` (default 200), or as `store-bench plugin PATH [ROUNDS]` for the rdma-ipam binary at
//! PATH itself, with its configuration read and its result written. Every candidate does the same work: look for the attachment,
//! find the next free address after a cursor, write lease, address and cursor. Candidates take turns within each
//! round, so that a slow moment of the machine meets all of them. Prints a table in Markdown.

mod backend;
mod measure;
mod plugin;

use backend::GROUPS;
use measure::{Sample, crowd, process};
use std::error::Error;
use std::path::Path;

/// Live leases before the first measured ADD.
pub const LIVE: [usize; 3] = [10, 1_000, 5_000];

/// Processes started at once.
const CROWD: usize = 50;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["add", kind, dir, key] => backend::open(kind, Path::new(dir))?
            .add(key)
            .map(|_| ())
            .and_then(|()| last_words()),
        ["fill", kind, dir, count] => backend::fill(kind, Path::new(dir), count.parse()?),
        ["nothing"] => last_words(),
        ["plugin", path] => plugin::run(Path::new(path), 200),
        ["plugin", path, rounds] => plugin::run(Path::new(path), rounds.parse()?),
        [] => run(200),
        [rounds] => run(rounds.parse()?),
        _ => Err("usage: store-bench [ROUNDS] | plugin PATH [ROUNDS]".into()),
    }
}

/// A child tells its peak memory.
fn last_words() -> Result<(), Box<dyn Error>> {
    println!("{}", measure::peak_kib()?);
    Ok(())
}

fn run(rounds: usize) -> Result<(), Box<dyn Error>> {
    println!(
        "| store | live | ADD median ms | p95 ms | peak memory MiB | {CROWD} at once, ms | on disk KiB |"
    );
    println!("|---|---|---|---|---|---|---|");
    let empty: Vec<Sample> = (0..rounds)
        .map(|_| process(&["nothing"]))
        .collect::<Result<_, _>>()?;
    println!(
        "| a process that does nothing | | {} | | |",
        measure::columns(&empty)
    );
    for kinds in GROUPS {
        for live in LIVE {
            group(kinds, live, rounds)?;
        }
    }
    Ok(())
}

/// Prints a line for each of `kinds`.
fn group(kinds: [&str; 4], live: usize, rounds: usize) -> Result<(), Box<dyn Error>> {
    let root = tempfile::tempdir_in(std::env::current_dir()?)?;
    for kind in kinds {
        let dir = root.path().join(kind);
        std::fs::create_dir(&dir)?;
        process(&["fill", kind, &dir.to_string_lossy(), &live.to_string()])?;
    }
    let mut samples = kinds.map(|_| Vec::new());
    for round in 0..rounds {
        for (kind, samples) in kinds.iter().zip(&mut samples) {
            let dir = root.path().join(kind);
            samples.push(process(&[
                "add",
                kind,
                &dir.to_string_lossy(),
                &format!("round-{round}@eth0"),
            ])?);
        }
    }
    for (kind, samples) in kinds.iter().zip(&samples) {
        let dir = root.path().join(kind);
        let words = |i| {
            [
                "add".into(),
                (*kind).into(),
                dir.display().to_string(),
                format!("crowd-{i}@eth0"),
            ]
        };
        let at_once = crowd(CROWD, words)?.as_secs_f64() * 1e3;
        let kib = measure::disk_use(&dir)? / 1024;
        println!(
            "| {kind} | {live} | {} | {at_once:.0} | {kib} |",
            measure::columns(samples)
        );
    }
    Ok(())
}
