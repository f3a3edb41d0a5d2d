// SPDX-License-Identifier: Apache-2.0
//! One call of a plugin as a process, and its result.

use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The time limit of a call. kubelet's own limit is four minutes to start a sandbox, and two to stop it.
pub const LIMIT: Duration = Duration::from_secs(240);

/// A prepared call of a plugin.
#[derive(Clone, Debug)]
pub struct Call {
    pub(crate) program: PathBuf,
    pub(crate) env: BTreeMap<String, OsString>,
    pub(crate) stdin: Vec<u8>,
    /// A program with arguments that runs the plugin; empty for a direct call.
    pub(crate) under: Vec<OsString>,
}

/// The result of a plugin call.
#[derive(Clone, Debug)]
pub struct Answer {
    what: String,
    /// The exit status.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// The duration of the call.
    pub took: Duration,
}

impl Call {
    /// A call of `program` with only `PATH` in its environment.
    pub fn new(program: &Path) -> Self {
        Self {
            program: program.to_owned(),
            env: BTreeMap::from([(
                "PATH".to_owned(),
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into(),
            )]),
            stdin: Vec::new(),
            under: Vec::new(),
        }
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.insert(name.to_owned(), value.into());
        self
    }

    /// Removes an environment variable.
    #[must_use]
    pub fn env_remove(mut self, name: &str) -> Self {
        self.env.remove(name);
        self
    }

    /// Replaces the bytes on standard input.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Adds the result of ADD to the configuration on standard input, as a runtime does for CHECK and DEL.
    #[must_use]
    pub fn prev_result(self, result: Value) -> Self {
        let mut conf: Value = serde_json::from_slice(&self.stdin).expect("a configuration on standard input");
        conf["prevResult"] = result;
        self.stdin(conf.to_string())
    }

    /// Runs the call and reads the output of the plugin and of its child processes.
    pub fn run(&self) -> Answer {
        let mut words = self.under.iter().cloned();
        let mut command = match words.next() {
            None => Command::new(&self.program),
            Some(first) => {
                let mut command = Command::new(first);
                command.args(words).arg(&self.program);
                command
            }
        };
        command
            .env_clear()
            .envs(&self.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let start = Instant::now();
        let mut child = command
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
        let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
        let mut stdin = child.stdin.take().unwrap();
        let output = thread::scope(|scope| {
            let (ended, watch) = mpsc::channel::<()>();
            // The write fails if a plugin exits before it has read everything.
            scope.spawn(move || stdin.write_all(&self.stdin));
            scope.spawn(move || {
                if watch.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
                    let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
                }
            });
            let output = child.wait_with_output().unwrap();
            drop(ended);
            output
        });
        self.answer(output.status, &output.stdout, &output.stderr, start.elapsed())
    }

    /// Runs the call and kills the process after `time`, unless it has ended. Its child processes continue.
    pub fn killed_after(&self, time: Duration) -> Answer {
        self.killed_when(|| thread::sleep(time))
    }

    /// Like [`Self::killed_after`], but kills the process once `file` exists.
    ///
    /// # Panics
    /// If the file does not exist in time.
    pub fn killed_once_exists(&self, file: &Path) -> Answer {
        let start = Instant::now();
        let answer = self.killed_when(|| {
            while !file.exists() && start.elapsed() < LIMIT {
                thread::sleep(Duration::from_millis(5));
            }
        });
        assert!(file.exists(), "{} does not exist: {answer}", file.display());
        answer
    }

    /// Runs the call for a caller that ends when `wait` returns: from then on nothing reads standard output. Then
    /// drops the value of `wait`.
    pub fn abandoned_when<T>(&self, wait: impl FnOnce() -> T) -> Answer {
        let mut stderr = tempfile::tempfile().unwrap();
        let start = Instant::now();
        let mut child = self.start(Stdio::piped(), &stderr);
        let held = wait();
        drop(child.stdout.take());
        drop(held);
        let status = child.wait().unwrap();
        self.answer(status, b"", &text_of(&mut stderr), start.elapsed())
    }

