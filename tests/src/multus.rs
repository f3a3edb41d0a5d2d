// SPDX-License-Identifier: Apache-2.0
//! Multus, called as a container runtime calls it: with the pod in `CNI_ARGS` and `eth0` as the interface.

use crate::{Answer, Call, Node, Pod, programs};
use serde_json::{Value, json};
use std::path::Path;

/// A pod in the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodIdentity {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// A program of Multus and the configuration that a runtime finds in `/etc/cni/net.d`.
#[derive(Clone)]
pub struct Multus<'n> {
    node: &'n Node,
    program: &'static str,
    conf: Value,
}

impl<'n> Multus<'n> {
    /// The thin plugin: one process per call, which reads from the API server itself. The cluster's own network is a
    /// veth pair with the pod's default route.
    pub fn thin(node: &'n Node, kubeconfig: &Path) -> Self {
        let conf = json!({
            "cniVersion": "1.1.0", "name": "multus-cni-network", "type": "multus",
            "kubeconfig": kubeconfig, "binDir": node.path("bin"), "confDir": node.path("multus"),
            "delegates": [cluster_network()],
        });
        Self::with(node, "multus", conf)
    }

    /// The thick plugin's shim with the configuration that the daemon wrote.
    pub fn shim(node: &'n Node, conf: Value) -> Self {
        Self::with(node, "multus-shim", conf)
    }

    fn with(node: &'n Node, program: &'static str, conf: Value) -> Self {
        Self { node, program, conf }
    }

    /// Sets `key` of the configuration to `value`.
    #[must_use]
    pub fn set(mut self, key: &str, value: Value) -> Self {
        self.conf[key] = value;
        self
    }

    /// A call for a sandbox of the pod `of`.
    pub fn call(&self, command: &str, sandbox: &Pod, of: &PodIdentity) -> Call {
        let PodIdentity { namespace, name, uid } = of;
        let id = &sandbox.id;
        Call::new(&programs::multus().join(self.program))
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", id)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_NETNS", &sandbox.netns)
            .env("CNI_PATH", std::env::join_paths(self.node.cni_path()).unwrap())
            .env(
                "CNI_ARGS",
                format!(
                    "IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};\
                     K8S_POD_INFRA_CONTAINER_ID={id};K8S_POD_UID={uid}"
                ),
            )
            .stdin(self.conf.to_string())
    }

    /// Calls ADD, which may fail. If the only error is that the API server did not respond within the thin plugin's
    /// limit of a quarter of a second, calls DEL and retries, as a kubelet does. A busy or emulated machine takes
    /// longer.
    pub fn add(&self, sandbox: &Pod, of: &PodIdentity) -> Answer {
        for _ in 0..20 {
            let answer = self.call("ADD", sandbox, of).run();
            if !answer.stdout.contains("context deadline exceeded") {
                return answer;
            }
            self.del(sandbox, of);
        }
        self.call("ADD", sandbox, of).run()
    }

    /// Calls DEL, which must succeed.
    #[track_caller]
    pub fn del(&self, sandbox: &Pod, of: &PodIdentity) {
        self.call("DEL", sandbox, of).run().done();
    }
}

/// A pod network as small clusters have it, with `host-local` leases in their default place.
pub fn cluster_network() -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "cluster", "plugins": [{
            "type": "ptp",
            "ipam": {
                "type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    })
}
