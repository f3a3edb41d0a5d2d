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
        program: plugin["type"].as_str().unwrap().to_owned(),
        conf: Conf::read(Value::Object(object).to_string().as_bytes()).unwrap(),
        args: Args::default(),
        args_text: String::new(),
        path: Vec::new(),
        netns_override: false,
    }
}

/// Reads one plugin's configuration as both plugins do.
fn read(place: &str, network: &str, plugin: &Map<String, Value>) {
    let ours = plugin["type"] == "cni-ipoib" || plugin["type"] == "ipoib";
    assert!(ours, "{place}: {}", plugin["type"]);
    let call = call(network, plugin);
    let config = cni_ipoib::config::Config::read(&call).unwrap_or_else(|e| panic!("{place}: {e}"));
    if config.ipam.is_none() {
        return;
    }
    assert_eq!(config.ipam.as_deref(), Some("rdma-ipam"), "{place}");
    let pools = ipam::config::PoolPlace::read(&call.conf).unwrap_or_else(|e| panic!("{place}: {e}"));
    let read = match pools {
        Some(pools) => ipam::config::PoolConfig::read(&call, pools).map(|_| ()),
        None => ipam::config::Config::read(&call).map(|_| ()),
    };
    read.unwrap_or_else(|e| panic!("{place}: {e}"));
}

fn files() -> Vec<PathBuf> {
    below("conf", "conflist")
}

/// The files of a folder that end so.
fn below(folder: &str, end: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(root().join(folder))
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> = all
        .filter(|file| file.extension().is_some_and(|e| e == end))
        .collect();
    files.sort();
    files
}

/// Name, object and configuration of every `NetworkAttachmentDefinition`, with its comment in one line.
fn networks() -> Vec<(String, Value, Value, String)> {
    let read = |file: PathBuf| {
        let text = fs::read_to_string(&file).unwrap();
        let object: Value =
            serde_norway::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let config = object["spec"]["config"].as_str().unwrap();
        let config = serde_json::from_str(config).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let comment: Vec<&str> = text
            .lines()
            .skip(2)
            .map_while(|line| line.strip_prefix("# "))
            .collect();
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, object, config, comment.join(" "))
    };
    below("conf/networks", "yaml").into_iter().map(read).collect()
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
fn every_network_attachment_definition_is_a_configuration_that_both_plugins_accept() {
    assert!(networks().len() >= 12);
    for (name, object, config, _) in networks() {
        assert_eq!(object["kind"], "NetworkAttachmentDefinition", "{name}");
        assert_eq!(
            (&object["metadata"]["name"], &config["name"]),
            (&json!(name), &json!(name))
        );
        read(&name, &name, config.as_object().unwrap());
    }
}

/// A key of `runtimeConfig` reaches a plugin only if its configuration has the capability.
#[test]
fn a_network_with_the_resource_of_a_device_plugin_takes_the_device_that_was_chosen() {
    let with_resource = networks().into_iter().filter(|(_, object, ..)| {
        !object["metadata"]["annotations"]["k8s.v1.cni.cncf.io/resourceName"].is_null()
    });
    let mut seen = 0;
    for (name, _, config, _) in with_resource {
        assert_eq!(config["capabilities"]["deviceID"], true, "{name}");
        assert!(
            config.get("master").is_none(),
            "{name}: the device plugin chooses"
        );
        seen += 1;
    }
    assert!(seen >= 3);
}

#[test]
fn every_pool_that_a_network_names_is_one_that_we_hand_out() {
    let name = |file: PathBuf| {
        let pool: Value = serde_norway::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        pool["metadata"]["name"].as_str().unwrap().to_owned()
    };
    let pools: Vec<String> = below("conf/pools", "yaml").into_iter().map(name).collect();
    for (network, _, config, _) in networks() {
        if let Some(pool) = config["ipam"]["pool"].as_str() {
            assert!(
                pools.iter().any(|one| one == pool),
                "{network}: no pool {pool} in {pools:?}"
            );
        }
    }
}

#[test]
fn every_network_attachment_definition_says_when_to_choose_it_and_so_does_the_document() {
    let document = fs::read_to_string(root().join("docs/networks.md")).unwrap();
    for (name, _, _, comment) in networks() {
        assert!(comment.starts_with("Choose it "), "{name}: {comment}");
        let sentence = comment
            .split_inclusive(". ")
            .next()
            .unwrap()
            .trim()
            .trim_end_matches('.');
        let reason = sentence.trim_start_matches("Choose it ");
        let row = document.lines().find(|line| line.contains(&format!("`{name}`")));
        let row = row.unwrap_or_else(|| panic!("docs/networks.md does not tell of {name}"));
        assert!(
            row.contains(reason),
            "docs/networks.md says {row:?} where {name} says {reason:?}"
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
