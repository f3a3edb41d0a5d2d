// SPDX-License-Identifier: Apache-2.0
//! Each alert of `conf/monitoring` fires for its cause, with the metrics that agents and controllers serve in that state, and the
//! panels of the dashboard find these metrics.
//!
//! The alerts about links and about lost sandboxes are tested where these are (`links`, `garbage`).

use agents::pools::per_address;
use agents::scrapes::{Scrapes, alerts_at_once, problems};
use agents::{Attachment, Member, Site};
use apiserver::install::until;
use apiserver::{Fault, Proxy};
use serde_json::json;
use std::time::Duration;

/// Waits until the controller serves this line.
async fn controller_serves(site: &Site, line: &str) {
    until(line, async || {
        site.controller.get("/metrics").lines().any(|it| it == line)
    })
    .await;
}

fn scrape(scrapes: &mut Scrapes, site: &Site, node: &Member) {
    scrapes.add(&[
        ("controller", site.controller.get("/metrics")),
        ("a", node.get("/metrics")),
    ]);
}

/// The alerts that depend on nothing but the cluster of this test: a busy machine is slow, and a port of it may have no cable.
fn of_the_cluster(mut alerts: Vec<String>) -> Vec<String> {
    alerts.retain(|alert| !alert.starts_with("RdmanetSlowAnswers") && !alert.starts_with("RdmanetLinkDown"));
    alerts
}

/// The scenes share an API server, because its start is slow.
#[tokio::test(flavor = "multi_thread")]
async fn each_alert_fires_for_its_cause_only() {
    let (site, node) = Site::with_node().await;
    site.simple("rail0", "10.1.0.0/24").await;
    controller_serves(
        &site,
        "rdmanet_pool_condition{pool=\"rail0\",condition=\"Ready\"} 1",
    )
    .await;
    controller_serves(&site, "rdmanet_controller_leader 1").await;
    node.wait_active("rail0").await;
    node.add("rail0", &Attachment::of("first"));
    let mut scrapes = Scrapes::default();
    scrape(&mut scrapes, &site, &node);
    node.add("rail0", &Attachment::of("second"));
    scrape(&mut scrapes, &site, &node);
    assert_eq!(
        of_the_cluster(scrapes.alerts()),
        [""; 0],
        "the cluster is healthy"
    );

    one_target_only(&site, &node);
    two_versions(&node, &site);
    a_full_pool(&site, &node).await;
    a_pool_that_waits_for_its_last_pod(&site, &node).await;
    a_spec_that_is_not_in_force(&site, &node).await;
}

/// `Scrapes::add` lints what the other tests scrape: a metric that has counted nothing yet has no line.
#[tokio::test(flavor = "multi_thread")]
async fn the_linter_of_prometheus_accepts_what_agents_and_controllers_serve() {
    let (site, node) = Site::with_node().await;
    site.simple("rail0", "10.1.0.0/29").await;
    controller_serves(&site, "rdmanet_controller_leader 1").await;
    node.wait_active("rail0").await;
    for number in 0..6 {
        node.add("rail0", &Attachment::of(&format!("p{number}")));
    }
    node.refused("rail0", &Attachment::of("one"), &[110], &[]);
    controller_serves(
        &site,
        "rdmanet_pool_condition{pool=\"rail0\",condition=\"Exhausted\"} 1",
    )
    .await;
    let served = node.get("/metrics");
    let controller = site.controller.get("/metrics");
    for (name, text) in [("a", &served), ("controller", &controller)] {
        assert_eq!(problems(&[(name, text.clone())]), [""; 0], "{name}");
    }
    // The new name is as long as the one before, because the response has its length in a header.
    let wrong = served.replace(
        "rdmanet_api_request_duration_seconds",
        "rdmanet_apiRequests_long_duration_ms",
    );
    let found = problems(&[("a", wrong)]).join("\n");
    for problem in ["should be written in 'snake_case'", "abbreviated units"] {
        assert!(found.contains(problem), "{problem}: {found}");
    }
}

fn one_target_only(site: &Site, node: &Member) {
    let alerts = alerts_at_once(&[("a", node.get("/metrics"))]);
    assert_eq!(
        of_the_cluster(alerts),
        ["RdmanetNoLeader: No rdmanet-controller works"]
    );
    let alerts = alerts_at_once(&[("controller", site.controller.get("/metrics"))]);
    assert_eq!(
        of_the_cluster(alerts),
        ["RdmanetNoAgentScraped: Prometheus scrapes no rdmanet-agent"]
    );
}

fn two_versions(node: &Member, site: &Site) {
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    let other = node.get("/metrics").replace(&version, "version=\"9.9.9\"");
    assert!(other.contains("9.9.9"), "{other}");
    let alerts = alerts_at_once(&[("controller", site.controller.get("/metrics")), ("a", other)]);
    assert_eq!(
        of_the_cluster(alerts),
        ["RdmanetVersionsDiffer: More than one version of rdmanet has run for six hours"]
    );
}

