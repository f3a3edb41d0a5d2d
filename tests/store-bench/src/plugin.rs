// SPDX-License-Identifier: Apache-2.0
//! The plugin itself, called as a runtime calls it.

use crate::LIVE;
use crate::measure::{Sample, columns};
use nix::sys::resource::{UsageWho, getrusage};
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Prints how long ADD and DEL take with more and more live leases.
pub fn run(binary: &Path, rounds: usize) -> Result<(), Box<dyn Error>> {
    println!(
        "| live | ADD median ms | p95 ms | ADD again median ms | p95 ms | DEL median ms | p95 ms | peak memory MiB |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for live in LIVE {
        let dir = tempfile::tempdir_in(std::env::current_dir()?)?;
        let conf = format!(
            r#"{{"cniVersion":"1.1.0","name":"bench","ipam":{{"type":"rdma-ipam","subnet":"10.0.0.0/16","dataDir":{:?}}}}}"#,
            dir.path()
        );
        (0..live).try_for_each(|i| call(binary, "ADD", &format!("live-{i}"), &conf).map(|_| ()))?;
        let (mut add, mut again, mut del) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..rounds {
            let id = format!("round-{round}");
            add.push(call(binary, "ADD", &id, &conf)?);
            again.push(call(binary, "ADD", &id, &conf)?);
            del.push(call(binary, "DEL", &id, &conf)?);
        }
        let times = [add, again, del].map(|samples| {
            columns(&samples)
                .rsplit_once(" | ")
                .map(|(times, _)| times.to_owned())
        });
        let times: Vec<String> = times.into_iter().flatten().collect();
        // The largest of all children so far, and never less than what this process has itself.
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let peak = getrusage(UsageWho::RUSAGE_CHILDREN)?.max_rss() as f64 / 1024.0;
        println!("| {live} | {} | {peak:.1} |", times.join(" | "));
    }
    Ok(())
}

fn call(binary: &Path, verb: &str, id: &str, conf: &str) -> Result<Sample, Box<dyn Error>> {
    let mut command = Command::new(binary);
    command
        .env_clear()
        .env("CNI_COMMAND", verb)
        .env("CNI_CONTAINERID", id)
        .env("CNI_IFNAME", "net1");
    command
        .env("CNI_NETNS", "/run/netns/none")
        .env("CNI_PATH", "/opt/cni/bin");
    let start = Instant::now();
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(conf.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    let elapsed = start.elapsed();
    if !output.status.success() {
        return Err(format!("{verb} {id}: {}", String::from_utf8_lossy(&output.stdout)).into());
    }
    Ok(Sample { elapsed, peak_kib: 0 })
}
