// SPDX-License-Identifier: Apache-2.0
//! The values of the chart, and the values that it rejects.

use deploy::manifests::{NAMESPACE, chart, find, kind, kustomized, templated, tool};
use deploy::workspace;
use serde_json::{Value, json};

const IMAGE: &str = "image=registry.example/net/rdmanet-agent:0.1.0";

fn pod(values: &[&str]) -> Value {
    let objects = templated(NAMESPACE, &[&[IMAGE], values].concat()).unwrap();
    find(&objects, "DaemonSet", "rdmanet-agent")["spec"]["template"]["spec"].clone()
}

pub(crate) fn variable(container: &Value, name: &str) -> Option<Value> {
    let all = container["env"].as_array().unwrap();
    all.iter()
        .find(|one| one["name"] == name)
        .map(|one| one["value"].clone())
}

#[test]
fn invalid_chart_values_are_refused_with_the_path_or_the_allowed_values() {
    let cases: [(&[&str], &str); 19] = [
        (&[], "missing property 'image'"),
        (&["image="], "at '/image'"),
        (&["image=rdmanet-agent"], "at '/image'"),
        (
            &[IMAGE, "distribution=openshift4"],
            "value must be one of 'auto', 'kubeadm', 'k3s'",
        ),
        (&[IMAGE, "cniBinDir=opt/cni/bin"], "at '/cniBinDir'"),
        (&[IMAGE, "cniBinDir=/"], "at '/cniBinDir'"),
        (&[IMAGE, "listen=9471"], "at '/listen'"),
        (
            &[IMAGE, "logLevel=verbose"],
            "value must be one of 'error', 'warn'",
        ),
        (&[IMAGE, "quarantine=10"], "at '/quarantine'"),
        (&[IMAGE, "quarantine=0s"], "at '/quarantine'"),
        (&[IMAGE, "quarantine=1m"], "at '/quarantine'"),
        (&[IMAGE, "quarantineInUse=sometimes"], "at '/quarantineInUse'"),
        (&[IMAGE, "links=ib0 ib1"], "at '/links'"),
        (&[IMAGE, "maxUnavailable=0"], "at '/maxUnavailable'"),
        (
            &[IMAGE, "replaceForeign=perhaps"],
            "at '/replaceForeign': got string, want boolean",
        ),
        (
            &[IMAGE, "peerNames={bridge}"],
            "value must be one of 'ipoib', 'macvlan', 'host-device'",
        ),
        (
            &[IMAGE, "imagePullPolicy=Sometimes"],
            "value must be one of 'Always', 'IfNotPresent', 'Never'",
        ),
        (
            &[IMAGE, "resources.request.cpu=1"],
            "additional properties 'request' not allowed",
        ),
        (
            &[IMAGE, "tolerate=everything"],
            "additional properties 'tolerate' not allowed",
        ),
    ];
    for (values, sentence) in cases {
        let error = templated(NAMESPACE, values).expect_err(&format!("{values:?} is accepted"));
        assert!(
            error.contains(sentence),
            "{values:?}: {sentence:?} is not in: {error}"
        );
    }
}

#[test]
fn all_containers_use_the_image_and_its_pull_secrets() {
    let pod = pod(&["imagePullPolicy=Always", "imagePullSecrets={one,two}"]);
    for container in [
        &pod["initContainers"][0],
        &pod["containers"][0],
        &pod["containers"][1],
    ] {
        assert_eq!(container["image"], "registry.example/net/rdmanet-agent:0.1.0");
        assert_eq!(container["imagePullPolicy"], "Always");
    }
    assert_eq!(
        pod["imagePullSecrets"],
        json!([{ "name": "one" }, { "name": "two" }])
    );
}

#[test]
fn cni_bin_dir_overrides_the_directory_of_the_distribution() {
    let pod = pod(&["distribution=k3s", "cniBinDir=/srv/cni"]);
    assert_eq!(pod["volumes"][0]["hostPath"]["path"], "/srv/cni");
    let install = &pod["initContainers"][0];
    assert_eq!(install["volumeMounts"][0]["mountPath"], "/host/srv/cni");
    assert_eq!(variable(install, "RDMANET_CNI_BIN_DIR"), Some(json!("/srv/cni")));
}

