// SPDX-License-Identifier: Apache-2.0
//! The command lines of a controller.

use super::*;
use api::testing::words_of;
use clap::CommandFactory;
use serde_json::Value;
use std::time::Duration;
use tracing::level_filters::LevelFilter;

#[test]
fn the_deployment_starts_a_controller() {
    let text = include_str!("../../../conf/controller/deployment.yaml");
    let deployment = text.split("\n---\n").next().unwrap();
    let manifest: Value = serde_norway::from_str(deployment).unwrap();
    let container = &manifest["spec"]["template"]["spec"]["containers"][0];
    let config = Config::try_parse_from(words_of(container, &Config::command())).unwrap();
    assert_eq!(config.identity, "RDMANET_IDENTITY");
    assert_eq!(config.namespace, "RDMANET_NAMESPACE");
    assert_eq!(config.listen.to_string(), "[::]:9472");
}

#[test]
fn a_controller_needs_only_its_name() {
    let missing = Config::try_parse_from(["rdmanet-controller"]).unwrap_err();
    assert!(missing.to_string().contains("--identity <IDENTITY>"), "{missing}");
    let config = Config::try_parse_from(["rdmanet-controller", "--identity", "a"]).unwrap();
    assert_eq!(
        (config.identity.as_str(), config.namespace.as_str()),
        ("a", "rdmanet-system")
    );
    assert_eq!(config.daemon.report_interval, Duration::from_secs(30));
    assert_eq!(config.daemon.quarantines.unused, Duration::from_secs(600));
}

#[test]
fn every_flag_of_the_controller_is_read() {
    let config = Config::try_parse_from([
        "rdmanet-controller",
        "--identity=a",
        "--listen=127.0.0.1:1",
        "--namespace=other",
        "--quarantine=3m",
        "--quarantine-in-use=never",
        "--observation-interval=5s",
        "--reconcile-interval=6s",
        "--report-interval=7s",
        "--log=debug",
    ])
    .unwrap();
    let [observe, reconcile, report] = [5, 6, 7].map(Duration::from_secs);
    assert_eq!(
        (config.namespace.as_str(), config.daemon.log),
        ("other", LevelFilter::DEBUG)
    );
    assert_eq!(config.daemon.quarantines.unused, Duration::from_secs(180));
    assert_eq!(config.daemon.observation_interval, observe);
    assert_eq!(config.daemon.reconcile_interval, reconcile);
    assert_eq!(config.daemon.report_interval, report);
}
