// SPDX-License-Identifier: Apache-2.0
//! The command lines that the manifests of `conf/` use, and those that a person may type.

use super::*;
use api::testing::words_of;
use serde_json::Value;
use std::time::Duration;
use tracing::level_filters::LevelFilter;

const DAEMON_SET: &str = include_str!("../../../conf/agent/daemonset.yaml");
const UNINSTALLER: &str = include_str!("../../../conf/uninstall/daemonset.yaml");

fn parsed(words: &[&str]) -> Result<CommandLine, clap::Error> {
    CommandLine::parse(["rdmanet-agent"].iter().chain(words))
}

fn daemon(words: &[&str]) -> Config {
    match parsed(words).unwrap() {
        CommandLine::Daemon(config) => *config,
        CommandLine::Plugins(other) => panic!("{words:?} is no daemon, but {other:?}"),
    }
}

fn plugins(words: &[&str]) -> PluginCommand {
    match parsed(words).unwrap() {
        CommandLine::Plugins(command) => command,
        CommandLine::Daemon(config) => panic!("{words:?} is no command, but {config:?}"),
    }
}

/// The command line of the first container in `list` of a manifest's pods.
fn of_manifest(text: &str, list: &str) -> CommandLine {
    let manifest: Value = serde_norway::from_str(text).unwrap();
    let container = &manifest["spec"]["template"]["spec"][list][0];
    CommandLine::parse(words_of(container, &command())).unwrap()
}

#[test]
fn the_daemon_set_starts_a_daemon() {
    let CommandLine::Daemon(config) = of_manifest(DAEMON_SET, "containers") else {
        panic!("the agent's container runs no daemon");
    };
    assert_eq!(config.node, "RDMANET_NODE");
    assert_eq!(config.listen.to_string(), "127.0.0.1:9471");
}

#[test]
fn the_init_container_installs_the_plugins() {
    let CommandLine::Plugins(PluginCommand::Install(install)) = of_manifest(DAEMON_SET, "initContainers")
    else {
        panic!("the init container installs nothing");
    };
    assert_eq!(install.target.host.to_str(), Some("/host"));
    assert!(!install.replace_foreign && install.peer_names.is_empty());
}

#[test]
fn the_uninstaller_removes_the_plugins_and_stays() {
    let CommandLine::Plugins(PluginCommand::Uninstall(uninstall)) = of_manifest(UNINSTALLER, "containers")
    else {
        panic!("the uninstaller removes nothing");
    };
    assert!(uninstall.stay && !uninstall.force);
}

#[test]
fn a_daemon_needs_only_the_name_of_its_node() {
    let missing = parsed(&[]).unwrap_err().to_string();
    assert!(missing.contains("--node <NODE>"), "{missing}");
    let config = daemon(&["--node", "n1"]);
    assert_eq!(config.node, "n1");
    assert_eq!(config.daemon.quarantines.unused, Duration::from_secs(600));
    assert!(!config.daemon.quarantines.short_for_tests);
}

#[test]
fn the_flags_of_a_group_are_read_without_and_beside_the_others() {
    for flag in ["--quarantine", "--observation-interval", "--report-interval"] {
        daemon(&["--node", "n1", flag, "3m"]);
    }
    let all = daemon(&[
        "--node=n1",
        "--data-dir=/data",
        "--socket=/socket",
        "--listen=127.0.0.1:1",
        "--idle=1s",
        "--links=none",
        "--quarantine=3m",
        "--quarantine-in-use=4m",
        "--short-quarantine-for-tests",
        "--observation-interval=5s",
        "--reconcile-interval=6s",
        "--report-interval=7s",
        "--log=debug",
    ]);
    let [observe, reconcile, report] = [5, 6, 7].map(Duration::from_secs);
    assert_eq!(all.daemon.quarantines.unused, Duration::from_secs(180));
    assert!(all.daemon.quarantines.short_for_tests);
    assert_eq!(all.daemon.observation_interval, observe);
    assert_eq!(all.daemon.reconcile_interval, reconcile);
    assert_eq!(all.daemon.report_interval, report);
    assert_eq!(
        (all.daemon.log, all.idle),
        (LevelFilter::DEBUG, Duration::from_secs(1))
    );
}

#[test]
fn an_unknown_log_level_is_refused_with_the_known_ones() {
    let error = parsed(&["--node", "n1", "--log", "verbose"])
        .unwrap_err()
        .to_string();
    assert!(error.contains("use error, warn, info, debug or trace"), "{error}");
}

#[test]
fn the_commands_need_no_flag_and_no_node() {
    assert!(matches!(plugins(&["install"]), PluginCommand::Install(_)));
    let PluginCommand::Uninstall(uninstall) = plugins(&["uninstall"]) else {
        panic!("uninstall is another command");
    };
    assert!(!uninstall.stay && !uninstall.force);
    assert!(parsed(&["--node", "n1", "install"]).is_err());
}
