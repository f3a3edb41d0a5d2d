// SPDX-License-Identifier: Apache-2.0
//! The controller of a test's cluster, as a separate process.
//!
//! Invariant: the controller has the token of its account and no other right. It ends with its API server.

use apiserver::identity::controller_token;
use apiserver::{Proxy, Server};
use kube::config::Kubeconfig;
use std::ops::Deref;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use tests::Daemon;
use tests::daemon;
use tests::version::{Version, environment};

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
    version: Version,
    process: Daemon,
}

/// The process of the replica: `controller.stop()`, `controller.log()`.
impl Deref for Controller {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.process
    }
}

impl Controller {
    /// Creates the replica `name` of the controller of `server`, without starting it.
    pub async fn new(server: &Server, name: &str) -> Self {
        Self::of(Version::Today, server, name).await
    }

    /// Like [`Self::new`], with the program of `version`.
    pub async fn of(version: Version, server: &Server, name: &str) -> Self {
        let name = format!("rdmanet-controller-{name}");
        let dir = server.dir().to_owned();
        // `tests/apiserver/down` identifies the process by this path.
        symlink(version.program("rdmanet-controller"), dir.join(&name)).unwrap();
        let token = controller_token(&server.admin().await, &name).await;
        Self {
            process: Daemon::new(name.as_str(), &dir.join(&name).with_extension("log")),
            name,
            dir,
            token,
            version,
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
        let usual = USUAL.chunks(2).filter(|pair| !flags.contains(&pair[0])).flatten();
        let mut command = Command::new(self.dir.join(&self.name));
        command.env_clear().env("KUBECONFIG", file).args([
            "--identity",
            &self.name,
            "--listen",
            "127.0.0.1:0",
        ]);
        let flags: Vec<String> = usual.chain(flags).map(|flag| (*flag).to_owned()).collect();
        match self.version {
            Version::Today => command.args(&flags).arg("--short-quarantine-for-tests"),
            // A flag of today may be unknown to the earlier program.
            Version::Earlier => command
                .envs(environment(&flags))
                .arg("--short-quarantine-for-tests"),
        };
        let id = self.process.spawn(&mut command);
        let file = self.dir.join(&self.name).with_extension("pid");
        std::fs::write(file, id.to_string()).unwrap();
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
        let log = self.log();
        // The second sentence is that of versions before 23 November 2026.
        let sentences = ["serving metrics and health", "the controller listens"];
        sentences
            .iter()
            .map(|sentence| log.matches(sentence).count())
            .sum()
    }

    /// The response of the replica to GET of `path`, with its headers.
    pub fn get(&self, path: &str) -> String {
        let address = daemon::address(&self.log(), "serving metrics and health");
        daemon::get(&address.expect("the controller listens"), path)
    }

    /// The replica's name in the lease.
    pub fn identity(&self) -> &str {
        &self.name
    }
}
