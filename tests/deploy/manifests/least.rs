// SPDX-License-Identifier: Apache-2.0
//! The pods in the manifests of `conf/` request no more rights than they need.

use crate::values::variable;
use deploy::manifests::{DIRECTORIES, find, kustomized};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The directories of all distributions. No flag of the installer names GKE, so `DIRECTORIES` lacks its overlay.
fn directories() -> impl Iterator<Item = &'static str> {
    DIRECTORIES
        .into_iter()
        .map(|(_, directory)| directory)
        .chain(["overlays/gke"])
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers"]
        .into_iter()
        .filter_map(|list| pod[list].as_array())
        .flatten()
}

#[test]
fn containers_are_unprivileged_read_only_and_cannot_escalate_privileges() {
    let agents = directories().map(|directory| (directory, "rdmanet-agent"));
    for (directory, daemonset) in agents.chain([("uninstall", "rdmanet-uninstall")]) {
        let objects = kustomized(directory);
        let pod = &find(&objects, "DaemonSet", daemonset)["spec"]["template"]["spec"];
        assert_eq!(pod["automountServiceAccountToken"], false);
        for shared in ["hostPID", "hostIPC", "shareProcessNamespace"] {
            assert_eq!(pod.get(shared), None, "{directory}: {shared}");
        }
        for container in containers(pod) {
            let context = &container["securityContext"];
            assert_eq!(context.get("privileged"), None, "{directory}");
            assert_eq!(context["readOnlyRootFilesystem"], true, "{directory}");
            assert_eq!(context["allowPrivilegeEscalation"], false, "{directory}");
            assert_eq!(context["capabilities"]["drop"], json!(["ALL"]), "{directory}");
        }
    }
}

/// kubelet's default timeout of a probe is one second. A busy node takes longer, and the pod would become unready.
#[test]
fn every_probe_has_five_seconds_to_answer() {
    let pods = [
        ("base", "DaemonSet", "rdmanet-agent"),
        ("base", "Deployment", "rdmanet-controller"),
        ("uninstall", "DaemonSet", "rdmanet-uninstall"),
    ];
    let mut probes = 0;
    for (directory, kind, name) in pods {
        let objects = kustomized(directory);
        for container in containers(&find(&objects, kind, name)["spec"]["template"]["spec"]) {
            for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
                if let Some(probe) = container.get(probe) {
                    probes += 1;
                    assert_eq!(probe["timeoutSeconds"], 5, "{name}: {probe}");
                }
            }
        }
    }
    assert_eq!(probes, 7);
}

/// kubelet probes a pod at its first address, which is an IPv6 address in many clusters.
#[test]
fn a_probe_without_a_host_needs_a_port_of_both_families() {
    let objects = kustomized("base");
    let mut without_host = 0;
    for (kind, name) in [
        ("DaemonSet", "rdmanet-agent"),
        ("Deployment", "rdmanet-controller"),
    ] {
        for container in containers(&find(&objects, kind, name)["spec"]["template"]["spec"]) {
            let probe = &container["readinessProbe"]["httpGet"];
            if probe.is_object() && probe.get("host").is_none() {
                without_host += 1;
                let listen = variable(container, "RDMANET_LISTEN").unwrap();
                assert!(listen.as_str().unwrap().starts_with("[::]:"), "{name}: {listen}");
            }
        }
    }
    assert_eq!(without_host, 1, "the controller's");
}

/// The paths of the node that a container mounts, and whether it may write there.
fn host_paths(pod: &Value, container: &Value) -> BTreeSet<(String, bool)> {
    let volumes = pod["volumes"].as_array().unwrap();
    let mounts = container["volumeMounts"].as_array().into_iter().flatten();
    mounts
        .filter_map(|mount| {
            let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]);
            let path = volume.unwrap()["hostPath"]["path"].as_str()?.to_owned();
            Some((path, mount["readOnly"] != true))
        })
        .collect()
}

/// The capabilities that a container adds.
fn added(container: &Value) -> Vec<&str> {
    let added = container["securityContext"]["capabilities"]["add"].as_array();
    added
        .into_iter()
        .flatten()
        .map(|one| one.as_str().unwrap())
        .collect()
}

fn paths(of: &[(&str, bool)]) -> BTreeSet<(String, bool)> {
    of.iter()
        .map(|(path, writes)| ((*path).to_owned(), *writes))
        .collect()
}

/// The directory of plugins in a directory's distribution; `auto` detects it on each node.
fn plugins(directory: &str) -> &str {
    match directory {
        "base" | "overlays/talos" => "/opt/cni/bin",
        "overlays/k3s" => "/var/lib/rancher/k3s/data/cni",
        "overlays/microk8s" => "/var/snap/microk8s/current/opt/cni/bin",
        "overlays/openshift" => "/var/lib/cni/bin",
        "overlays/gke" => "/home/kubernetes/bin",
        "overlays/auto" => "/",
        other => panic!("{other} is new: say what its installer may see"),
    }
}

