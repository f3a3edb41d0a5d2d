// SPDX-License-Identifier: Apache-2.0
//! The objects of a lab that ran RDMA in Kubernetes before rdmanet: a `HostDeviceNetwork` and an `IPoIBNetwork` of NVIDIA's network
//! operator, as the networks that the operator makes of them, and a pod that requests the operator's resource.
//!
//! Invariant: the pod of each object has an Event with a sentence that names what to change, and each pod can be deleted. With the changes
//! the pods get their interfaces.

use crate::cluster::Cluster;
use crate::witnesses::{agree, pods};
use serde_json::{Value, json};

/// The operator's resource for whole ports.
const HOSTDEV: &str = "nvidia.com/hostdev";

/// The IPAM section of the lab's networks.
fn whereabouts() -> Value {
    json!({
        "type": "whereabouts",
        "datastore": "kubernetes",
        "kubernetes": { "kubeconfig": "/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig" },
        "range": "192.168.5.152/27",
        "exclude": ["192.168.5.151/32"],
        "log_file": "/var/log/whereabouts.log",
        "log_level": "info",
    })
}

/// The same section with another `type`.
fn renamed() -> Value {
    let mut ipam = whereabouts();
    ipam["type"] = json!("rdma-ipam");
    ipam
}

fn pool() -> Value {
    json!({ "type": "rdma-ipam", "pool": "rail0" })
}

/// A network, and a pod of the same name that has it.
struct Trial {
    name: &'static str,
    /// The node of the pod; without one, the scheduler chooses.
    node: Option<&'static str>,
    /// What the pod requests.
    resources: Value,
    /// The plugin's configuration without its name and version.
    config: Value,
}

impl Trial {
    fn new(name: &'static str, node: &'static str, config: Value) -> Self {
        Self {
            name,
            node: Some(node),
            resources: json!({}),
            config,
        }
    }

    /// The network and the pod.
    fn objects(&self) -> [Value; 2] {
        let mut config = self.config.clone();
        config["cniVersion"] = json!("0.3.1");
        config["name"] = json!(self.name);
        let network = json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": { "name": self.name, "annotations": { "k8s.v1.cni.cncf.io/resourceName": HOSTDEV } },
            "spec": { "config": config.to_string() },
        });
        let container = json!({
            "name": "main", "image": "localhost/rdma:1", "imagePullPolicy": "Never", "command": ["sleep", "infinity"],
            "securityContext": { "capabilities": { "add": ["IPC_LOCK"] } },
            "resources": { "requests": self.resources, "limits": self.resources },
        });
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": self.name, "labels": { "app": "seeds" },
                "annotations": { "k8s.v1.cni.cncf.io/networks": self.name },
            },
            "spec": { "terminationGracePeriodSeconds": 1, "containers": [container] },
        });
        if let Some(node) = self.node {
            pod["spec"]["nodeName"] = json!(node);
        }
        [network, pod]
    }

    /// Waits until an Event of the pod has each of these words.
    fn is_refused(&self, cluster: &Cluster, words: &[&str]) {
        let name = self.name;
        cluster.until(&format!("an Event of pod {name} has {words:?}"), || {
            let events = cluster.get(&format!("events --field-selector involvedObject.name={name}"));
            let items = events["items"].as_array().unwrap();
            let messages: Vec<&str> = items
                .iter()
                .filter_map(|event| event["message"].as_str())
                .collect();
            let found = messages
                .iter()
                .any(|message| words.iter().all(|word| message.contains(word)));
            if found { Ok(()) } else { Err(messages.join("\n")) }
        });
    }
}

