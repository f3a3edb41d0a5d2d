// SPDX-License-Identifier: Apache-2.0
//! An API server and its etcd, as separate processes.

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use tempfile::TempDir;

/// An API server. It ends when this is dropped, or with the process.
#[derive(Debug)]
pub struct Server {
    dir: PathBuf,
}

/// The folder of `up` and `down`.
fn scripts() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl Server {
    /// Starts one, with nothing in it.
    pub fn start() -> Self {
        let pid = std::process::id().to_string();
        let kubeconfig = run(Command::new(scripts().join("up")).args(["--until-exit", &pid]));
        Self {
            dir: Path::new(&kubeconfig).parent().unwrap().to_owned(),
        }
    }

    /// Starts one and applies all of `conf/` that a cluster needs.
    pub async fn installed() -> Self {
        let server = Self::start();
        crate::install::all(&server).await;
        server
    }

    /// One for all tests of a program, with everything applied.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Server> = OnceLock::new();
        // On a thread of its own: the caller may be inside a runtime already.
        SHARED.get_or_init(|| {
            let start = || {
                let runtime = tokio::runtime::Runtime::new().unwrap();
                runtime.block_on(Self::installed())
            };
            std::thread::spawn(start).join().unwrap()
        })
    }

    /// The folder with its files, logs among them.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where it listens, on the loopback of the machine.
    pub fn port(&self) -> u16 {
        let file = self.dir.join("port");
        let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        text.trim().parse().unwrap()
    }

    /// The file that makes a client an administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// A client that may do everything.
    pub async fn admin(&self) -> Client {
        client(self.config()).await
    }

    /// A client with the identity of `token`.
    pub async fn with_token(&self, token: &str) -> Client {
        client(self.config_with(token)).await
    }

    fn config(&self) -> Kubeconfig {
        Kubeconfig::read_from(self.kubeconfig()).unwrap()
    }

    /// The administrator's configuration, with another token in it.
    pub fn config_with(&self, token: &str) -> Kubeconfig {
        let mut config = self.config();
        let user = serde_json::from_value(serde_json::json!({ "token": token })).unwrap();
        config.auth_infos[0].auth_info = Some(user);
        config
    }

    /// Both processes stop answering, with every connection open, until [`Server::resume`].
    pub fn freeze(&self) {
        let pid = self.pid("kube-apiserver");
        self.signal("kube-apiserver", Signal::SIGSTOP);
        // Until then a thread on another processor may still answer.
        let stopped = || {
            let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
            let stat = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("stat"));
            threads.flat_map(stat).all(|stat| stat.contains(") T "))
        };
        while !stopped() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Undoes [`Server::freeze`].
    pub fn resume(&self) {
        self.signal("kube-apiserver", Signal::SIGCONT);
    }

    /// Ends the API server at once; etcd stays, and with it what was stored.
    pub fn kill(&self) {
        let pid = self.pid("kube-apiserver");
        self.signal("kube-apiserver", Signal::SIGKILL);
        // Until then it may still respond; its parent may notice the end with some delay.
        let ended = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.map_or(true, |stat| stat.contains(") Z "))
        };
        while !ended() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts what has ended, with the same port, certificates and objects.
    pub fn start_again(&self) {
        run(Command::new(scripts().join("up")).arg(&self.dir));
    }

    /// Starts kube-controller-manager with these controllers alone, such as `pod-garbage-collector-controller`.
    pub fn start_controllers(&self, names: &[&str]) {
        let list = names.join(",");
        run(Command::new(scripts().join("up"))
            .args(["--controllers", &list])
            .arg(&self.dir));
    }

    /// Copies what etcd has stored, as a snapshot of its disk would: both processes stand still meanwhile.
    pub fn snapshot(&self) -> TempDir {
        let copy = tempfile::Builder::new().prefix("snapshot-").tempdir().unwrap();
        self.freeze();
        self.signal("etcd", Signal::SIGSTOP);
        run(Command::new("cp")
            .arg("-a")
            .arg(self.dir.join("etcd"))
            .arg(copy.path()));
        self.signal("etcd", Signal::SIGCONT);
        self.resume();
        copy
    }

    /// Restores the contents of etcd from `snapshot`, versions included, and starts both again.
    pub fn restore(&self, snapshot: &TempDir) {
        self.kill();
        let etcd = self.pid("etcd");
        self.signal("etcd", Signal::SIGKILL);
        while std::fs::read_to_string(format!("/proc/{etcd}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
            std::thread::sleep(Duration::from_millis(10));
        }
        std::fs::remove_dir_all(self.dir.join("etcd")).unwrap();
        run(Command::new("cp")
            .arg("-a")
            .arg(snapshot.path().join("etcd"))
            .arg(&self.dir));
        self.start_again();
    }

    /// The process id of `name`: `etcd`, `kube-apiserver` or `kube-controller-manager`.
    pub fn pid(&self, name: &str) -> Pid {
        let file = self.dir.join(name).with_extension("pid");
        let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        Pid::from_raw(text.trim().parse().unwrap())
    }

    fn signal(&self, name: &str, signal: Signal) {
        kill(self.pid(name), signal).unwrap_or_else(|e| panic!("{signal} to {name}: {e}"));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        run(Command::new(scripts().join("down")).arg(&self.dir));
    }
}

/// A client for `config`, whose requests fail after ten seconds.
pub async fn client(config: Kubeconfig) -> Client {
    let mut config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .unwrap();
    // A test must see each refusal, not the result of a retry.
    config.default_retry = false;
    config.read_timeout = Some(Duration::from_secs(10));
    Client::try_from(config).unwrap()
}