#[test]
fn chart_values_become_variables_of_the_agent_and_the_installer() {
    let pod_spec = pod(&[
        "replaceForeign=true",
        "peerNames={ipoib,host-device}",
        "logLevel=debug",
        "quarantine=1h30m",
        "quarantineInUse=24h",
        "links=ib*\\,bond0",
        "resources.limits.memory=1Gi",
    ]);
    assert_eq!(
        variable(&pod_spec["initContainers"][0], "RDMANET_REPLACE_FOREIGN"),
        Some(json!("true"))
    );
    assert_eq!(
        variable(&pod_spec["initContainers"][0], "RDMANET_PEER_NAMES"),
        Some(json!("ipoib,host-device"))
    );
    let agent = &pod_spec["containers"][0];
    assert_eq!(variable(agent, "RDMANET_LOG"), Some(json!("debug")));
    assert_eq!(
        variable(&pod_spec["containers"][1], "RDMANET_LOG"),
        Some(json!("debug"))
    );
    assert_eq!(variable(agent, "RDMANET_QUARANTINE"), Some(json!("1h30m")));
    assert_eq!(variable(agent, "RDMANET_QUARANTINE_IN_USE"), Some(json!("24h")));
    assert_eq!(variable(agent, "RDMANET_LINKS"), Some(json!("ib*,bond0")));
    assert_eq!(agent["resources"]["limits"]["memory"], "1Gi");
    assert_eq!(agent["resources"]["requests"]["memory"], "32Mi");
    let plain = pod(&[]);
    assert_eq!(
        variable(&plain["initContainers"][0], "RDMANET_REPLACE_FOREIGN"),
        None
    );
    assert_eq!(plain["containers"][0]["resources"].get("limits"), None);
}

#[test]
fn probes_use_the_address_that_the_agent_listens_on() {
    for (listen, port, host) in [
        ("127.0.0.1:9471", 9471, "127.0.0.1"),
        ("0.0.0.0:9555", 9555, "127.0.0.1"),
        ("10.1.2.3:9471", 9471, "10.1.2.3"),
        ("[::1]:9471", 9471, "::1"),
        ("[::]:9471", 9471, "127.0.0.1"),
    ] {
        let pod = pod(&[&format!("listen={listen}")]);
        let agent = &pod["containers"][0];
        assert_eq!(variable(agent, "RDMANET_LISTEN"), Some(json!(listen)));
        assert_eq!(agent["ports"][0]["containerPort"], port);
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            assert_eq!(agent[probe]["httpGet"]["host"], host, "{listen}: {probe}");
        }
    }
}

#[test]
fn in_another_namespace_no_object_refers_to_the_default_namespace() {
    let objects = templated("fabric", &[IMAGE, "distribution=openshift"]).unwrap();
    let text = serde_json::to_string(&objects).unwrap();
    assert!(!text.contains("rdmanet-system"), "{text}");
    let subject = |name: &str| {
        let schema = find(&objects, "FlowSchema", name);
        schema["spec"]["rules"][0]["subjects"][0]["serviceAccount"].clone()
    };
    for name in ["rdmanet-agent", "rdmanet-controller"] {
        assert_eq!(subject(name), json!({ "namespace": "fabric", "name": name }));
    }
    assert!(objects.iter().all(|object| kind(object) != "Namespace"));
}

/// What `helm install` prints for the person who runs it.
fn notes(distribution: &str) -> String {
    let distribution = format!("distribution={distribution}");
    let chart = chart();
    let words = [
        "install",
        "rdmanet",
        &chart,
        "--namespace",
        "fabric",
        "--dry-run=client",
    ];
    let text = tool(
        "helm",
        &[&words[..], &["--set", IMAGE, "--set", &distribution]].concat(),
    )
    .unwrap();
    text.split_once("NOTES:").unwrap().1.to_owned()
}