/// Deletes all pods and networks of the trials. A refused pod must not stay.
fn clean_up(cluster: &Cluster, trials: &[Trial]) {
    cluster.kubectl("delete pods -l app=seeds --wait=false");
    cluster.until("the pods are gone", || {
        let left = cluster.kubectl("get pods -l app=seeds -o name");
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
    for trial in trials {
        cluster.kubectl(&format!("delete network-attachment-definitions {}", trial.name));
    }
    agree(cluster, 0);
}

/// Has the installer put `cni-ipoib` under the names of the operator's plugins, as docs/install.md has it.
fn under_the_names_of_peers(cluster: &Cluster) {
    cluster.kubectl(
        "-n rdmanet-system set env daemonset/rdmanet-agent --containers=install RDMANET_PEER_NAMES=ipoib,host-device",
    );
    cluster.rolled_out("rdmanet-system", "daemonset/rdmanet-agent");
}

/// Each refused network has the change of the refusal before it.
fn refused() -> [(Trial, &'static [&'static str]); 5] {
    let as_written = Trial {
        name: "as-written",
        node: None,
        resources: json!({ HOSTDEV: "1", "nvidia.com/gpu": "1" }),
        config: json!({ "type": "host-device", "ipam": whereabouts() }),
    };
    let without_resource = json!({ "type": "host-device", "ipam": whereabouts() });
    let without_whereabouts = json!({ "type": "host-device", "device": "ib0", "ipam": whereabouts() });
    let another_type = json!({ "type": "host-device", "device": "ib0", "ipam": renamed() });
    let another_port = json!({ "type": "ipoib", "master": "ibs1", "ipam": pool() });
    [
        (as_written, &["Insufficient nvidia.com/hostdev"]),
        (
            Trial::new("without-resource", "node-1", without_resource),
            &["set device, hwaddr, kernelpath or pciBusID, or have a device plugin set deviceID"],
        ),
        (
            Trial::new("without-whereabouts", "node-1", without_whereabouts),
            &[
                "whereabouts",
                "is not in CNI_PATH",
                "install it there or correct ipam.type",
                "rdmanet error 103",
            ],
        ),
        (
            Trial::new("another-type", "node-1", another_type),
            &[
                "ipam.datastore",
                "name an IPPool by ipam.pool",
                "`rdmanet import whereabouts` makes one",
            ],
        ),
        (
            Trial::new("another-port", "node-2", another_port),
            &["ibs1", "does not exist", "RDMA-capable links of this node: ib1"],
        ),
    ]
}

/// The networks with the changes that the refusals name: a whole port, and a child of one.
fn corrected() -> [Trial; 2] {
    let whole_port = json!({ "type": "host-device", "device": "ib0", "ipam": pool() });
    let child = json!({ "type": "ipoib", "master": "ib1", "ipam": pool() });
    [
        Trial::new("whole-port", "node-1", whole_port),
        Trial::new("child", "node-2", child),
    ]
}

/// Starts the pods of the corrected networks.
fn start(cluster: &Cluster, trials: &[Trial]) {
    for trial in trials {
        cluster.apply(&trial.objects());
    }
    cluster.until("the pods of the corrected networks are ready", || {
        let ready = pods(cluster, "seeds");
        if ready.len() == trials.len() {
            Ok(())
        } else {
            Err(cluster.kubectl("describe pods -l app=seeds"))
        }
    });
}

#[test]
fn each_object_of_the_operator_is_refused_with_the_remedy_and_works_with_it() {
    let cluster = Cluster::lock();
    under_the_names_of_peers(&cluster);
    let refused = refused();
    for (trial, _) in &refused {
        cluster.apply(&trial.objects());
    }
    for (trial, words) in &refused {
        trial.is_refused(&cluster, words);
    }
    clean_up(&cluster, &refused.map(|(trial, _)| trial));

    let port = ["ip", "link", "show", "ib0"];
    let corrected = corrected();
    start(&cluster, &corrected);
    agree(&cluster, corrected.len());
    cluster
        .try_at("node-1", &port)
        .expect_err("the node still has the port of the pod");
    clean_up(&cluster, &corrected);
    cluster.at("node-1", &port);
    cluster.kubectl(
        "-n rdmanet-system set env daemonset/rdmanet-agent --containers=install RDMANET_PEER_NAMES-",
    );
    cluster.rolled_out("rdmanet-system", "daemonset/rdmanet-agent");
}