#[test]
fn on_openshift_only_the_uninstaller_has_the_sys_admin_capability() {
    let objects = kustomized("overlays/openshift");
    let constraints = |name| find(&objects, "SecurityContextConstraints", name);
    assert_eq!(
        constraints("rdmanet-agent")["allowedCapabilities"],
        json!(["DAC_OVERRIDE", "NET_ADMIN"])
    );
    assert_eq!(
        constraints("rdmanet-uninstall")["allowedCapabilities"],
        json!(["DAC_OVERRIDE", "SYS_ADMIN"])
    );
    for name in ["rdmanet-agent", "rdmanet-uninstall"] {
        assert_eq!(constraints(name)["users"], json!([]));
        let rule = &find(&objects, "Role", &format!("{name}-scc"))["rules"][0];
        assert_eq!(rule["resourceNames"], json!([name]));
        let subjects = &find(&objects, "RoleBinding", &format!("{name}-scc"))["subjects"];
        assert_eq!(subjects[0]["name"], name);
    }
    let pod = kustomized("uninstall");
    let pod = &find(&pod, "DaemonSet", "rdmanet-uninstall")["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], "rdmanet-uninstall");
    let annotations = &find(&objects, "Namespace", "rdmanet-system")["metadata"]["annotations"];
    assert_eq!(annotations["openshift.io/node-selector"], "");
}

#[test]
fn the_controller_needs_nothing_of_its_node() {
    let objects = kustomized("base");
    let pod = &find(&objects, "Deployment", "rdmanet-controller")["spec"]["template"]["spec"];
    for key in ["volumes", "hostNetwork", "hostPID", "hostIPC", "initContainers"] {
        assert_eq!(pod.get(key), None, "{key}");
    }
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    for container in containers(pod) {
        let context = &container["securityContext"];
        assert_eq!(context["readOnlyRootFilesystem"], true);
        assert_eq!(context["allowPrivilegeEscalation"], false);
        assert_eq!(context["capabilities"], json!({ "drop": ["ALL"] }));
    }
}

#[test]
fn each_container_has_only_the_host_paths_and_capabilities_it_needs() {
    let of_agent = paths(&[
        ("/var/lib/cni/rdma-ipam", true),
        ("/run/rdmanet/agent", true),
        ("/var/run/netns", false),
    ]);
    let of_collector = paths(&[
        ("/run/rdmanet", true),
        ("/var/run/k8s.cni.cncf.io", true),
        ("/var/run/netns", false),
    ]);
    for directory in directories() {
        let objects = kustomized(directory);
        let pod = &find(&objects, "DaemonSet", "rdmanet-agent")["spec"]["template"]["spec"];
        let (agent, installer) = (&pod["containers"][0], &pod["initContainers"][0]);
        let collector = &pod["containers"][1];
        assert_eq!(
            containers(pod).count(),
            3,
            "{directory}: a container that no test knows"
        );
        assert_eq!(host_paths(pod, agent), of_agent, "{directory}");
        assert_eq!(added(agent), [""; 0], "{directory}");
        assert_eq!(host_paths(pod, collector), of_collector, "{directory}");
        assert_eq!(added(collector), ["NET_ADMIN"], "{directory}");
        assert_eq!(
            host_paths(pod, installer),
            paths(&[(plugins(directory), true)]),
            "{directory}"
        );
        assert_eq!(added(installer), ["DAC_OVERRIDE"], "{directory}");
    }
    let objects = kustomized("uninstall");
    let pod = &find(&objects, "DaemonSet", "rdmanet-uninstall")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(containers(pod).count(), 1);
    assert_eq!(host_paths(pod, container), paths(&[("/", true)]));
    assert_eq!(added(container), ["DAC_OVERRIDE", "SYS_ADMIN"]);
}

/// A volume of another type, such as a Secret, could bypass the check of the paths.
#[test]
fn only_the_agent_container_has_a_service_account_token() {
    for directory in directories() {
        let objects = kustomized(directory);
        let pod = &find(&objects, "DaemonSet", "rdmanet-agent")["spec"]["template"]["spec"];
        let others = pod["volumes"].as_array().unwrap().iter();
        let others: Vec<&Value> = others.filter(|volume| volume.get("hostPath").is_none()).collect();
        assert_eq!(others.len(), 1, "{directory}");
        assert_eq!(
            others[0]["projected"]["sources"].as_array().unwrap().len(),
            3,
            "{directory}"
        );
        let installer = &pod["initContainers"][0]["volumeMounts"];
        assert_eq!(installer.as_array().unwrap().len(), 1, "{directory}");
        assert_ne!(installer[0]["name"], others[0]["name"], "{directory}");
        let collector = pod["containers"][1]["volumeMounts"].as_array().unwrap();
        assert_eq!(pod["containers"][1].get("env"), None, "{directory}");
        for mount in collector {
            assert_ne!(mount["name"], others[0]["name"], "{directory}");
        }
    }
}

#[test]
fn agents_tolerate_all_taints_and_have_no_resource_limits() {
    for directory in directories() {
        let objects = kustomized(directory);
        let pod = &find(&objects, "DaemonSet", "rdmanet-agent")["spec"]["template"]["spec"];
        assert_eq!(
            pod["tolerations"],
            json!([{ "operator": "Exists" }]),
            "{directory}"
        );
        assert_eq!(pod["priorityClassName"], "system-node-critical", "{directory}");
        for container in containers(pod) {
            assert_eq!(container["resources"].get("limits"), None, "{directory}");
        }
    }
}