async fn a_full_pool(site: &Site, node: &Member) {
    site.simple("full", "10.2.0.0/29").await;
    node.wait_active("full").await;
    for number in 0..6 {
        node.add("full", &Attachment::of(&format!("p{number}")));
    }
    let mut scrapes = Scrapes::default();
    node.refused("full", &Attachment::of("one"), &[110], &[]);
    controller_serves(
        site,
        "rdmanet_pool_condition{pool=\"full\",condition=\"Exhausted\"} 1",
    )
    .await;
    controller_serves(site, "rdmanet_pool_addresses_used{pool=\"full\"} 6").await;
    scrape(&mut scrapes, site, node);
    node.refused("full", &Attachment::of("one"), &[110], &[]);
    scrape(&mut scrapes, site, node);
    assert_eq!(
        of_the_cluster(scrapes.alerts()),
        [
            "RdmanetPoolNearlyFull: More than 90 % of pool full is in use",
            "RdmanetPoolExhausted: Pool full has no address left",
            "RdmanetAddsRefused: Agents refuse addresses of pool full with code 110",
        ]
    );
    panels_have_data(&scrapes);
    for number in 0..6 {
        node.del("full", &Attachment::of(&format!("p{number}")));
    }
    site.delete("full").await;
}

fn panels_have_data(scrapes: &Scrapes) {
    // Nothing has failed, and no block was returned.
    let empty = [
        "0 Requests that fail",
        "0 Links without carrier",
        "0 Blocks: claims and returns",
    ];
    for panel in scrapes.panels() {
        assert!(
            !panel.starts_with("0 ") || empty.contains(&panel.as_str()),
            "{panel}"
        );
    }
}

async fn a_pool_that_waits_for_its_last_pod(site: &Site, node: &Member) {
    site.simple("leaving", "10.3.0.0/29").await;
    node.wait_active("leaving").await;
    node.add("leaving", &Attachment::of("last"));
    site.delete("leaving").await;
    not_in_force(site, node, "leaving").await;
    node.del("leaving", &Attachment::of("last"));
}

async fn a_spec_that_is_not_in_force(site: &Site, node: &Member) {
    let nothing_left = json!([{ "subnet": "10.1.0.0/24", "gateway": "none", "exclude": ["10.1.0.0/24"] }]);
    site.edit("rail0", json!({ "spec": { "ranges": nothing_left } }))
        .await;
    controller_serves(
        site,
        "rdmanet_pool_condition{pool=\"rail0\",condition=\"Degraded\"} 1",
    )
    .await;
    not_in_force(site, node, "rail0").await;
}

/// Waits until one alert fires: that `pool` is not in force.
async fn not_in_force(site: &Site, node: &Member, pool: &str) {
    let expected = [format!(
        "RdmanetPoolNotInForce: The spec of pool {pool} is not in force, or the pool is being deleted"
    )];
    until("one alert fires", async || {
        let targets = [
            ("controller", site.controller.get("/metrics")),
            ("a", node.get("/metrics")),
        ];
        of_the_cluster(alerts_at_once(&targets)) == expected
    })
    .await;
}

/// Applies `fault` to each CREATE of an address from now on.
fn on_creates(proxy: &Proxy, fault: Fault) {
    proxy.decide(
        move |method, path| match (method, path.ends_with("/ipaddresses")) {
            ("POST", true) => fault,
            _ => Fault::None,
        },
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_and_slow_requests_to_the_api_server_fire_an_alert() {
    let site = Site::new().await;
    let (node, proxy) = site.behind_proxy("a", &[]).await;
    node.start();
    let spec = per_address("10.1.0.0/24");
    site.pool("each", spec).await;
    until("the pool is here", async || node.file("each").is_object()).await;
    controller_serves(&site, "rdmanet_controller_leader 1").await;
    node.add_soon("each", &Attachment::of("fast")).await;
    // Some alerts are about the sum over all nodes: forty nodes have the same trouble.
    let names: Vec<String> = (0..40).map(|number| format!("node-{number}")).collect();
    let cluster = || {
        let mut targets = vec![("controller", site.controller.get("/metrics"))];
        let served = node.get("/metrics");
        targets.extend(names.iter().map(|name| (name.as_str(), served.clone())));
        targets
    };
    // Prometheus sees no growth of a counter that it sees for the first time.
    on_creates(&proxy, Fault::Status(500));
    node.call("ADD", "each", &Attachment::of("failed"));
    let mut scrapes = Scrapes::default();
    scrapes.add(&cluster());
    node.call("ADD", "each", &Attachment::of("failed"));
    on_creates(&proxy, Fault::Delay(Duration::from_millis(2500)));
    node.call("ADD", "each", &Attachment::of("slow"));
    scrapes.add(&cluster());
    // A busy machine may have requests that time out, too.
    let failed = |panel: &String| panel.ends_with(" Requests that fail") && !panel.starts_with("0 ");
    assert!(scrapes.panels().iter().any(failed), "{:?}", scrapes.panels());
    let alerts = scrapes.alerts();
    for alert in [
        "RdmanetSlowAnswers: One plugin request in a hundred takes longer than 2 s",
        "RdmanetApiErrors: Requests of rdmanet to the API server fail: overload",
    ] {
        assert!(alerts.iter().any(|it| it == alert), "no {alert} in {alerts:?}");
    }
}
