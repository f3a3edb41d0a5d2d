// SPDX-License-Identifier: Apache-2.0
//! Processes, timed from start to end.

use std::error::Error;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// One process' life.
#[derive(Clone, Copy)]
pub struct Sample {
    /// From before its start to after its end.
    pub elapsed: Duration,
    /// Its peak memory; zero if it did not tell.
    pub peak_kib: u64,
}

fn spawn<S: AsRef<std::ffi::OsStr>>(words: &[S]) -> io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
}

/// Runs this program with `words` and tells how long it took; it must succeed.
pub fn process(words: &[&str]) -> Result<Sample, Box<dyn Error>> {
    let start = Instant::now();
    let mut child = spawn(words)?;
    let peak_kib = wait(&mut child)?;
    Ok(Sample {
        elapsed: start.elapsed(),
        peak_kib,
    })
}

/// Starts `count` processes at once and tells how long it takes until the last has ended.
pub fn crowd(count: usize, words: impl Fn(usize) -> [String; 4]) -> Result<Duration, Box<dyn Error>> {
    let start = Instant::now();
    let mut children = (0..count)
        .map(|i| spawn(&words(i)))
        .collect::<Result<Vec<_>, _>>()?;
    children
        .iter_mut()
        .try_for_each(|child| wait(child).map(|_| ()))?;
    Ok(start.elapsed())
}

/// Waits for `child`; the kernel's own count of its peak memory starts from its parent's, hence `wait4` will not do
/// and the child's last words are its `VmHWM`.
fn wait(child: &mut Child) -> Result<u64, Box<dyn Error>> {
    let mut said = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut said)?;
    }
    let status = child.wait()?;
    if !status.success() {
        return Err(format!("{status}: {said}").into());
    }
    Ok(said.trim().parse().unwrap_or_default())
}

/// Median, p95 and the largest peak memory, as columns of a table.
pub fn columns(samples: &[Sample]) -> String {
    let mut times: Vec<Duration> = samples.iter().map(|s| s.elapsed).collect();
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e3;
    let peak = samples.iter().map(|s| s.peak_kib).max().unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let peak = peak as f64 / 1024.0;
    format!("{:.2} | {:.2} | {peak:.1}", at(50), at(95))
}

/// Bytes that a directory takes on its disk; a file with several names counts once.
pub fn disk_use(dir: &Path) -> io::Result<u64> {
    let mut seen = std::collections::HashSet::new();
    let mut open = vec![dir.to_owned()];
    let mut sum = 0;
    while let Some(path) = open.pop() {
        let meta = std::fs::symlink_metadata(&path)?;
        if seen.insert(meta.ino()) {
            sum += meta.blocks() * 512;
        }
        if meta.is_dir() {
            for entry in std::fs::read_dir(&path)? {
                open.push(entry?.path());
            }
        }
    }
    Ok(sum)
}

/// This process' peak memory in KiB, as proc(5) has it.
pub fn peak_kib() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    Ok(line
        .and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or_default())
}