/// The chart has no Namespace, so the user of Helm gives the namespace what the manifest of `conf` has.
#[test]
fn the_notes_for_openshift_have_the_annotation_of_the_namespace() {
    let objects = kustomized("overlays/openshift");
    let namespace = &find(&objects, "Namespace", NAMESPACE)["metadata"];
    let [notes_of_openshift, notes_of_kubeadm] = ["openshift", "kubeadm"].map(notes);
    let page = std::fs::read_to_string(workspace().join("docs/install.md")).unwrap();
    let (_, with_helm) = page.split_once("## With Helm").unwrap();
    for (key, value) in namespace["annotations"].as_object().unwrap() {
        let pair = format!("{key}={}", value.as_str().unwrap());
        let command = |namespace: &str| format!("kubectl annotate namespace {namespace} {pair}\n");
        assert!(
            notes_of_openshift.contains(&command("fabric")),
            "{notes_of_openshift}"
        );
        assert!(!notes_of_kubeadm.contains(&pair), "{notes_of_kubeadm}");
        assert!(with_helm.contains(&command(NAMESPACE)), "{pair}");
    }
}

#[test]
fn the_chart_can_omit_the_custom_resource_definitions() {
    let objects = templated(NAMESPACE, &[IMAGE, "crds=false"]).unwrap();
    assert!(
        objects
            .iter()
            .all(|object| kind(object) != "CustomResourceDefinition")
    );
    assert!(objects.len() > 5);
}

#[test]
fn proxies_labels_affinity_and_the_strategy_of_updates_can_be_set() {
    let values = [
        IMAGE,
        "env[0].name=NO_PROXY",
        "env[0].value=10.0.0.0/8",
        "podLabels.team=hpc",
        "commonLabels.part=network",
        "affinity.nodeAffinity.a=b",
        "updateStrategy=OnDelete",
    ];
    let objects = templated(NAMESPACE, &values).unwrap();
    let daemonset = find(&objects, "DaemonSet", "rdmanet-agent");
    assert_eq!(daemonset["spec"]["updateStrategy"], json!({ "type": "OnDelete" }));
    assert_eq!(daemonset["metadata"]["labels"]["part"], "network");
    let template = &daemonset["spec"]["template"];
    let labels = &template["metadata"]["labels"];
    assert_eq!(
        (&labels["team"], &labels["part"]),
        (&json!("hpc"), &json!("network"))
    );
    assert_eq!(labels["app.kubernetes.io/name"], "rdmanet-agent");
    assert_eq!(template["spec"]["affinity"]["nodeAffinity"]["a"], "b");
    let agent = &template["spec"]["containers"][0];
    assert_eq!(variable(agent, "NO_PROXY"), Some(json!("10.0.0.0/8")));
    let controller = &find(&objects, "Deployment", "rdmanet-controller")["spec"]["template"];
    let container = &controller["spec"]["containers"][0];
    assert_eq!(variable(container, "NO_PROXY"), Some(json!("10.0.0.0/8")));
}

#[test]
fn a_quota_of_critical_pods_is_created_on_request() {
    let without = templated(NAMESPACE, &[IMAGE]).unwrap();
    assert!(without.iter().all(|object| kind(object) != "ResourceQuota"));
    let with = templated("fabric", &[IMAGE, "criticalPodsQuota=true"]).unwrap();
    let quota = find(&with, "ResourceQuota", "rdmanet-critical-pods");
    assert_eq!(quota["metadata"]["namespace"], "fabric");
    let applied = kustomized("overlays/gke");
    let pod = &find(&applied, "DaemonSet", "rdmanet-agent")["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"][0]["hostPath"]["path"], "/home/kubernetes/bin");
    let quota = find(&applied, "ResourceQuota", "rdmanet-critical-pods");
    let classes = &quota["spec"]["scopeSelector"]["matchExpressions"][0]["values"];
    assert!(classes.as_array().unwrap().contains(&pod["priorityClassName"]));
}
