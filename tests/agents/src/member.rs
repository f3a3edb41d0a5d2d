// SPDX-License-Identifier: Apache-2.0
//! A node with its agent and its plugin.

use apiserver::install::{LIMIT, until};
use apiserver::{Identity, Proxy, Server};
use kube::config::Kubeconfig;
use serde_json::{Value, json};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tests::version::{Version, environment};
use tests::{Answer, Call, Daemon, daemon};

/// The errors of an ADD whose time was too short: a piece of the text, and the file that has it. The plugin waits five seconds for the
/// agent, and the agent four for the API server, so each ADD that needs them may get one on a busy machine. A runtime repeats such an
/// ADD. The last error is that of a repeated ADD: the agent releases what the ADD before did not use.
pub const OUT_OF_TIME: [(&str, &str); 8] = [
    ("no answer within ", "ipam/src/agent/client.rs"),
    (
        "ADD did not use the addresses of this request in time",
        "ipam/src/pool_mode/attempt.rs",
    ),
    ("has been locked for ", "ipam/src/store/lock.rs"),
    ("no time was left to ask the API server", "api/src/requests.rs"),
    ("nothing within ", "api/src/requests.rs"),
    ("no answer yet", "api/src/inputs.rs"),
    (
        "has received no pools and blocks from the API server since it started",
        "agent/src/pool_reconciler/requests.rs",
    ),
    (
        "has just been released; try again",
        "agent/src/pool_reconciler/addresses.rs",
    ),
];

/// Codes of refusals that pass by themselves: no address is free yet (11, 110), the node does not know yet that there is the pool
/// (115) or that it may use it (116), and ADD had no time (11, 119).
const PASSING: [u64; 5] = [11, 110, 115, 116, 119];

/// The error document of a call that failed.
pub fn error_of(answer: &Answer) -> Value {
    serde_json::from_str(&answer.stdout).unwrap_or_else(|e| panic!("no error document: {e}: {answer}"))
}

/// Whether the time of an ADD with this error was too short.
pub fn is_out_of_time(error: &Value) -> bool {
    let texts = ["msg", "details"].map(|key| error[key].as_str().unwrap_or_default());
    let has = |piece: &str| texts.iter().any(|text| text.contains(piece));
    OUT_OF_TIME.iter().any(|(piece, _)| has(piece))
}

/// A node with its agent and the plugin.
pub struct Member {
    /// The agent ends before its directory is removed.
    agent: Daemon,
    /// The node's name and its agent's token.
    pub identity: Identity,
    dir: TempDir,
    /// The length of the log when the agent last started.
    log_start: AtomicUsize,
    flags: Vec<String>,
    environment: Vec<(String, String)>,
}

/// The process of the agent: `node.kill()`, `node.log()`.
impl Deref for Member {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.agent
    }
}

/// One interface of one pod, as a runtime names it.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// `CNI_CONTAINERID`.
    pub container: String,
    /// `namespace/name`.
    pub pod: String,
    /// The pod's UID.
    pub uid: String,
    /// `CNI_NETNS`.
    pub netns: PathBuf,
    /// The requested addresses.
    pub ips: Vec<String>,
    /// Whether the main plugin probes addresses.
    pub probes: bool,
    /// Whether the main plugin states that its ADD failed or was killed.
    pub unfinished: bool,
}

impl Attachment {
    /// An interface of the pod `default/NAME`, whose sandbox has the same name.
    pub fn of(name: &str) -> Self {
        Self {
            container: name.to_owned(),
            pod: format!("default/{name}"),
            uid: format!("uid-{name}"),
            netns: PathBuf::from("/proc/self/ns/net"),
            ips: Vec::new(),
            probes: false,
            unfinished: false,
        }
    }

    /// Adds a request for the address `ip`.
    #[must_use]
    pub fn asking(mut self, ip: &str) -> Self {
        self.ips.push(ip.to_owned());
        self
    }

    /// As for a main plugin that probes addresses.
    #[must_use]
    pub fn probing(mut self) -> Self {
        self.probes = true;
        self
    }

    /// A call of `rdma-ipam` for this interface, with the leases below `data`.
    pub fn call(&self, verb: &str, pool: &str, data: &Path) -> Call {
        self.call_of(Version::Today, verb, pool, data)
    }

