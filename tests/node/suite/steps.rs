// SPDX-License-Identifier: Apache-2.0
//! What several tests do to a cluster, and what they wait for: conditions, Events and logs, a port's cable, the agents' flags.

use crate::cluster::Cluster;
use crate::workload::single;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A label that no node has.
const NOWHERE: &str = "rdmanet.io/nowhere";
/// A route that keeps the agent and the kubelet of a node away from the service `kubernetes`.
pub(crate) const NO_ROUTE: &str = "unreachable 10.0.2.97/32";

/// The conditions of an object's status.
pub(crate) fn conditions(object: &Value) -> Vec<Value> {
    object["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default()
}

/// Waits until a condition of the object `words` has this status and reason.
pub(crate) fn becomes(cluster: &Cluster, words: &str, kind: &str, status: &str, reason: &str) {
    cluster.until(&format!("{kind} of {words} is {status}: {reason}"), || {
        let conditions = conditions(&cluster.get(words));
        let is = |one: &&Value| one["type"] == kind && one["status"] == status && one["reason"] == reason;
        conditions
            .iter()
            .find(is)
            .map(drop)
            .ok_or_else(|| format!("{conditions:?}"))
    });
}

pub(crate) fn links_become(cluster: &Cluster, node: &str, status: &str, reason: &str) {
    becomes(
        cluster,
        &format!("node {node}"),
        "rdmanet.io/LinksReady",
        status,
        reason,
    );
}

/// Plugs the cable of a port, or pulls it.
pub(crate) fn set_cable(cluster: &Cluster, port: &str, state: &str) {
    let device = port.strip_prefix("ib").unwrap();
    let script = format!("echo {state} >/sys/devices/platform/softib.{device}/link");
    shell(cluster, "vm", &script);
}

/// The same for the port of node-2.
pub(crate) fn cable(cluster: &Cluster, state: &str) {
    set_cable(cluster, "ib1", state);
}

/// What a shell script prints on a node. The script must succeed.
pub(crate) fn shell(cluster: &Cluster, node: &str, script: &str) -> String {
    cluster.at(node, &["sh", "-c", script])
}

/// The log of the agent on a node.
pub(crate) fn agent_log(cluster: &Cluster, node: &str) -> String {
    cluster.until(&format!("the log of the agent of {node}"), || {
        let agent = agent_of(cluster, node)?;
        let name = agent["metadata"]["name"].as_str().unwrap();
        let words = ["-n", "rdmanet-system", "logs", name, "-c", "agent"];
        cluster.try_kubectl(&words)
    })
}

/// The value of a metric that the agent of a node serves, by its name and labels; `None` if the agent does not serve it.
pub(crate) fn metric(cluster: &Cluster, node: &str, name: &str) -> Option<u64> {
    let url = "http://127.0.0.1:9471/metrics";
    let text = cluster.until(&format!("the metrics of the agent of {node}"), || {
        cluster.try_at(node, &["wget", "-qO-", url])
    });
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.trim().parse().unwrap())
}

/// The Events of one object, from some moment on.
pub(crate) struct Events {
    selector: String,
    before: BTreeSet<String>,
}

impl Events {
    /// The Events of the Node `name` from now on.
    pub(crate) fn of_node_from_now(cluster: &Cluster, name: &str) -> Self {
        let selector = format!("involvedObject.kind=Node,involvedObject.name={name}");
        let before = versions_of_events(cluster, &selector);
        Self { selector, before }
    }

    /// All Events of the pool `name`, and of no earlier pool with the name.
    pub(crate) fn of_pool(cluster: &Cluster, name: &str) -> Self {
        let pool = cluster.get(&format!("ippool {name}"));
        let uid = pool["metadata"]["uid"].as_str().unwrap();
        Self {
            selector: format!("involvedObject.kind=IPPool,involvedObject.uid={uid}"),
            before: BTreeSet::new(),
        }
    }

    /// Waits for an Event with this reason and type.
    pub(crate) fn wait(&self, cluster: &Cluster, reason: &str, severity: &str) {
        let about = &self.selector;
        let selector = format!("{about},reason={reason},type={severity}");
        cluster.until(&format!("there is an Event with {selector}"), || {
            if versions_of_events(cluster, &selector).is_subset(&self.before) {
                Err(cluster.kubectl(&format!("get events --all-namespaces --field-selector {about}")))
            } else {
                Ok(())
            }
        });
    }
}

/// The Events that the selector finds, each with its version: an Event that is published again has a new version.
fn versions_of_events(cluster: &Cluster, selector: &str) -> BTreeSet<String> {
    let list = cluster.get(&format!("events --all-namespaces --field-selector {selector}"));
    let events = list["items"].as_array().unwrap().iter();
    events
        .map(|event| {
            format!(
                "{} {}",
                event["metadata"]["uid"], event["metadata"]["resourceVersion"]
            )
        })
        .collect()
}

/// Waits until `rdmanet explain` finds this code in what kubectl prints about a pod.
pub(crate) fn has_code(cluster: &Cluster, pod: &str, code: u32) {
    cluster.until(&format!("pod {pod} is refused with code {code}"), || {
        let description = cluster.kubectl(&format!("describe pod {pod}"));
        let explained = cluster.rdmanet_args(&["explain", &description]);
        if explained.contains(&format!("code {code},")) {
            Ok(())
        } else {
            Err(format!("{explained}\n{description}"))
        }
    });
}

/// Applies a pod that is refused, and waits until it has this code.
pub(crate) fn refused(cluster: &Cluster, name: &str, network: &str, node: &str, code: u32) {
    cluster.apply(&[single(name, network, Some(node))]);
    has_code(cluster, name, code);
}

/// Sets or removes a variable of the agents, and waits until all run with it.
pub(crate) fn set_agents(cluster: &Cluster, variable: &str) {
    cluster.kubectl(&format!(
        "-n rdmanet-system set env daemonset/rdmanet-agent --containers=agent {variable}"
    ));
    cluster.rolled_out("rdmanet-system", "daemonset/rdmanet-agent");
}

/// The pod of the agent on a node.
pub(crate) fn agent_of(cluster: &Cluster, node: &str) -> Result<Value, String> {
    let agents = cluster.get(&format!(
        "-n rdmanet-system pods -l app.kubernetes.io/name=rdmanet-agent --field-selector spec.nodeName={node}"
    ));
    let agent = agents["items"][0].clone();
    if agent.is_null() {
        Err(format!("no agent on {node}"))
    } else {
        Ok(agent)
    }
}

/// Sets the label that a node must have for an agent. `null` is none, as in the manifests.
pub(crate) fn agents_on(cluster: &Cluster, label: &Value) {
    let patch = json!({ "spec": { "template": { "spec": { "nodeSelector": { NOWHERE: label } } } } });
    cluster.kubectl(&format!(
        "-n rdmanet-system patch daemonset rdmanet-agent --type merge -p {patch}"
    ));
}

/// Waits until no pod of rdmanet with this name is left.
pub(crate) fn none_of(cluster: &Cluster, name: &str) {
    cluster.until(&format!("no pod of {name} is left"), || {
        let left = cluster.kubectl(&format!(
            "-n rdmanet-system get pods -l app.kubernetes.io/name={name} -o name"
        ));
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
}
