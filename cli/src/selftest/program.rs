// SPDX-License-Identifier: Apache-2.0
//! Programs that the self-test runs.
//!
//! Invariant: no program runs longer than `TIMEOUT`.

use std::env;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Only a program that hangs takes this long.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Runs `command`; returns what it printed.
///
/// # Errors
/// The program cannot be started, fails, or times out. The error has its output.
pub fn run(command: &mut Command) -> Result<String, String> {
    let shown = format!("{command:?}").replace('"', "");
    let pipes = command.stdin(Stdio::null());
    let pipes = pipes.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = pipes.spawn().map_err(|e| format!("{shown}: {e}"))?;
    wait_for(child, &shown)
}

/// Waits for `child`; returns what it printed. `what` names it in errors.
///
/// # Errors
/// The program fails or times out. The error has its output.
pub fn wait_for(mut child: Child, what: &str) -> Result<String, String> {
    let start = Instant::now();
    let failed = |e: std::io::Error| format!("{what}: {e}");
    while child.try_wait().map_err(failed)?.is_none() {
        if start.elapsed() > TIMEOUT {
            // The program may have ended just now. Then there is nothing to kill.
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("{what}: timed out after {} s", TIMEOUT.as_secs()));
        }
        sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(format!("{what}: {}: {}", output.status, last_lines(&output)))
}

/// Whether the program is installed in a directory of `PATH`.
pub fn installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// The first line that a program prints, if it is installed and succeeds.
pub fn first_line(program: &str, words: &[&str]) -> Option<String> {
    let text = run(Command::new(program).args(words)).ok()?;
    text.lines().next().map(str::to_owned)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// The last lines of the output, since a CNI error has several lines of JSON.
fn last_lines(output: &Output) -> String {
    let both = format!("{}\n{}", text(&output.stdout), text(&output.stderr));
    let lines: Vec<_> = both
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    lines[lines.len().saturating_sub(12)..].join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_program_is_reported_with_its_output() {
        let error = run(Command::new("sh").args(["-c", "echo one; echo two >&2; exit 3"])).unwrap_err();
        assert!(
            error.contains("sh -c") && error.ends_with("exit status: 3: one two"),
            "{error}"
        );
        assert_eq!(run(Command::new("echo").arg("one")).as_deref(), Ok("one"));
        assert!(installed("sh") && !installed("no-such-program"));
    }
}