    /// Like [`Self::call`], of the plugin of `version`.
    pub fn call_of(&self, version: Version, verb: &str, pool: &str, data: &Path) -> Call {
        let mut conf = json!({
            "cniVersion": "1.1.0", "name": "net", "type": "macvlan",
            "ipam": { "type": "rdma-ipam", "pool": pool, "dataDir": data },
        });
        if self.probes {
            conf["rdmanet.io/probes"] = json!(true);
        }
        if self.unfinished {
            conf["rdmanet.io/unfinished"] = json!(true);
        }
        if !self.ips.is_empty() {
            conf["args"] = json!({ "cni": { "ips": self.ips } });
        }
        let (namespace, name) = self.pod.split_once('/').unwrap();
        let pod = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};K8S_POD_UID={}",
            self.uid
        );
        Call::new(&version.program("rdma-ipam"))
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", self.container.as_str())
            .env("CNI_IFNAME", "net1")
            .env("CNI_NETNS", self.netns.as_os_str())
            .env("CNI_PATH", "/opt/cni/bin")
            .env("CNI_ARGS", pod)
            .stdin(conf.to_string())
    }
}

impl Member {
    /// A node `name` that joins `server`, without starting its agent. The agent's timeouts and intervals are about a
    /// second instead of minutes, unless `flags` set them.
    pub async fn new(server: &Server, name: &str, flags: &[&str]) -> Self {
        let identity = Identity::new(&server.admin().await, name).await;
        let dir = tempfile::Builder::new().prefix("agent-").tempdir().unwrap();
        let usual = [
            "--reconcile-interval",
            "200ms",
            "--report-interval",
            "500ms",
            "--observation-interval",
            "1s",
            "--idle",
            "1s",
            "--log",
            "debug",
        ];
        let usual = usual.chunks(2).filter(|pair| !flags.contains(&pair[0])).flatten();
        let short = ["--short-quarantine-for-tests"];
        let flags = usual
            .chain(flags)
            .chain(&short)
            .map(|flag| (*flag).to_owned())
            .collect();
        let member = Self {
            agent: Daemon::new(format!("the agent of {name}"), &dir.path().join("log")),
            identity,
            dir,
            log_start: AtomicUsize::new(0),
            flags,
            environment: Vec::new(),
        };
        member.use_server(server);
        member
    }

    /// Like [`Self::new`], with a running agent.
    pub async fn running(server: &Server, name: &str, flags: &[&str]) -> Self {
        let member = Self::new(server, name, flags).await;
        member.start();
        member
    }

    fn use_server(&self, server: &Server) {
        self.use_config(&self.identity.config(server));
    }

    /// Connects the agent to `server` through `proxy`, from its next start on.
    pub fn go_through(&self, proxy: &Proxy, server: &Server) {
        self.use_config(&proxy.before(self.identity.config(server)));
    }

    /// Sets the additional environment variables of the agent, from its next start on.
    pub fn set_environment(&mut self, variables: &[(&str, &str)]) {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        self.environment = variables.iter().map(owned).collect();
    }

    fn use_config(&self, config: &Kubeconfig) {
        std::fs::write(
            self.dir.path().join("kubeconfig"),
            serde_norway::to_string(config).unwrap(),
        )
        .unwrap();
    }

    /// Continues with the identity of a new registration.
    pub fn becomes(&mut self, server: &Server, identity: Identity) {
        self.identity = identity;
        self.use_server(server);
    }

