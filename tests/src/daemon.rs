// SPDX-License-Identifier: Apache-2.0
//! A program that runs during a test, such as an agent.
//!
//! Invariant: dropping the value kills the program. If the test fails, the last lines of the log are printed.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The number of log lines that a failed test prints.
const LAST: usize = 40;

/// A program of a test, with its log.
#[derive(Debug)]
pub struct Daemon {
    name: String,
    log: PathBuf,
    child: Mutex<Option<Child>>,
}

impl Daemon {
    /// A program `name` that does not run yet. Each start appends to the file `log`.
    pub fn new(name: impl Into<String>, log: &Path) -> Self {
        Self {
            name: name.into(),
            log: log.to_owned(),
            child: Mutex::default(),
        }
    }

    /// Starts `command` with the log as standard error. Returns the process id.
    pub fn spawn(&self, command: &mut Command) -> u32 {
        let log = File::options().create(true).append(true).open(&self.log).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
        let id = child.id();
        let before = self.lock().replace(child);
        assert!(before.is_none(), "{} runs already", self.name);
        id
    }

    /// Whether the test started the program and has neither stopped nor killed it.
    pub fn is_started(&self) -> bool {
        self.lock().is_some()
    }

    /// Whether the started program exited by itself.
    pub fn has_ended(&self) -> bool {
        let mut started = self.lock();
        started
            .as_mut()
            .is_some_and(|child| child.try_wait().unwrap().is_some())
    }

    /// Stops the program as kubelet does. Returns whether it exited with status 0.
    pub fn stop(&self) -> bool {
        self.end(Signal::SIGTERM)
    }

    /// Kills the program and waits for its end.
    pub fn kill(&self) {
        self.end(Signal::SIGKILL);
    }

    /// Sends SIGKILL and does not wait for the end of the program.
    pub fn interrupt(&self) {
        self.signal(Signal::SIGKILL);
    }

    /// Freezes the program with SIGSTOP until [`Self::thaw`].
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Continues a frozen program.
    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// The log of the program.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the log contains `text`, for at most a minute.
    ///
    /// A program logs an effect after the API server or a file shows it, so a test that saw the effect still has to wait.
    pub fn wait_log(&self, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.log().contains(text) {
            assert!(
                Instant::now() < deadline,
                "{} did not log within a minute: {text}",
                self.name
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The last lines of the log, with the name of the program.
    pub fn last_words(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(LAST)..];
        format!("--- the last lines of {}:\n{}\n", self.name, last.join("\n"))
    }

    fn signal(&self, signal: Signal) {
        let started = self.lock();
        let child = started
            .as_ref()
            .unwrap_or_else(|| panic!("{} does not run", self.name));
        kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
    }

    fn end(&self, signal: Signal) -> bool {
        let Some(mut child) = self.lock().take() else {
            return false;
        };
        // After a wait, the process id may belong to another process.
        if child.try_wait().unwrap().is_none() {
            kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        }
        child.wait().unwrap().success()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprint!("{}", self.last_words());
        }
    }
}

/// The address in the last line of a daemon's `log` that has this sentence.
pub fn address(log: &str, sentence: &str) -> Option<String> {
    let line = log.lines().rev().find(|line| line.contains(sentence))?;
    let line: Value = serde_json::from_str(line).ok()?;
    Some(line["address"].as_str()?.to_owned())
}

/// The response to GET of `path` from the HTTP server at `address`, with its headers.
pub fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}
