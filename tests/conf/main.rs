// SPDX-License-Identifier: Apache-2.0
//! Every configuration that we hand out is read by the plugins' own parsers: the files of `conf/`, and the ones in the
//! documents that users copy from.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]

use common::cni::dispatch::Call;
use common::cni::{Args, Conf, Version};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The call that a runtime would make for one plugin of a network.
fn call(network: &str, plugin: &Map<String, Value>) -> Call {
    let mut object = plugin.clone();
    object.insert("name".to_owned(), json!(network));
    object.insert("cniVersion".to_owned(), json!(Version::LATEST.as_str()));
    // The runtime keeps what a plugin is capable of and passes what is asked for.
    object.remove("capabilities");
    Call {
        program: "cni-ipoib".to_owned(),
        conf: Conf::read(Value::Object(object).to_string().as_bytes()).unwrap(),
        args: Args::default(),
        args_text: String::new(),
        path: Vec::new(),
        netns_override: false,
    }
}

/// Reads one plugin's configuration as both plugins do.
fn read(place: &str, network: &str, plugin: &Map<String, Value>) {
    assert_eq!(plugin["type"], "cni-ipoib", "{place}");
    let call = call(network, plugin);
    let config = cni_ipoib::config::Config::read(&call).unwrap_or_else(|e| panic!("{place}: {e}"));
    assert_eq!(config.ipam.as_deref(), Some("rdma-ipam"), "{place}");
    let pools = ipam::config::PoolPlace::read(&call.conf).unwrap_or_else(|e| panic!("{place}: {e}"));
    let read = match pools {
        Some(pools) => ipam::config::PoolConfig::read(&call, pools).map(|_| ()),
        None => ipam::config::Config::read(&call).map(|_| ()),
    };
    read.unwrap_or_else(|e| panic!("{place}: {e}"));
}

fn files() -> Vec<PathBuf> {
    let all = fs::read_dir(root().join("conf"))
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut lists: Vec<PathBuf> = all
        .filter(|file| file.extension().is_some_and(|e| e == "conflist"))
        .collect();
    lists.sort();
    lists
}

#[test]
fn every_file_of_conf_is_a_configuration_that_both_plugins_accept() {
    assert!(files().len() >= 5, "{:?}", files());
    for file in files() {
        let place = file.file_name().unwrap().to_str().unwrap();
        let list: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert!(
            Version::parse(list["cniVersion"].as_str().unwrap()).is_ok(),
            "{place}"
        );
        for plugin in list["plugins"].as_array().unwrap() {
            read(place, list["name"].as_str().unwrap(), plugin.as_object().unwrap());
        }
    }
}

#[test]
fn every_file_of_conf_has_a_line_that_says_when_to_choose_it() {
    let readme = fs::read_to_string(root().join("conf/README.md")).unwrap();
    for file in files() {
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(
            readme.contains(&format!("`{name}`")),
            "conf/README.md does not tell of {name}"
        );
        let list: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let network = list["name"].as_str().unwrap();
        assert!(
            readme.contains(&format!("`{network}`")),
            "conf/README.md does not name network {network}"
        );
    }
}

#[test]
fn the_network_attachment_definition_of_the_readme_is_accepted() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let (_, block) = readme
        .split_once("  config: |\n")
        .expect("README.md has no NetworkAttachmentDefinition");
    let (json, _) = block.split_once("```").unwrap();
    let conf: Value = serde_json::from_str(json).unwrap_or_else(|e| panic!("{e} in {json}"));
    read(
        "README.md",
        conf["name"].as_str().unwrap(),
        conf.as_object().unwrap(),
    );
}

#[test]
fn the_seeds_own_block_is_read_word_for_word() {
    let file = root().join("conf/from-whereabouts.conflist");
    let list: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let ipam = &list["plugins"][0]["ipam"];
    assert_eq!(
        (&ipam["range"], &ipam["exclude"][0]),
        (&json!("192.168.5.152/27"), &json!("192.168.5.151/32"))
    );
}
