// SPDX-License-Identifier: Apache-2.0
//! A test's node, its namespace in the cluster, and the relay between them.

use crate::{Relay, objects};
use apiserver::Server;
use kube::Client;
use nix::mount::{MsFlags, mount};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use tests::multus::{Multus, PodIdentity};
use tests::{Node, Pod};
use tokio::runtime::Runtime;

/// The runtime that all tests of a program share. Its threads are in the machine's network namespace.
struct Shared {
    runtime: Runtime,
    server: &'static Server,
    admin: Client,
    token: String,
}

/// A node with its own directories of a runtime, a kubelet and Multus.
pub struct Setup<'n> {
    /// The node.
    pub node: &'n Node,
    /// The test's own namespace of the cluster.
    pub namespace: String,
    /// The node's connection to the API server.
    pub relay: Relay,
    shared: &'static Shared,
}

fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| {
        let server = Server::shared();
        let runtime = Runtime::new().unwrap();
        let (admin, token) =
            runtime.block_on(async { (server.admin().await, objects::install(server).await) });
        Shared {
            runtime,
            server,
            admin,
            token,
        }
    })
}

impl Setup<'_> {
    /// Runs `test` on a fresh node with one Ethernet link, `eth0`.
    pub fn run(test: impl FnOnce(&Setup) + Send) {
        let shared = shared();
        Node::run(|node| test(&Setup::new(node, shared)));
    }
}

impl<'n> Setup<'n> {
    fn new(node: &'n Node, shared: &'static Shared) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        own_directories();
        let namespace = format!("test-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let setup = Self {
            node,
            relay: Relay::start(shared.runtime.handle(), shared.server.port()),
            namespace,
            shared,
        };
        fs::write(setup.kubeconfig(), setup.config()).unwrap();
        let (client, namespace) = setup.client();
        setup.wait(async move { objects::namespace(&client, &namespace).await });
        setup
    }

    fn config(&self) -> String {
        serde_norway::to_string(&self.shared.server.config_with(&self.shared.token)).unwrap()
    }

    fn client(&self) -> (Client, String) {
        (self.shared.admin.clone(), self.namespace.clone())
    }

    /// A client with all rights, for use in [`Setup::wait`].
    pub fn admin(&self) -> Client {
        self.shared.admin.clone()
    }

    /// The kubeconfig of Multus.
    pub fn kubeconfig(&self) -> PathBuf {
        self.node.path("multus.kubeconfig")
    }

    /// The token of Multus' account.
    pub fn token(&self) -> &str {
        &self.shared.token
    }

    /// The API server.
    pub fn server(&self) -> &'static Server {
        self.shared.server
    }

    /// The port of the API server on this node's loopback.
    pub fn port(&self) -> u16 {
        self.shared.server.port()
    }

    /// The thin plugin of this node.
    pub fn thin(&self) -> Multus<'n> {
        Multus::thin(self.node, &self.kubeconfig())
    }

    /// Runs `work` in the machine's network and waits for its result.
    pub fn wait<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let (done, answer) = mpsc::channel();
        self.shared.runtime.spawn(async move {
            let _ = done.send(work.await);
        });
        answer.recv().expect("the API server does what a test asks of it")
    }

    /// A network of this test's namespace.
    pub fn network(&self, name: &str, config: &Value) {
        self.network_of(&self.namespace, name, &config.to_string(), None);
    }

    /// A network with any text as configuration, and a resource of a device plugin.
    pub fn network_of(&self, namespace: &str, name: &str, config: &str, resource: Option<&str>) {
        let client = self.shared.admin.clone();
        let [namespace, name, config] = [namespace, name, config].map(str::to_owned);
        let resource = resource.map(str::to_owned);
        self.wait(async move {
            objects::network(&client, &namespace, &name, &config, resource.as_deref()).await;
        });
    }

    /// Creates another namespace.
    pub fn another_namespace(&self) -> String {
        let (client, namespace) = self.client();
        let name = format!("{namespace}-other");
        let made = name.clone();
        self.wait(async move { objects::namespace(&client, &made).await });
        name
    }

    /// A pod that requests networks in this annotation, and its sandbox on this node.
    pub fn pod(&self, name: &str, wanted: &str) -> (Pod<'n>, PodIdentity) {
        let (client, namespace) = self.client();
        let [name, wanted] = [name, wanted].map(str::to_owned);
        let identity =
            self.wait(async move { objects::pod(&client, &namespace, &name, "node-1", &wanted).await });
        (self.node.pod(), identity)
    }

    /// Deletes the pod's object.
    pub fn delete(&self, pod: &PodIdentity) {
        let (client, pod) = (self.shared.admin.clone(), pod.clone());
        self.wait(async move { objects::delete(&client, &pod).await });
    }

    /// The network status that Multus wrote to a pod, the cluster's default network first.
    pub fn status(&self, pod: &PodIdentity) -> Vec<Value> {
        let (client, pod) = (self.shared.admin.clone(), pod.clone());
        self.wait(async move { objects::status(&client, &pod).await })
    }

    /// The messages of the events about a pod.
    pub fn events(&self, pod: &PodIdentity) -> Vec<String> {
        let (client, pod) = (self.shared.admin.clone(), pod.clone());
        self.wait(async move { objects::events(&client, &pod).await })
    }
}

/// Gives the node its own copies of the directories that Multus, kubelet and the plugins use at fixed paths.
fn own_directories() {
    for directory in ["/run", "/var/lib"] {
        mount(
            Some("tmpfs"),
            directory,
            Some("tmpfs"),
            MsFlags::empty(),
            None::<&str>,
        )
        .unwrap_or_else(|e| panic!("a {directory} of the node's own: {e}"));
    }
    for directory in ["/var/lib/kubelet", "/run/netns"] {
        fs::create_dir_all(directory).unwrap();
    }
    // As on any node of a cluster; a pod network enables forwarding with its first pod.
    for file in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        fs::write(Path::new("/proc/sys/net").join(file), "1").unwrap();
    }
}