    /// The directory of the plugin's leases.
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The agent's socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("agent.sock")
    }

    /// Where the collector of the node listens, if a test starts one.
    pub fn collector(&self) -> PathBuf {
        self.dir.path().join("collector.sock")
    }

    /// Where `cni-ipoib` keeps its journal.
    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// Starts the agent.
    pub fn start(&self) {
        let mut command = self.command(Version::Today);
        command.arg("--collector").arg(self.collector()).args(&self.flags);
        self.spawn(command);
    }

    fn spawn(&self, mut command: Command) {
        self.log_start.store(self.log().len(), Ordering::SeqCst);
        self.agent.spawn(&mut command);
    }

    /// Starts the agent of `version`, and waits until it listens.
    pub async fn start_of(&self, version: Version) {
        match version {
            Version::Today => self.start(),
            // A flag of today may be unknown to the earlier program.
            Version::Earlier => {
                let mut command = self.command(version);
                command.envs(environment(&self.flags));
                // Before there was a controller, agents had no such flag, and accepted each quarantine.
                if version.has_controller() {
                    command.arg("--short-quarantine-for-tests");
                }
                self.spawn(command);
            }
        }
        until("the agent listens", async || self.listens().is_some()).await;
    }

    fn command(&self, version: Version) -> Command {
        let mut command = Command::new(version.program("rdmanet-agent"));
        command
            .env_clear()
            .env("RDMANET_LISTEN", "127.0.0.1:0")
            .envs(self.environment.iter().cloned())
            .env("KUBECONFIG", self.dir.path().join("kubeconfig"))
            .args(["--node", &self.identity.node.node])
            .arg("--data-dir")
            .arg(self.data())
            .arg("--socket")
            .arg(self.socket());
        command
    }

    /// The address on which the running agent serves metrics.
    pub fn listens(&self) -> Option<String> {
        let log = self.log();
        let since_start = log.get(self.log_start.load(Ordering::SeqCst)..)?;
        daemon::address(since_start, "the agent listens")
    }

    /// Whether the agent's probe reports that it is ready.
    pub fn is_ready(&self) -> bool {
        self.listens().is_some() && self.get("/readyz").starts_with("HTTP/1.1 200")
    }

    /// The value of a metric, by its name and labels as the agent prints them; 0 if the agent has no such metric.
    pub fn number(&self, metric: &str) -> u64 {
        let text = self.get("/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(metric));
        line.map_or(0, |value| value.trim().parse().unwrap())
    }

    /// The response of the agent to GET of `path`, with its headers.
    pub fn get(&self, path: &str) -> String {
        daemon::get(&self.listens().expect("the agent listens"), path)
    }

    /// The content of `pool.json`; null if there is no file.
    pub fn file(&self, pool: &str) -> Value {
        let path = self.data().join("pools").join(pool).join("pool.json");
        std::fs::read(path).map_or(Value::Null, |content| serde_json::from_slice(&content).unwrap())
    }

    /// Changes the file of the pool as a reboot does: it is of another boot, in which no agent has compared it with the API server.
    pub fn reboot(&self, pool: &str) {
        let path = self.data().join("pools").join(pool).join("pool.json");
        let mut file = self.file(pool);
        file["bootID"] = "00000000-0000-0000-0000-000000000000".into();
        std::fs::write(path, file.to_string()).unwrap();
    }

    /// Removes the leases of the pool, as a power failure does: those of an earlier boot do not count.
    pub fn forget_leases(&self, pool: &str) {
        let entries = std::fs::read_dir(self.data().join("pools").join(pool)).unwrap();
        let is_boot = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("boot-");
        let boot = entries.flatten().find(is_boot).unwrap();
        std::fs::remove_dir_all(boot.path()).unwrap();
    }

    /// The blocks in this node's pool file, by state.
    pub fn blocks(&self, pool: &str, state: &str) -> Vec<String> {
        let file = self.file(pool);
        let blocks = file["blocks"].as_array().cloned().unwrap_or_default();
        let in_state = blocks.iter().filter(|block| block["state"] == state);
        in_state
            .map(|block| block["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Waits until this node has an active block of the pool.
    pub async fn wait_active(&self, pool: &str) {
        until("a block is active", async || {
            !self.blocks(pool, "active").is_empty()
        })
        .await;
    }

    /// Waits until this node has exactly `count` active blocks of the pool.
    pub async fn wait_active_blocks(&self, pool: &str, count: usize) {
        until("so many blocks are active", async || {
            self.blocks(pool, "active").len() == count
        })
        .await;
    }

    /// Calls the plugin.
    pub fn call(&self, verb: &str, pool: &str, attachment: &Attachment) -> Answer {
        self.call_of(Version::Today, verb, pool, attachment)
    }

    /// Calls the plugin of `version`.
    pub fn call_of(&self, version: Version, verb: &str, pool: &str, attachment: &Attachment) -> Answer {
        self.prepared(version, verb, pool, attachment).run()
    }

    /// Calls CHECK of the plugin of `version`, with the result of ADD. It must succeed.
    pub fn check_of(&self, version: Version, pool: &str, attachment: &Attachment, result: Value) {
        let call = self.prepared(version, "CHECK", pool, attachment);
        call.prev_result(result).run().done();
    }

    /// A call of the plugin of `version`, to be run.
    pub fn prepared(&self, version: Version, verb: &str, pool: &str, attachment: &Attachment) -> Call {
        attachment
            .call_of(version, verb, pool, &self.data())
            .env("RDMANET_AGENT_SOCKET", self.socket().as_os_str())
    }

    /// Calls ADD, which must succeed. Repeats it while its time was too short, and after no other error. Returns the addresses.
    pub fn add(&self, pool: &str, attachment: &Attachment) -> Vec<String> {
        self.added(pool, attachment).addresses()
    }

    /// Like [`Self::add`]. Returns the whole answer.
    pub fn added(&self, pool: &str, attachment: &Attachment) -> Answer {
        let answer = self.add_in_time(pool, attachment, |_| false);
        assert!(
            answer.status.success(),
            "ADD of {attachment:?}: {answer}\n{}",
            self.log()
        );
        answer
    }

    /// Calls ADD. Repeats it while its time was too short and its error is not `expected`.
    pub fn add_in_time(
        &self,
        pool: &str,
        attachment: &Attachment,
        expected: impl Fn(&Value) -> bool,
    ) -> Answer {
        let deadline = Instant::now() + LIMIT;
        loop {
            let answer = self.call("ADD", pool, attachment);
            let repeats = !answer.status.success() && {
                let error = error_of(&answer);
                is_out_of_time(&error) && !expected(&error)
            };
            if !repeats || Instant::now() >= deadline {
                return answer;
            }
            eprintln!("ADD of {attachment:?} is repeated: {}", answer.stdout);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Calls ADD and repeats it while the refusal passes by itself (`PASSING`). Returns the first address.
    pub async fn add_soon(&self, pool: &str, attachment: &Attachment) -> String {
        let deadline = Instant::now() + LIMIT;
        loop {
            let answer = self.call("ADD", pool, attachment);
            if answer.status.success() {
                return answer.addresses().remove(0);
            }
            let error = error_of(&answer);
            let passes = PASSING.iter().any(|code| error["code"] == *code);
            assert!(passes, "the refusal does not pass by itself: {error}");
            assert!(Instant::now() < deadline, "no address within {LIMIT:?}: {error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Calls ADD once, which must fail. Returns the error.
    pub fn error(&self, pool: &str, attachment: &Attachment) -> Value {
        let answer = self.call("ADD", pool, attachment);
        refused_by(&answer, attachment)
    }

    /// Calls ADD, which must fail with one of `codes` (empty: any) and a message with each of `pieces`. Repeats it while its time was
    /// too short, unless that is the expected error. Returns the message.
    #[track_caller]
    pub fn refused(&self, pool: &str, attachment: &Attachment, codes: &[u64], pieces: &[&str]) -> String {
        let has_code = |error: &Value| codes.is_empty() || codes.iter().any(|code| error["code"] == *code);
        let lacks = |error: &Value| {
            let message = error["msg"].as_str().unwrap();
            pieces.iter().find(|piece| !message.contains(**piece)).copied()
        };
        let expected = |error: &Value| has_code(error) && lacks(error).is_none();
        let answer = self.add_in_time(pool, attachment, expected);
        let error = refused_by(&answer, attachment);
        assert!(has_code(&error), "{error}");
        assert_eq!(lacks(&error), None, "a missing piece of {error}");
        error["msg"].as_str().unwrap().to_owned()
    }

    /// Waits until ADD fails with one of `codes`, and ends the attachments that it makes before.
    pub async fn wait_refused(&self, pool: &str, codes: &[u64]) {
        let probe = Attachment::of("probe");
        until("ADD is refused", async || {
            let answer = self.call("ADD", pool, &probe);
            if answer.status.success() {
                self.del(pool, &probe);
                return false;
            }
            let error: Value = serde_json::from_str(&answer.stdout).unwrap();
            error["code"].as_u64().is_some_and(|code| codes.contains(&code))
        })
        .await;
    }

    /// Calls DEL, which must succeed.
    pub fn del(&self, pool: &str, attachment: &Attachment) {
        self.call("DEL", pool, attachment).done();
    }
}

/// The error of an ADD, which must have failed.
#[track_caller]
fn refused_by(answer: &Answer, attachment: &Attachment) -> Value {
    assert!(
        !answer.status.success(),
        "ADD of {attachment:?} succeeds: {}",
        answer.stdout
    );
    error_of(answer)
}
