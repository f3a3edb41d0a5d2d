// SPDX-License-Identifier: Apache-2.0
//! Alert rules and dashboard, read as Prometheus and Grafana read them (`tests/go/checks/promcheck`).

use apiserver::install::documents;
use deploy::workspace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};
use serde_json::{Value, json};
use std::process::Command;

/// The metrics in docs/operate.md. A test of the agent compares them with the code.
fn explained() -> String {
    let page = std::fs::read_to_string(workspace().join("docs/operate.md")).unwrap();
    let start = page.find("\n## Metrics\n").unwrap();
    page[start..].split("\n## Error codes").next().unwrap().to_owned()
}

/// The output of `promcheck` for files of `conf/monitoring`.
fn promcheck(files: &[&str]) -> Result<Vec<String>, String> {
    let built = Command::new(workspace().join("tests/go/build"))
        .args(["--group", "checks"])
        .output()
        .unwrap();
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let directory = String::from_utf8(built.stdout).unwrap();
    let output = Command::new(format!("{}/promcheck", directory.trim()))
        .args(files)
        .current_dir(workspace().join("conf/monitoring"))
        .output()
        .unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let names = String::from_utf8(output.stdout).unwrap();
    Ok(names.lines().map(str::to_owned).collect())
}

#[test]
fn alerts_and_dashboard_parse_and_use_only_documented_metrics() {
    let explained = explained();
    for file in ["alerts.yaml", "dashboard.json"] {
        let names = promcheck(&[file]).unwrap();
        assert!(names.len() > 5, "{file}: {names:?}");
        for name in names {
            let plain = ["_total", "_info", "_bucket"]
                .iter()
                .find_map(|suffix| name.strip_suffix(suffix))
                .unwrap_or(&name);
            assert!(explained.contains(&format!("| `{plain}` |")), "{file}: {name}");
        }
    }
}

/// The metrics that an alert of `alerts.yaml` reads.
fn metrics_of(alert: &str) -> Vec<String> {
    let file = workspace().join("conf/monitoring/alerts.yaml");
    let mut all: Value = serde_norway::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let rules = all["groups"][0]["rules"].as_array_mut().unwrap();
    rules.retain(|rule| rule["alert"] == alert);
    let directory = tempfile::tempdir().unwrap();
    let alone = directory.path().join("alone.yaml");
    std::fs::write(&alone, serde_json::to_vec(&all).unwrap()).unwrap();
    promcheck(&[alone.to_str().unwrap()]).unwrap()
}

/// The tests that fire alerts need agents, so they are in the agents' suite.
#[test]
fn every_alert_is_fired_by_a_test() {
    let file = workspace().join("conf/monitoring/alerts.yaml");
    let all: Value = serde_norway::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let suite = ["monitoring.rs", "links.rs", "garbage.rs"]
        .map(|file| std::fs::read_to_string(workspace().join("tests/agents/suite").join(file)).unwrap());
    for rule in all["groups"][0]["rules"].as_array().unwrap() {
        let alert = format!("\"{}: ", rule["alert"].as_str().unwrap());
        assert!(suite.iter().any(|text| text.contains(&alert)), "{alert}");
    }
}

/// A node may have a port that never had a cable.
#[test]
fn the_alert_about_links_names_only_links_that_are_expected_to_have_carrier() {
    assert_eq!(
        metrics_of("RdmanetLinkDown"),
        ["rdmanet_link_expected", "rdmanet_link_up"]
    );
}

/// The pod templates of the agent and of the controller: the namespace, and the template.
fn pods() -> Vec<(String, Value)> {
    let files = ["agent/daemonset.yaml", "controller/deployment.yaml"];
    let all = files.map(|file| documents(&workspace().join("conf").join(file)));
    let workloads = all.into_iter().flatten().filter(|object| {
        let kind = object.types.as_ref().map(|types| types.kind.as_str());
        matches!(kind, Some("DaemonSet" | "Deployment"))
    });
    workloads
        .map(|object| {
            let namespace = object.metadata.namespace.clone().unwrap();
            (namespace, object.data["spec"]["template"].clone())
        })
        .collect()
}

/// Whether one container of the pod has a port of this name.
fn has_port(pod: &Value, name: &Value) -> bool {
    let containers = pod["spec"]["containers"].as_array().unwrap().iter();
    let mut ports = containers.flat_map(|container| container["ports"].as_array().into_iter().flatten());
    ports.any(|port| port["name"] == *name)
}

#[test]
fn the_pod_monitor_selects_ports_of_the_agent_and_of_the_controller() {
    let monitor = documents(&workspace().join("conf/monitoring/podmonitor.yaml")).remove(0);
    let spec = &monitor.data["spec"];
    assert!(spec["namespaceSelector"].is_null(), "only its own namespace");
    let selector: LabelSelector = serde_json::from_value(spec["selector"].clone()).unwrap();
    let selector = Selector::try_from(selector).unwrap();
    let endpoints = spec["podMetricsEndpoints"].as_array().unwrap();
    assert!(!endpoints.is_empty());
    let pods = pods();
    assert_eq!(pods.len(), 2);
    for (namespace, pod) in pods {
        let labels = serde_json::from_value(pod["metadata"]["labels"].clone()).unwrap();
        assert!(selector.matches(&labels), "{labels:?}");
        assert_eq!(monitor.metadata.namespace.as_ref(), Some(&namespace));
        for endpoint in endpoints {
            assert!(has_port(&pod, &endpoint["port"]), "{endpoint} of {labels:?}");
        }
    }
}

#[test]
fn an_alert_rule_that_prometheus_cannot_parse_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("wrong.yaml");
    std::fs::write(
        &file,
        "groups: [{ name: a, rules: [{ alert: A, expr: 'sum(rdmanet_blocks' }] }]",
    )
    .unwrap();
    let error = promcheck(&[file.to_str().unwrap()]).unwrap_err();
    assert!(error.contains("wrong.yaml"), "{error}");
}

/// The error of `promcheck` for the dashboard of `conf/monitoring` with one change.
fn refusal(change: impl FnOnce(&mut Value)) -> String {
    let text = std::fs::read(workspace().join("conf/monitoring/dashboard.json")).unwrap();
    let mut dashboard = serde_json::from_slice(&text).unwrap();
    change(&mut dashboard);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("wrong.json");
    std::fs::write(&file, serde_json::to_vec(&dashboard).unwrap()).unwrap();
    promcheck(&[file.to_str().unwrap()]).unwrap_err()
}

#[test]
fn a_dashboard_that_grafana_or_prometheus_cannot_parse_is_refused() {
    let error = refusal(|it| it["templating"]["list"][0]["current"] = json!({}));
    assert!(error.contains("templating.list[0].current.text"), "{error}");
    let error = refusal(|it| it["panels"][0]["titel"] = json!("a name that Grafana does not know"));
    assert!(error.contains("titel"), "{error}");
    let error = refusal(|it| it["panels"][0]["options"] = json!({"legend": {"shown": true}}));
    assert!(error.contains("legend"), "{error}");
    let error = refusal(|it| it["panels"][1]["id"] = it["panels"][0]["id"].clone());
    assert!(error.contains("one id"), "{error}");
    let error = refusal(|it| it["panels"][0]["targets"][0]["expr"] = json!("sum(rdmanet_blocks"));
    assert!(error.contains("sum(rdmanet_blocks"), "{error}");
}
