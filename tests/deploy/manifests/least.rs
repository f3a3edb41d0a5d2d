// SPDX-License-Identifier: Apache-2.0
//! The pods that we start ask for no more than they need.

use deploy::manifests::{FOLDERS, find, kustomized};
use serde_json::{Value, json};

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers"]
        .into_iter()
        .filter_map(|list| pod[list].as_array())
        .flatten()
}

#[test]
fn no_container_is_privileged_writes_its_image_or_gains_rights() {
    let mut pods = FOLDERS.map(|(_, folder)| (folder, "rdmanet-agent")).to_vec();
    pods.push(("uninstall", "rdmanet-uninstall"));
    for (folder, daemonset) in pods {
        let objects = kustomized(folder);
        let pod = &find(&objects, "DaemonSet", daemonset)["spec"]["template"]["spec"];
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert_eq!(pod.get("hostPID"), None);
        for container in containers(pod) {
            let context = &container["securityContext"];
            assert_eq!(context.get("privileged"), None, "{folder}");
            assert_eq!(context["readOnlyRootFilesystem"], true, "{folder}");
            assert_eq!(context["allowPrivilegeEscalation"], false, "{folder}");
            assert_eq!(context["capabilities"]["drop"], json!(["ALL"]), "{folder}");
        }
    }
}

#[test]
fn the_agent_has_no_capability_and_cannot_reach_the_plugins() {
    for (_, folder) in FOLDERS {
        let objects = kustomized(folder);
        let pod = &find(&objects, "DaemonSet", "rdmanet-agent")["spec"]["template"]["spec"];
        let agent = &pod["containers"][0];
        assert_eq!(
            agent["securityContext"]["capabilities"].get("add"),
            None,
            "{folder}"
        );
        let mounts = agent["volumeMounts"].as_array().unwrap();
        assert!(mounts.iter().all(|mount| mount["name"] != "plugins"), "{folder}");
    }
}

#[test]
fn the_installer_has_no_token() {
    for (_, folder) in FOLDERS {
        let objects = kustomized(folder);
        let pod = &find(&objects, "DaemonSet", "rdmanet-agent")["spec"]["template"]["spec"];
        let mounts = pod["initContainers"][0]["volumeMounts"].as_array().unwrap();
        assert_eq!(mounts.len(), 1, "{folder}");
        assert_eq!(mounts[0]["name"], "plugins", "{folder}");
    }
}

#[test]
fn no_node_is_without_an_agent_and_no_agent_is_killed_for_its_memory() {
    for (_, folder) in FOLDERS {
        let objects = kustomized(folder);
        let pod = &find(&objects, "DaemonSet", "rdmanet-agent")["spec"]["template"]["spec"];
        assert_eq!(pod["tolerations"], json!([{ "operator": "Exists" }]), "{folder}");
        assert_eq!(pod["priorityClassName"], "system-node-critical", "{folder}");
        for container in containers(pod) {
            assert_eq!(container["resources"].get("limits"), None, "{folder}");
        }
    }
}
