// SPDX-License-Identifier: Apache-2.0
//! The cleaners of whereabouts, as in its manifests: `ip-control-loop` on each node, and `ip-reconciler` once after each
//! fault. The manifests start `ip-reconciler` once a day.
//!
//! Both read files at fixed paths of a pod, so each runs with a directory of its own as root.

use crate::NODES;
use apiserver::{Server, install, objects};
use bench_kube::sides::peer::Peer;
use bench_kube::sides::{NETWORK, Sandbox, Side};
use bench_kube::{nodes, whereabouts};
use kube::api::DynamicObject;
use kube::config::Kubeconfig;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The time limit of every wait.
const TIMEOUT: Duration = Duration::from_secs(180);

/// When `ip-reconciler` starts a run. It is ended after the first one.
const SCHEDULE: &str = "@every 5s";

/// The running cleaners.
pub(crate) struct Cleaners {
    root: PathBuf,
    port: u16,
    /// The control loop of each node, if the node is not lost.
    loops: Vec<Mutex<Option<Child>>>,
}

impl Cleaners {
    /// Starts the control loops of all nodes.
    pub(crate) async fn start(
        server: &Server,
        programs: &Path,
        dir: &Path,
        peer: &Peer,
        defaults: &Path,
    ) -> Self {
        let admin = server.admin().await;
        let multus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../multus/multus.yaml");
        for object in install::documents(&multus) {
            install::apply(&admin, &object).await;
        }
        let sandbox = Sandbox {
            node: 0,
            pod: "none",
            id: "none",
        };
        let network = json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": { "name": NETWORK, "namespace": "default" },
            "spec": { "config": peer.call("ADD", sandbox).conf },
        });
        let network: DynamicObject = serde_json::from_value(network).unwrap();
        install::apply(&admin, &network).await;
        let token = objects::token(&admin, "kube-system", whereabouts::ACCOUNT, None);
        let token = token.await.unwrap();
        let mut cleaners = Self {
            root: dir.join("whereabouts"),
            port: server.port(),
            loops: Vec::new(),
        };
        cleaners.write(server, programs, &token, defaults);
        for node in 0..NODES {
            let child = cleaners.spawn("ip-control-loop", &nodes::name(node));
            cleaners.loops.push(Mutex::new(Some(child)));
        }
        cleaners
    }

    /// Writes the files of the pods.
    fn write(&self, server: &Server, programs: &Path, token: &str, defaults: &Path) {
        let account = self.root.join("var/run/secrets/kubernetes.io/serviceaccount");
        let settings = self.root.join("host/etc/cni/net.d/whereabouts.d");
        let schedule = self.root.join("cron-schedule");
        for directory in [&account, &settings, &schedule] {
            fs::create_dir_all(directory).unwrap();
        }
        let cluster = Kubeconfig::read_from(server.kubeconfig())
            .unwrap()
            .clusters
            .remove(0);
        let authority = cluster.cluster.unwrap().certificate_authority.unwrap();
        fs::copy(authority, account.join("ca.crt")).unwrap();
        fs::write(account.join("token"), token).unwrap();
        fs::write(schedule.join("config"), SCHEDULE).unwrap();
        fs::copy(defaults, settings.join("whereabouts.conf")).unwrap();
        for program in ["ip-control-loop", "ip-reconciler"] {
            fs::copy(programs.join(program), self.root.join(program)).unwrap();
        }
    }

    fn spawn(&self, program: &str, node: &str) -> Child {
        let log = fs::File::create(self.log(program, node)).unwrap();
        // The process ends with this one, also if a signal ends this one.
        Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "chroot"])
            .arg(&self.root)
            .arg(format!("/{program}"))
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            .env("KUBERNETES_SERVICE_PORT", self.port.to_string())
            .env("WHEREABOUTS_NAMESPACE", "kube-system")
            .env("NODENAME", node)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("setpriv is there")
    }

    fn log(&self, program: &str, node: &str) -> PathBuf {
        self.root.join(format!("{program}-{node}.log"))
    }

    /// Kills the control loop of a node.
    pub(crate) fn stop(&self, node: usize) {
        self.loops[node].lock().unwrap().take().iter_mut().for_each(end);
    }

    /// Runs `ip-reconciler` until one of its runs has succeeded.
    pub(crate) async fn reconcile(&self) {
        for (node, child) in self.loops.iter().enumerate() {
            let ended = child
                .lock()
                .unwrap()
                .as_mut()
                .map(|child| child.try_wait().unwrap());
            let log = self.log("ip-control-loop", &nodes::name(node));
            assert!(
                ended.flatten().is_none(),
                "ip-control-loop has ended, see {}",
                log.display()
            );
        }
        let mut child = self.spawn("ip-reconciler", "once");
        let begun = Instant::now();
        let log = || fs::read_to_string(self.log("ip-reconciler", "once")).unwrap();
        while !log().contains("reconciler run succeeded") {
            assert!(begun.elapsed() < TIMEOUT, "ip-reconciler: {}", log());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        end(&mut child);
    }
}

/// Kills a process.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

impl Drop for Cleaners {
    fn drop(&mut self) {
        for child in &mut self.loops {
            child.get_mut().unwrap().iter_mut().for_each(end);
        }
    }
}
