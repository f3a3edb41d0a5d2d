// SPDX-License-Identifier: Apache-2.0
//! The controller of a test's cluster, as a separate process.
//!
//! Invariant: the controller has the token of its account and no other right. It ends with its API server.

use apiserver::identity::controller_token;
use apiserver::{Proxy, Server};
use kube::config::Kubeconfig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tests::programs::program;

/// Short times for tests: what takes minutes in a cluster takes one second.
const USUAL: [&str; 8] = [
    "--reconcile-interval",
    "200ms",
    "--report-interval",
    "500ms",
    "--observation-interval",
    "1s",
    "--log",
    "debug",
];

/// One replica of the controller.
pub struct Controller {
    name: String,
    dir: PathBuf,
    token: String,
    child: Mutex<Option<Child>>,
}

impl Controller {
    /// Creates the replica `name` of the controller of `server`, without starting it.
    pub async fn new(server: &Server, name: &str) -> Self {
        let name = format!("rdmanet-controller-{name}");
        let dir = server.dir().to_owned();
        // `tests/apiserver/down` identifies the process by this path.
        symlink(program("rdmanet-controller"), dir.join(&name)).unwrap();
        let token = controller_token(&server.admin().await, &name).await;
        Self {
            name,
            dir,
            token,
            child: Mutex::default(),
        }
    }

    /// Starts the replica. Its timeouts and intervals are about a second instead of minutes, unless `flags` set them.
    pub fn start(&self, server: &Server, flags: &[&str]) {
        self.start_with(&server.config_with(&self.token), flags);
    }

    /// Starts the replica behind `proxy`.
    pub fn start_behind(&self, proxy: &Proxy, server: &Server, flags: &[&str]) {
        self.start_with(&proxy.before(server.config_with(&self.token)), flags);
    }

    fn start_with(&self, config: &Kubeconfig, flags: &[&str]) {
        let file = self.dir.join(&self.name).with_extension("kubeconfig");
        std::fs::write(&file, serde_norway::to_string(config).unwrap()).unwrap();
        let starts = self.starts();
        let log = File::options().create(true).append(true).open(self.log_file());
        let usual = USUAL.chunks(2).filter(|pair| !flags.contains(&pair[0])).flatten();
        let child = Command::new(self.dir.join(&self.name))
            .env_clear()
            .env("KUBECONFIG", file)
            .args(["--identity", &self.name, "--listen", "127.0.0.1:0"])
            .args(usual)
            .args(flags)
            .arg("--short-quarantine-for-tests")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.unwrap())
            .spawn()
            .unwrap();
        let file = self.dir.join(&self.name).with_extension("pid");
        std::fs::write(file, child.id().to_string()).unwrap();
        let before = self.lock().replace(child);
        assert!(before.is_none(), "{} runs already", self.name);
        // Before its handler is installed, SIGTERM ends the process with a signal.
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.starts() == starts {
            assert!(
                Instant::now() < deadline,
                "{} does not start: {}",
                self.name,
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The number of times that the replica has logged that it listens.
    fn starts(&self) -> usize {
        self.log().matches("serving metrics and health").count()
    }

    /// The replica's name in the lease.
    pub fn identity(&self) -> &str {
        &self.name
    }

    /// Stops the replica as kubelet does. Returns whether it exited with status 0.
    pub fn stop(&self) -> bool {
        self.end(Signal::SIGTERM)
    }

    /// Kills the replica.
    pub fn kill(&self) {
        self.end(Signal::SIGKILL);
    }

    /// Freezes the replica with SIGSTOP until [`Self::thaw`].
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Continues a frozen replica.
    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// The log of the replica.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.dir.join(&self.name).with_extension("log")
    }

    fn signal(&self, signal: Signal) {
        let pid = self.lock().as_ref().expect("the controller runs").id();
        kill(Pid::from_raw(pid.cast_signed()), signal).unwrap();
    }

    fn end(&self, signal: Signal) -> bool {
        let Some(mut child) = self.lock().take() else {
            return false;
        };
        kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        child.wait().unwrap().success()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.end(Signal::SIGKILL);
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(40)..];
            eprint!("the last lines of {}:\n{}\n", self.name, last.join("\n"));
        }
    }
}
