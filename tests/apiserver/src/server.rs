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

/// An API server. It ends when the value is dropped, or with the process.
#[derive(Debug)]
pub struct Server {
    dir: PathBuf,
}

/// The directory of the scripts `up` and `down`.
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
    /// Starts a server without objects.
    pub fn start() -> Self {
        let pid = std::process::id().to_string();
        let kubeconfig = run(Command::new(scripts().join("up")).args(["--until-exit", &pid]));
        Self {
            dir: Path::new(&kubeconfig).parent().unwrap().to_owned(),
        }
    }

    /// Starts a server and applies the manifests of `conf/` that a cluster needs.
    pub async fn installed() -> Self {
        let server = Self::start();
        crate::install::all(&server).await;
        server
    }

    /// The server that all tests of a program share, with all manifests applied.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Server> = OnceLock::new();
        // In a separate thread, because the caller may be inside a runtime.
        SHARED.get_or_init(|| {
            let start = || {
                let runtime = tokio::runtime::Runtime::new().unwrap();
                runtime.block_on(Self::installed())
            };
            std::thread::spawn(start).join().unwrap()
        })
    }

    /// The directory of the server's files and logs.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The server's port on the loopback of the machine.
    pub fn port(&self) -> u16 {
        let file = self.dir.join("port");
        let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        text.trim().parse().unwrap()
    }

    /// The kubeconfig of an administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// A client with all rights.
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

    /// The administrator's configuration with another token.
    pub fn config_with(&self, token: &str) -> Kubeconfig {
        let mut config = self.config();
        let user = serde_json::from_value(serde_json::json!({ "token": token })).unwrap();
        config.auth_infos[0].auth_info = Some(user);
        config
    }

    /// Stops both processes with SIGSTOP until [`Server::resume`]. Connections stay open and get no response.
    pub fn freeze(&self) {
        let pid = self.pid("kube-apiserver");
        self.signal("kube-apiserver", Signal::SIGSTOP);
        // Until then a thread on another processor may still respond.
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

    /// Kills the API server. etcd and its contents remain.
    pub fn kill(&self) {
        let pid = self.pid("kube-apiserver");
        self.signal("kube-apiserver", Signal::SIGKILL);
        // Until then it may still respond. Its parent may notice the end with a delay.
        let ended = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.map_or(true, |stat| stat.contains(") Z "))
        };
        while !ended() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts the ended processes again, with the same port, certificates and objects.
    pub fn start_again(&self) {
        run(Command::new(scripts().join("up")).arg(&self.dir));
    }

    /// Starts kube-controller-manager with only these controllers, such as `pod-garbage-collector-controller`.
    pub fn start_controllers(&self, names: &[&str]) {
        let list = names.join(",");
        run(Command::new(scripts().join("up"))
            .args(["--controllers", &list])
            .arg(&self.dir));
    }

    /// Copies the data of etcd like a snapshot of its disk: both processes are stopped meanwhile.
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

    /// Restores the data of etcd from `snapshot`, versions included, and starts both processes again.
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

/// A client for `config`. Its time limit for a request is one that only a hang reaches.
pub async fn client(config: Kubeconfig) -> Client {
    let mut config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .unwrap();
    // A test must see each refusal, not the result of a retry.
    config.default_retry = false;
    config.read_timeout = Some(Duration::from_secs(60));
    Client::try_from(config).unwrap()
}
