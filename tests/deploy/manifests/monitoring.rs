// SPDX-License-Identifier: Apache-2.0
//! Alert rules and dashboard, read as Prometheus and Grafana read them (`tests/go/checks/promcheck`).

use apiserver::install::documents;
use deploy::workspace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};
use serde_json::{Value, json};
use std::process::Command;
use tests::programs::checks;

/// The metrics in docs/operate.md. A test of the agent compares them with the code.
fn explained() -> String {
    let page = std::fs::read_to_string(workspace().join("docs/operate.md")).unwrap();
    let start = page.find("\n## Metrics\n").unwrap();
    page[start..].split("\n## Error codes").next().unwrap().to_owned()
}

/// The output of `promcheck` for files of `conf/monitoring`.
fn promcheck(files: &[&str]) -> Result<Vec<String>, String> {
    let output = Command::new(checks().join("promcheck"))
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

/// A file of `conf/monitoring`.
fn content(file: &str) -> Value {
    let text = std::fs::read_to_string(workspace().join("conf/monitoring").join(file)).unwrap();
    serde_norway::from_str(&text).unwrap()
}

/// The output of `promcheck` for a new file.
fn check_new(name: &str, content: &Value) -> Result<Vec<String>, String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(name);
    std::fs::write(&file, serde_json::to_vec(content).unwrap()).unwrap();
    promcheck(&[file.to_str().unwrap()])
}

/// The metrics that an alert of `alerts.yaml` reads.
fn metrics_of(alert: &str) -> Vec<String> {
    let mut all = content("alerts.yaml");
    let rules = all["groups"][0]["rules"].as_array_mut().unwrap();
    rules.retain(|rule| rule["alert"] == alert);
    check_new("alone.yaml", &all).unwrap()
}

/// The tests that fire alerts need agents, so they are in the agents' suite.
#[test]
fn every_alert_is_fired_by_a_test() {
    let suite = ["monitoring.rs", "links.rs", "garbage.rs", "lost_del.rs"]
        .map(|file| std::fs::read_to_string(workspace().join("tests/agents/suite").join(file)).unwrap());
    for rule in content("alerts.yaml")["groups"][0]["rules"].as_array().unwrap() {
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
    let wrong =
        json!({ "groups": [{ "name": "a", "rules": [{ "alert": "A", "expr": "sum(rdmanet_blocks" }] }] });
    let error = check_new("wrong.yaml", &wrong).unwrap_err();
    assert!(error.contains("wrong.yaml"), "{error}");
}

/// The error of `promcheck` for the dashboard of `conf/monitoring` with one change.
fn refusal(change: impl FnOnce(&mut Value)) -> String {
    let mut dashboard = content("dashboard.json");
    change(&mut dashboard);
    check_new("wrong.json", &dashboard).unwrap_err()
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
