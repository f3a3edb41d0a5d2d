// SPDX-License-Identifier: Apache-2.0
//! The cluster of `tests/node/up`, and what a person does with it: kubectl, `rdmanet`, a console on a node.
//!
//! Invariant: every wait has a deadline, and ends at once with the cause when the VM is gone.

use serde_json::{Value, json};
use std::fmt::{Debug, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A limit that only a hang reaches: the VM is emulated, and other jobs run beside it.
const TIMEOUT: Duration = Duration::from_secs(900);
/// The nodes of the cluster. The HCA of the second one is accelerated, that of the first is plain.
pub(crate) const NODES: [&str; 2] = ["node-1", "node-2"];

/// A running cluster with rdmanet installed.
pub(crate) struct Cluster {
    kubeconfig: PathBuf,
    kubectl: PathBuf,
    /// The container runtime of the nodes, by the name of its process.
    pub(crate) runtime: &'static str,
}

/// The top of the repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .parent()
        .unwrap()
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The command `rdmanet`.
pub(crate) fn rdmanet() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let program = program.parent().and_then(Path::parent).unwrap().join("rdmanet");
    assert!(
        program.is_file(),
        "{} is not there: cargo build -p cli",
        program.display()
    );
    program
}

fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).trim().to_owned()
}

/// What a command prints; the test fails when the command does.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
    printed(command, &output)
}

