// SPDX-License-Identifier: Apache-2.0
//! nv-ipam: its controller, and its daemon on each node, run as in its manifests.
//!
//! Its programs and definitions are built from a clone (tests/go/README.md), because the module proxy does not serve
//! it. They end when [`NvIpam`] is dropped.

use crate::account;
use crate::call::{Call, at_once};
use apiserver::install::{self, until};
use apiserver::{Server, identity};
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The account of nv-ipam.
pub const ACCOUNT: &str = "nv-ipam";

/// The environment variable with the directory of nv-ipam's programs.
pub const VARIABLE: &str = "RDMANET_NV_IPAM";

/// The pool of all nodes.
const POOL: &str = "rail0";

/// The definitions of nv-ipam, by their file names in its repository.
const DEFINITIONS: [&str; 2] = [
    "nv-ipam.nvidia.com_cidrpools.yaml",
    "nv-ipam.nvidia.com_ippools.yaml",
];

/// A running nv-ipam.
pub struct NvIpam {
    bin: PathBuf,
    dir: PathBuf,
    nodes: Vec<String>,
    kubeconfig: PathBuf,
    running: Vec<Child>,
}

/// The pool.
pub struct Pool {
    /// The subnet.
    pub subnet: &'static str,
    /// The number of addresses of each node.
    pub block: u32,
}

/// The directory that [`VARIABLE`] names, if it is set.
pub fn directory() -> Option<PathBuf> {
    let directory = PathBuf::from(std::env::var_os(VARIABLE)?);
    Some(
        directory
            .canonicalize()
            .unwrap_or_else(|e| panic!("{VARIABLE}={}: {e}", directory.display())),
    )
}

impl NvIpam {
    /// Starts the programs in `bin` for the existing `nodes`, with a `pool`. Their files are below `dir`.
    pub async fn start(server: &Server, bin: &Path, dir: &Path, nodes: Vec<String>, pool: &Pool) -> Self {
        let admin = server.admin().await;
        for file in DEFINITIONS {
            for object in install::documents(&bin.join("crds").join(file)) {
                install::apply(&admin, &object).await;
            }
        }
        let mut peer = Self {
            bin: bin.to_owned(),
            dir: dir.join("nv-ipam"),
            nodes,
            kubeconfig: account::kubeconfig(server, ACCOUNT).await,
            running: Vec::new(),
        };
        std::fs::create_dir_all(&peer.dir).unwrap();
        peer.run(
            "ipam-controller",
            "controller",
            &["--leader-elect=false", "--webhook=false"],
        );
        for node in peer.nodes.clone() {
            let (socket, store) = (peer.socket(&node), peer.dir.join(&node).with_extension("store"));
            let flags = [
                format!("--node-name={node}"),
                format!("--bind-address={socket}"),
                format!("--store-file={}", store.display()),
                "--cni-skip-nv-ipam-binary-copy".to_owned(),
                "--cni-skip-nv-ipam-config-creation".to_owned(),
            ];
            peer.run("ipam-node", &node, &flags.each_ref().map(String::as_str));
        }
        let pool: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "nv-ipam.nvidia.com/v1alpha1", "kind": "IPPool",
            "metadata": { "name": POOL, "namespace": identity::NAMESPACE },
            "spec": { "subnet": pool.subnet, "perNodeBlockSize": pool.block },
        }))
        .unwrap();
        install::apply(&admin, &pool).await;
        peer.wait(&admin).await;
        peer
    }

    /// The IPAM plugin of nv-ipam.
    pub fn plugin(&self) -> PathBuf {
        self.bin.join("nv-ipam")
    }

    /// The `ipam` section of a configuration for a pod on `node`.
    pub fn conf(&self, node: &str) -> Value {
        json!({
            "type": "nv-ipam", "poolName": POOL, "daemonSocket": self.socket(node),
            // The directory has no configuration file, and the plugin writes no log.
            "confDir": self.dir, "logFile": "/dev/null",
        })
    }

    fn socket(&self, node: &str) -> String {
        format!("unix://{}", self.dir.join(node).with_extension("sock").display())
    }

    fn run(&mut self, program: &str, name: &str, flags: &[&str]) {
        let program = self.bin.join(program);
        let log = File::create(self.dir.join(name).with_extension("log")).unwrap();
        let child = Command::new(&program)
            .env("KUBECONFIG", &self.kubeconfig)
            .args(["--metrics-bind-address=0", "--health-probe-bind-address=0"])
            .arg(format!("--ippools-namespace={}", identity::NAMESPACE))
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}", program.display()));
        self.running.push(child);
    }

    /// Waits until every node allocates addresses.
    async fn wait(&self, admin: &Client) {
        let kind = GroupVersionKind::gvk("nv-ipam.nvidia.com", "v1alpha1", "IPPool");
        let pools: Api<DynamicObject> = Api::namespaced_with(
            admin.clone(),
            identity::NAMESPACE,
            &ApiResource::from_gvk_with_plural(&kind, "ippools"),
        );
        until("nv-ipam has given every node its addresses", async || {
            let pool = pools.get(POOL).await.unwrap();
            let given = pool.data["status"]["allocations"].as_array().cloned();
            let given = given.unwrap_or_default();
            let has = |node: &String| given.iter().any(|one| one["nodeName"] == **node);
            let listens = |node: &String| self.dir.join(node).with_extension("sock").exists();
            self.nodes.iter().all(|node| has(node) && listens(node))
        })
        .await;
        for node in &self.nodes {
            let call = |verb| {
                Call {
                program: self.plugin(),
                verb,
                id: "first".to_owned(),
                pod: "first".to_owned(),
                conf: json!({ "cniVersion": "1.0.0", "name": "bench", "type": "macvlan", "ipam": self.conf(node) })
                    .to_string(),
                agent: None,
                node: None,
                netns: None,
            }
            };
            let succeeds = |verb| at_once(&[call(verb)]).answers[0].succeeded;
            until("nv-ipam's daemon knows the pool", async || succeeds("ADD")).await;
            assert!(succeeds("DEL"), "nv-ipam does not release its addresses");
        }
    }
}

impl Drop for NvIpam {
    fn drop(&mut self) {
        for child in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