    /// Runs the call and kills the process when `wait` returns, unless it has ended.
    fn killed_when(&self, wait: impl FnOnce()) -> Answer {
        // Files instead of pipes, because a descendant that outlives the plugin inherits the streams.
        let [mut stdout, mut stderr] = std::array::from_fn(|_| tempfile::tempfile().unwrap());
        let start = Instant::now();
        let mut child = self.start(stdout.try_clone().unwrap().into(), &stderr);
        wait();
        // A process that has already ended is no error.
        let _ = child.kill();
        let status = child.wait().unwrap();
        self.answer(
            status,
            &text_of(&mut stdout),
            &text_of(&mut stderr),
            start.elapsed(),
        )
    }

    /// Starts the plugin, with a file for each stream but `stdout`.
    fn start(&self, stdout: Stdio, stderr: &File) -> Child {
        let mut stdin = tempfile::tempfile().unwrap();
        stdin
            .write_all(&self.stdin)
            .and_then(|()| stdin.rewind())
            .unwrap();
        let mut command = Command::new(&self.program);
        command
            .env_clear()
            .envs(&self.env)
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr.try_clone().unwrap());
        command
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"))
    }

    /// The result of this call.
    pub(crate) fn answer(&self, status: ExitStatus, stdout: &[u8], stderr: &[u8], took: Duration) -> Answer {
        let shown = |name: &str| self.env.get(name).cloned().unwrap_or_default();
        Answer {
            what: format!(
                "{} {} {} of {}",
                self.program.file_name().unwrap_or_default().display(),
                shown("CNI_COMMAND").display(),
                shown("CNI_IFNAME").display(),
                shown("CNI_CONTAINERID").display()
            ),
            status,
            stdout: String::from_utf8_lossy(stdout).into_owned(),
            stderr: String::from_utf8_lossy(stderr).into_owned(),
            took,
        }
    }
}

/// The bytes that a process wrote to `file`.
fn text_of(file: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut bytes)).unwrap();
    bytes
}

impl Answer {
    /// The result of a successful call.
    #[track_caller]
    pub fn result(&self) -> Value {
        assert!(
            self.status.success(),
            "{} failed, should have succeeded: {self}",
            self.what
        );
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|e| panic!("{} answered no single JSON document ({e}): {self}", self.what))
    }

    /// The addresses of an ADD that succeeded, without their prefix lengths.
    #[track_caller]
    pub fn addresses(&self) -> Vec<String> {
        let result = self.result();
        let ips = result["ips"].as_array().unwrap().iter();
        ips.map(|ip| {
            let cidr = ip["address"].as_str().unwrap();
            cidr.split('/').next().unwrap().to_owned()
        })
        .collect()
    }

    /// Asserts that the call succeeded without standard output, as every verb except ADD and VERSION does.
    #[track_caller]
    pub fn done(&self) {
        assert!(
            self.status.success(),
            "{} failed, should have succeeded: {self}",
            self.what
        );
        assert_eq!(
            self.stdout, "",
            "{}: standard output belongs to results: {self}",
            self.what
        );
    }

    /// Asserts that the call was refused with `code`, and that the message or the details contain every one of
    /// `pieces`. Returns the error document.
    #[track_caller]
    pub fn refused(&self, code: u64, pieces: &[&str]) -> Value {
        assert!(
            self.status.code() == Some(1),
            "{} ended with {}, should have been refused with code {code}: {self}",
            self.what,
            self.status
        );
        let error: Value = serde_json::from_str(&self.stdout)
            .unwrap_or_else(|e| panic!("{} answered no single JSON document ({e}): {self}", self.what));
        assert_eq!(
            error["code"], code,
            "{}: another code than {code}: {error}",
            self.what
        );
        let text = format!("{} {}", error["msg"], error["details"]);
        for piece in pieces {
            assert!(
                text.contains(piece),
                "{}: the message does not say {piece:?}: {error}",
                self.what
            );
        }
        error
    }

    /// Whether SIGKILL ended the plugin.
    pub fn was_killed(&self) -> bool {
        self.status.signal() == Some(9)
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} after {:?}; stdout: {:?}; stderr: {:?}",
            self.status,
            self.took,
            self.stdout.chars().take(2000).collect::<String>(),
            self.stderr.chars().take(2000).collect::<String>()
        )
    }
}