/// What `command`, which must have succeeded, printed.
fn printed(command: &impl Debug, output: &Output) -> String {
    assert!(output.status.success(), "{command:?} failed: {}", said(output));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Runs a step and prints how long it took, for the table of README.md.
pub(crate) fn timed<T>(what: &str, step: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = step();
    println!("did: {what} in {} s", start.elapsed().as_secs());
    result
}

/// Starts a cluster that ends with this process.
fn up() -> PathBuf {
    let pid = std::process::id().to_string();
    let kubeconfig = Command::new(here().join("up"))
        .args(["--accelerated", "1", "--memory", "1024", "--until-exit", &pid])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(kubeconfig.status.success(), "tests/node/up failed: see above");
    PathBuf::from(String::from_utf8(kubeconfig.stdout).unwrap().trim())
}

impl Cluster {
    /// The one cluster of all tests, for one test at a time. If its start fails, no test starts another one beside it.
    pub(crate) fn lock() -> MutexGuard<'static, Self> {
        static SHARED: OnceLock<Mutex<Cluster>> = OnceLock::new();
        static BEGUN: AtomicBool = AtomicBool::new(false);
        let shared = SHARED.get_or_init(|| {
            let again = BEGUN.swap(true, Ordering::Relaxed);
            assert!(!again, "an earlier test could not start the cluster: see above");
            Mutex::new(Self::start())
        });
        shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a cluster, or uses the one of `RDMANET_CLUSTER`, the KUBECONFIG that tests/node/up printed for the options of `up` below.
    fn start() -> Self {
        let kubeconfig = std::env::var_os("RDMANET_CLUSTER").map_or_else(up, PathBuf::from);
        let tools = run(Command::new(repository().join("tests/go/build")).arg("kubectl"));
        let mut cluster = Self {
            kubeconfig,
            kubectl: Path::new(&tools).join("kubectl"),
            runtime: "containerd",
        };
        let version =
            cluster.kubectl("get node node-1 -o jsonpath={.status.nodeInfo.containerRuntimeVersion}");
        if version.starts_with("cri-o") {
            cluster.runtime = "crio";
        }
        if cluster
            .try_kubectl(&["get", "namespace", "rdmanet-system"])
            .is_err()
        {
            timed("installation", || crate::install::install(&cluster));
        }
        cluster
    }

    /// A command with the KUBECONFIG of the cluster, in the top directory of the repository.
    pub(crate) fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(repository())
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null());
        command
    }

    /// What kubectl prints for these words.
    pub(crate) fn kubectl(&self, words: &str) -> String {
        let args: Vec<&str> = words.split_whitespace().collect();
        printed(&["kubectl", words], &self.reached(&args))
    }

    /// The same, for a command that may fail: `Err` has its output.
    pub(crate) fn try_kubectl(&self, words: &[&str]) -> Result<String, String> {
        let output = self.reached(words);
        if output.status.success() {
            Ok(said(&output))
        } else {
            Err(said(&output))
        }
    }

    /// Runs kubectl, again as long as a kubelet or the API server has no time for the TLS handshake: then nothing was requested.
    fn reached(&self, words: &[&str]) -> Output {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let output = self.command(&self.kubectl, words).output().unwrap();
            let is_busy = !output.status.success() && said(&output).contains("TLS handshake timeout");
            if !is_busy || Instant::now() >= deadline {
                return output;
            }
        }
    }

    /// Applies these objects, as `kubectl apply -f`.
    pub(crate) fn apply(&self, objects: &[Value]) {
        self.try_apply(objects).unwrap();
    }

    /// The same, for objects that the API server may refuse: `Err` has its output.
    pub(crate) fn try_apply(&self, objects: &[Value]) -> Result<String, String> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let file = self.directory().join("objects.json");
        std::fs::write(&file, list.to_string()).unwrap();
        self.try_kubectl(&["apply", "-f", file.to_str().unwrap()])
    }

    /// A kubectl that runs beside the test.
    pub(crate) fn start_kubectl(&self, words: &[&str]) -> std::process::Child {
        let mut command = self.command(&self.kubectl, words);
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Objects in JSON, as `kubectl get WORDS`.
    pub(crate) fn get(&self, words: &str) -> Value {
        serde_json::from_str(&self.kubectl(&format!("get {words} -o json"))).unwrap()
    }

    /// What a command prints on a node, or beside the nodes with `vm`.
    pub(crate) fn at(&self, place: &str, command: &[&str]) -> String {
        self.try_at(place, command)
            .unwrap_or_else(|said| panic!("{command:?} failed at {place}: {said}"))
    }

    /// The same, for a command that may fail: `Err` has its output.
    pub(crate) fn try_at(&self, place: &str, command: &[&str]) -> Result<String, String> {
        let args = [&[place], command].concat();
        let output = self.command(&here().join("at"), &args).output().unwrap();
        if output.status.success() {
            Ok(said(&output))
        } else {
            Err(said(&output))
        }
    }

    /// Waits until the program runs on the node, and returns its process id.
    pub(crate) fn runs(&self, node: &str, program: &str) -> String {
        self.until(&format!("{program} runs on {node}"), || {
            self.try_at(node, &["pidof", program])
        })
    }

    /// Cuts the power of a node.
    pub(crate) fn power_off(&self, node: &str) {
        self.at("vm", &["nodes", "off", node]);
    }

    /// Starts a node that is off, and waits until its kubelet runs.
    pub(crate) fn power_on(&self, node: &str) {
        self.at("vm", &["nodes", "on", node]);
        self.runs(node, "kubelet");
    }

    /// What the command `rdmanet` prints, whatever its status.
    pub(crate) fn rdmanet(&self, words: &str) -> String {
        self.rdmanet_args(&words.split_whitespace().collect::<Vec<_>>())
    }

    /// The same, for arguments that have spaces.
    pub(crate) fn rdmanet_args(&self, args: &[&str]) -> String {
        said(&self.command(&rdmanet(), args).output().unwrap())
    }

    /// Waits until `look` finds something; `Err` is why it has not yet.
    pub(crate) fn until<T>(&self, what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let why = match look() {
                Ok(found) => return found,
                Err(why) => why,
            };
            assert!(
                self.vm_lives(),
                "the VM ended while the test waited: {what}\n{}",
                self.log("vm")
            );
            assert!(
                Instant::now() < deadline,
                "not in {TIMEOUT:?}: {what}: {why}\n{}",
                self.evidence()
            );
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// Waits for a rollout, as `kubectl rollout status NAME`.
    pub(crate) fn rolled_out(&self, namespace: &str, name: &str) {
        self.until(&format!("{name} is rolled out"), || {
            self.try_kubectl(&["-n", namespace, "rollout", "status", name, "--timeout=5s"])
        });
    }

    /// The directory that the nodes see as /node/kube.
    pub(crate) fn shared(&self) -> PathBuf {
        self.directory().join("vm")
    }

    /// The directory of the cluster, which is that of its API server too.
    pub(crate) fn directory(&self) -> &Path {
        self.kubeconfig.parent().unwrap()
    }

    fn vm_lives(&self) -> bool {
        let pid = std::fs::read_to_string(self.directory().join("vm.pid")).unwrap_or_default();
        Path::new("/proc").join(pid.trim()).join("fd").exists()
    }

    /// The end of a log beside the KUBECONFIG.
    fn log(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.directory().join(format!("{name}.log"))).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// What a person would look at first.
    fn evidence(&self) -> String {
        let mut text = format!("vm.log:\n{}\n", self.log("vm"));
        for words in [
            "get nodes,pods,ipblocks --all-namespaces -o wide",
            "get events --all-namespaces --field-selector type=Warning",
            "-n rdmanet-system logs daemonset/rdmanet-agent --all-pods --tail=10",
        ] {
            let args: Vec<&str> = words.split_whitespace().collect();
            let answer = self.try_kubectl(&args).unwrap_or_else(|e| e);
            let _ = writeln!(text, "kubectl {words}:\n{answer}");
        }
        text
    }
}
