// SPDX-License-Identifier: Apache-2.0
//! A node with its agent and its plugin.

use apiserver::install::until;
use apiserver::{Identity, Proxy, Server};
use kube::config::Kubeconfig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tests::programs::program;
use tests::{Answer, Call};

/// A node with its agent and the plugin.
pub struct Member {
    /// The node's name and its agent's token.
    pub identity: Identity,
    dir: TempDir,
    flags: Vec<String>,
    environment: Vec<(String, String)>,
    agent: Option<Child>,
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
        }
    }

    /// Adds a request for the address `ip`.
    #[must_use]
    pub fn asking(mut self, ip: &str) -> Self {
        self.ips.push(ip.to_owned());
        self
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
            identity,
            dir,
            flags,
            environment: Vec::new(),
            agent: None,
        };
        member.use_server(server);
        member
    }

    /// Like [`Self::new`], with a running agent.
    pub async fn running(server: &Server, name: &str, flags: &[&str]) -> Self {
        let mut member = Self::new(server, name, flags).await;
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

    /// The folder of the plugin's leases.
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The agent's socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("agent.sock")
    }

    /// Starts the agent.
    pub fn start(&mut self) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join("log"))
            .unwrap();
        let child = Command::new(program("rdmanet-agent"))
            .env_clear()
            .envs(self.environment.iter().cloned())
            .env("KUBECONFIG", self.dir.path().join("kubeconfig"))
            .args(["--node", &self.identity.node.node, "--listen", "127.0.0.1:0"])
            .arg("--data-dir")
            .arg(self.data())
            .arg("--socket")
            .arg(self.socket())
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.agent = Some(child);
    }

    /// Stops the agent as kubelet does. Returns its exit status.
    pub fn stop(&mut self) -> bool {
        self.end(Signal::SIGTERM)
    }

    /// Ends the agent at once.
    pub fn kill(&mut self) {
        self.end(Signal::SIGKILL);
    }

    /// Sends the agent SIGKILL and does not wait for its end.
    pub fn interrupt(&self) {
        if let Some(child) = &self.agent {
            kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL).unwrap();
        }
    }

    /// Freezes the agent with SIGSTOP until [`Self::thaw`].
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Continues a frozen agent.
    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        let agent = self.agent.as_ref().expect("the agent runs");
        kill(Pid::from_raw(agent.id().cast_signed()), signal).unwrap();
    }

    fn end(&mut self, signal: Signal) -> bool {
        let Some(mut child) = self.agent.take() else {
            return false;
        };
        kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        child.wait().unwrap().success()
    }

    /// The log of the agent.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// The address on which the agent serves metrics.
    pub fn listens(&self) -> Option<String> {
        let line = self
            .log()
            .lines()
            .rev()
            .find(|line| line.contains("the agent listens"))?
            .to_owned();
        let line: Value = serde_json::from_str(&line).ok()?;
        Some(line["address"].as_str()?.to_owned())
    }

    /// The value of a metric, by its name and labels as the agent prints them; 0 if the agent has no such metric.
    pub fn number(&self, metric: &str) -> u64 {
        let text = self.get("/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(metric));
        line.map_or(0, |value| value.trim().parse().unwrap())
    }

    /// The response of the agent to GET of `path`, with its headers.
    pub fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.listens().expect("the agent listens")).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// The content of `pool.json`; null if there is no file.
    pub fn file(&self, pool: &str) -> Value {
        let path = self.data().join("pools").join(pool).join("pool.json");
        std::fs::read(path).map_or(Value::Null, |content| serde_json::from_slice(&content).unwrap())
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
        let mut conf = json!({
            "cniVersion": "1.1.0", "name": "net", "type": "macvlan",
            "ipam": { "type": "rdma-ipam", "pool": pool, "dataDir": self.data() },
        });
        if !attachment.ips.is_empty() {
            conf["args"] = json!({ "cni": { "ips": attachment.ips } });
        }
        let (namespace, name) = attachment.pod.split_once('/').unwrap();
        let call = Call::new(&program("rdma-ipam"))
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", attachment.container.as_str())
            .env("CNI_IFNAME", "net1")
            .env("CNI_NETNS", attachment.netns.as_os_str())
            .env("CNI_PATH", "/opt/cni/bin")
            .env("RDMANET_AGENT_SOCKET", self.socket().as_os_str())
            .env(
                "CNI_ARGS",
                format!(
                    "IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};K8S_POD_UID={}",
                    attachment.uid
                ),
            );
        call.stdin(conf.to_string()).run()
    }

    /// Calls ADD, which must succeed. Returns the addresses.
    pub fn add(&self, pool: &str, attachment: &Attachment) -> Vec<String> {
        let answer = self.call("ADD", pool, attachment);
        assert!(
            answer.status.success(),
            "ADD of {attachment:?}: {}{}\n{}",
            answer.stdout,
            answer.stderr,
            self.log()
        );
        let result: Value = serde_json::from_str(&answer.stdout).unwrap();
        let ips = result["ips"].as_array().unwrap().iter();
        ips.map(|ip| {
            ip["address"]
                .as_str()
                .unwrap()
                .split('/')
                .next()
                .unwrap()
                .to_owned()
        })
        .collect()
    }

    /// Calls ADD and retries on code 11, as a runtime does. Returns the first address.
    pub async fn add_soon(&self, pool: &str, attachment: &Attachment) -> String {
        let mut given = None;
        let mut last = String::new();
        let deadline = Instant::now() + Duration::from_secs(60);
        while given.is_none() {
            let answer = self.call("ADD", pool, attachment);
            if answer.status.success() {
                given = Some(self.add(pool, attachment).remove(0));
            } else {
                last = answer.stdout;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            assert!(Instant::now() < deadline, "no address within a minute: {last}");
        }
        given.unwrap()
    }

    /// Calls ADD, which must fail. Returns the error.
    pub fn refused(&self, pool: &str, attachment: &Attachment) -> Value {
        let answer = self.call("ADD", pool, attachment);
        assert!(
            !answer.status.success(),
            "ADD of {attachment:?} succeeds: {}",
            answer.stdout
        );
        serde_json::from_str(&answer.stdout).unwrap()
    }

    /// Calls DEL, which must succeed.
    pub fn del(&self, pool: &str, attachment: &Attachment) {
        let answer = self.call("DEL", pool, attachment);
        assert!(
            answer.status.success(),
            "DEL of {attachment:?}: {}",
            answer.stdout
        );
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.end(Signal::SIGKILL);
        if std::thread::panicking() {
            let node = &self.identity.node.node;
            let log = self.log();
            let last: Vec<&str> = log.lines().rev().take(40).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            eprint!("the last that the agent of {node} said:\n{}\n", last.join("\n"));
        }
    }
}
