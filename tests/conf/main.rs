// SPDX-License-Identifier: Apache-2.0
//! The plugins' own parsers read every configuration of this repository: the files of `conf/`, and the examples in the
//! documents.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]

use common::cni::dispatch::{Call, Streams, dispatch};
use common::cni::{Args, Conf, Reader, Version};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The call of a runtime for one plugin of a network.
fn call(network: &str, plugin: &Map<String, Value>) -> Call {
    let mut object = plugin.clone();
    object.insert("name".to_owned(), json!(network));
    object.insert("cniVersion".to_owned(), json!(Version::LATEST.as_str()));
    // The runtime removes the capabilities and passes the requested values.
    object.remove("capabilities");
    Call {
        program: plugin["type"].as_str().unwrap().to_owned(),
        conf: Conf::read(Value::Object(object).to_string().as_bytes()).unwrap(),
        args: Args::default(),
        args_text: String::new(),
        path: Vec::new(),
        netns_override: false,
        reader: Reader::PRESENT,
    }
}

/// Parses one plugin's configuration with both plugins.
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

/// The files of a directory whose names end with `end`.
fn below(directory: &str, end: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(root().join(directory))
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> = all
        .filter(|file| file.extension().is_some_and(|e| e == end))
        .collect();
    files.sort();
    files
}

/// The name, object and configuration of every `NetworkAttachmentDefinition`, with its comment as one line.
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
fn both_plugins_accept_every_file_of_conf() {
    assert!(files().len() >= 5, "{:?}", files());
    for file in files() {
        let place = file.file_name().unwrap().to_str().unwrap();
        let list: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert!(
            Version::parse(list["cniVersion"].as_str().unwrap()).is_some(),
            "{place}"
        );
        for plugin in list["plugins"].as_array().unwrap() {
            read(place, list["name"].as_str().unwrap(), plugin.as_object().unwrap());
        }
    }
}

#[test]
fn the_readme_of_conf_names_every_file_and_its_network() {
    let readme = fs::read_to_string(root().join("conf/README.md")).unwrap();
    for file in files() {
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(
            readme.contains(&format!("`{name}`")),
            "conf/README.md does not mention {name}"
        );
        let list: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let network = list["name"].as_str().unwrap();
        assert!(
            readme.contains(&format!("`{network}`")),
            "conf/README.md does not name network {network}"
        );
    }
}

/// The first cells of a table in docs/install.md, below the row that begins with `head`.
fn rows(page: &str, head: &str) -> Vec<String> {
    let table = page.lines().skip_while(|line| !line.starts_with(head)).skip(2);
    let rows = table.map_while(|line| line.strip_prefix("| "));
    rows.map(|row| row.split(" |").next().unwrap().to_owned())
        .collect()
}

/// kubeadm, kubespray and GKE have a containerd that the usual `ctr` finds, and `OpenShift` has CRI-O.
#[test]
fn each_distribution_with_its_own_containerd_has_a_row_about_image_import() {
    let page = fs::read_to_string(root().join("docs/install.md")).unwrap();
    let imports = rows(&page, "| container runtime |");
    let nodes = rows(&page, "| nodes |");
    let usual = ["kubeadm", "kubespray", "OpenShift", "OKD", "GKE"];
    let several = |row: &&String| row.starts_with("of several kinds");
    let mut seen = 0;
    for row in nodes.iter().filter(|row| !several(row)) {
        let first_words = row.split(", ").filter_map(|name| name.split(' ').next());
        for name in first_words.filter(|name| !usual.contains(name)) {
            let wanted = format!("containerd of {name}");
            assert!(imports.contains(&wanted), "{wanted} is not in {imports:?}");
            seen += 1;
        }
    }
    assert_eq!(seen, 5, "{nodes:?}");
}

/// The list of the code, as its source has it.
#[test]
fn each_driver_whose_children_are_created_in_the_pod_is_in_the_documents() {
    let code = fs::read_to_string(root().join("cni-ipoib/src/plan/way.rs")).unwrap();
    let list = code
        .split("const PLAIN: ")
        .nth(1)
        .unwrap()
        .split(';')
        .nth(1)
        .unwrap();
    let page = fs::read_to_string(root().join("docs/devices.md")).unwrap();
    let row = page
        .lines()
        .find(|line| line.starts_with("| `direct` |"))
        .unwrap();
    let drivers: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
    assert!(drivers.contains(&"mlx4_core"), "{drivers:?}");
    for driver in drivers {
        assert!(row.contains(&format!("`{driver}`")), "{driver} is not in {row}");
    }
}

#[test]
fn both_plugins_accept_every_network_attachment_definition() {
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

/// Multus passes `deviceID` of a pod's annotation to a network with the capability if the kubelet gave the pod no device. The
/// subnet manager gives partitions to GUIDs, so a pod that chooses its GUID chooses its partitions.
#[test]
fn no_network_of_conf_lets_a_pod_choose_a_device_or_a_guid() {
    let of_files = files().into_iter().flat_map(|file| {
        let list: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let plugins = list["plugins"].as_array().unwrap().clone();
        plugins
            .into_iter()
            .map(move |plugin| (file.display().to_string(), plugin))
    });
    let of_networks = networks().into_iter().map(|(name, _, config, _)| (name, config));
    for (place, plugin) in of_files.chain(of_networks) {
        for capability in ["deviceID", "infinibandGUID"] {
            assert_eq!(plugin["capabilities"].get(capability), None, "{place}");
        }
    }
}

/// Multus writes the device of the kubelet into the configuration, whatever the capabilities.
#[test]
fn networks_with_a_device_plugin_resource_take_the_chosen_device() {
    let mut seen = 0;
    for (name, object, config, _) in networks() {
        let Some(resource) = resource(&object) else {
            continue;
        };
        // The shared device plugin gives numbers that name no device.
        let chooses = !resource.starts_with("rdma/");
        assert_eq!(config.get("master").is_none(), chooses, "{name}");
        seen += usize::from(chooses);
    }
    assert!(seen >= 3);
}

/// The resource of a device plugin in the annotation of a network.
fn resource(network: &Value) -> Option<&str> {
    network["metadata"]["annotations"]["k8s.v1.cni.cncf.io/resourceName"].as_str()
}

/// Multus passes the file only with a device of the pod (`delegateRuntimeConfig` of its `pkg/types/conf.go`).
#[test]
fn every_network_that_reports_its_device_names_the_resource_of_a_device_plugin() {
    let mut seen = 0;
    for (name, object, config, _) in networks() {
        if config["capabilities"]["CNIDeviceInfoFile"] == true {
            assert!(resource(&object).is_some(), "{name}");
            seen += 1;
        }
    }
    assert!(seen >= 4);
}

#[test]
fn every_pool_named_by_a_network_of_conf_exists_in_conf() {
    let name = |file: PathBuf| {
        let pool: Value = serde_norway::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        pool["metadata"]["name"].as_str().unwrap().to_owned()
    };
    let pools: Vec<String> = below("conf/pools", "yaml").into_iter().map(name).collect();
    let mut several = 0;
    for (place, _, plugin, _) in with_addresses() {
        let named = named_pools(plugin["ipam"].as_object().unwrap());
        for pool in &named {
            assert!(pools.contains(pool), "{place}: no pool {pool} in {pools:?}");
        }
        several += usize::from(named.len() > 1);
    }
    assert!(several > 0, "no network names several pools");
}

/// The pools of `pool` and `pools`.
fn named_pools(ipam: &Map<String, Value>) -> Vec<String> {
    let values = [ipam.get("pool"), ipam.get("pools")].into_iter().flatten();
    let names = values.flat_map(|value| {
        value
            .as_array()
            .map_or(std::slice::from_ref(value), Vec::as_slice)
    });
    names.map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// Two nodes of a cluster, each with its own data directory and agent's socket.
struct TwoNodes([tempfile::TempDir; 2]);

/// The blocks of the two nodes.
const BLOCKS: [&str; 2] = ["10.77.0.0/28", "10.77.0.16/28"];

impl TwoNodes {
    fn new() -> Self {
        Self([tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()])
    }

    /// Calls ADD for one attachment on each node, as a main plugin delegates it. Returns the addresses or the error
    /// code.
    fn add(&self, network: &str, plugin: &Map<String, Value>) -> [Result<Vec<String>, u64>; 2] {
        [0, 1].map(|i| add_on(self.0[i].path(), network, plugin))
    }

    /// Writes each node's block of `pool`, as its agent does after a claim.
    fn claim(&self, pool: &str) {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        for (dir, block) in self.0.iter().zip(BLOCKS) {
            let file = json!({
                "format": 1, "pool": pool, "uid": "u", "generation": 1, "node": block, "nodeUID": block,
                "bootID": boot.trim(), "quarantineSeconds": 600, "cooldownSeconds": 30,
                "ranges": [{"subnet": "10.77.0.0/24"}],
                "blocks": [{"name": block, "cidr": block, "epoch": 1, "state": "active"}],
            });
            let directory = dir.path().join("pools").join(pool);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("pool.json"), file.to_string()).unwrap();
        }
    }
}

fn add_on(dir: &Path, network: &str, plugin: &Map<String, Value>) -> Result<Vec<String>, u64> {
    let mut object = call(network, plugin).conf.object;
    object["ipam"]["dataDir"] = json!(dir);
    let agent = ipam::agent::Client {
        socket: dir.join("agent.sock"),
        ..ipam::agent::Client::default()
    };
    let plugin = ipam::RdmaIpam {
        agent,
        ..ipam::RdmaIpam::default()
    };
    let env = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "c1"),
        ("CNI_IFNAME", "net1"),
        ("CNI_NETNS", "/no/such/netns"),
        ("CNI_PATH", "/opt/cni/bin"),
    ];
    let (mut stdout, stdin) = (Vec::new(), Value::Object(object).to_string());
    let streams = Streams {
        stdin: stdin.as_bytes(),
        stdout: &mut stdout,
        stderr: std::io::sink(),
        reader: Reader::PRESENT,
    };
    let status = dispatch(&plugin, "rdma-ipam", &env.into_iter().collect(), streams);
    let answer: Value = serde_json::from_slice(&stdout).unwrap();
    if status != 0 {
        return Err(answer["code"].as_u64().unwrap());
    }
    let ips = answer["ips"].as_array().unwrap().iter();
    Ok(ips.map(|ip| ip["address"].as_str().unwrap().to_owned()).collect())
}

/// Every network of conf/ with an IPAM section: its file, its name, its plugin object, and whether it is for a cluster.
fn with_addresses() -> Vec<(String, String, Map<String, Value>, bool)> {
    let mut all = Vec::new();
    for file in files() {
        let list: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let name = list["name"].as_str().unwrap().to_owned();
        for plugin in list["plugins"].as_array().unwrap() {
            let place = file.file_name().unwrap().to_str().unwrap().to_owned();
            all.push((place, name.clone(), plugin.as_object().unwrap().clone(), false));
        }
    }
    for (name, _, config, _) in networks() {
        all.push((
            format!("networks/{name}"),
            name,
            config.as_object().unwrap().clone(),
            true,
        ));
    }
    all.retain(|(_, _, plugin, _)| plugin.contains_key("ipam"));
    all
}

/// Networks of whereabouts guarantee that no two nodes allocate one address.
#[test]
fn no_network_of_conf_allocates_an_address_on_two_nodes_without_per_node() {
    let (mut of_pools, mut per_node) = (0, 0);
    for (place, network, plugin, for_a_cluster) in with_addresses() {
        let nodes = TwoNodes::new();
        let ipam = plugin["ipam"].as_object().unwrap();
        if ipam.is_empty() {
            continue;
        }
        let pools = named_pools(ipam);
        if !pools.is_empty() {
            for answer in nodes.add(&network, &plugin) {
                assert_eq!(
                    answer,
                    Err(11),
                    "{place}: without a block each node asks its agent"
                );
            }
            for pool in &pools {
                nodes.claim(pool);
            }
            of_pools += 1;
        }
        let [one, other] = nodes
            .add(&network, &plugin)
            .map(|answer| answer.unwrap_or_else(|e| panic!("{place}: {e}")));
        assert!(!one.is_empty(), "{place}");
        if one.iter().any(|address| other.contains(address)) {
            assert_eq!(
                ipam.get("perNode"),
                Some(&json!(true)),
                "{place}: both nodes allocate {one:?}"
            );
            assert!(
                !for_a_cluster,
                "{place}: both nodes of a cluster allocate {one:?}"
            );
            per_node += 1;
        }
    }
    assert!(
        of_pools >= 10 && per_node >= 5,
        "{of_pools} of pools, {per_node} of one node"
    );
}

#[test]
fn every_network_comment_and_docs_row_give_the_same_reason_to_choose_it() {
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
        let row = row.unwrap_or_else(|| panic!("docs/networks.md does not mention {name}"));
        assert!(
            row.contains(reason),
            "docs/networks.md says {row:?} where {name} says {reason:?}"
        );
    }
}

/// So a user who copies from a README gets what the tests of conf use, such as a pool for a cluster.
#[test]
fn the_configurations_of_both_readmes_are_those_of_conf() {
    for page in ["README.md", "README.zh.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let mut shown = Vec::new();
        for (language, sign) in [("json", "\"plugins\""), ("yaml", "NetworkAttachmentDefinition")] {
            let fence = format!("```{language}\n");
            let blocks = text.split(&fence).skip(1);
            let configurations = blocks.filter_map(|block| Some(block.split_once("```")?.0));
            shown.extend(configurations.filter(|block| block.contains(sign)));
        }
        let [list, definition] = shown[..] else {
            panic!("{page} has {} configurations", shown.len());
        };
        let of_conf = |name| fs::read_to_string(root().join("conf").join(name)).unwrap();
        assert_eq!(list, of_conf("ipoib-rail0.conflist"), "{page}");
        assert!(of_conf("networks/ib-ipoib.yaml").ends_with(definition), "{page}");
    }
}

#[test]
fn both_plugins_accept_every_network_of_the_page_about_other_interface_plugins() {
    let page = "docs/migrate-interfaces.md";
    let text = fs::read_to_string(root().join(page)).unwrap();
    let mut seen = 0;
    for fence in text.split("```json\n").skip(1) {
        let (json, _) = fence.split_once("```").unwrap();
        let network: Value = serde_json::from_str(json).unwrap_or_else(|e| panic!("{page}: {e} in {json}"));
        read(
            page,
            network["name"].as_str().unwrap(),
            network.as_object().unwrap(),
        );
        seen += 1;
    }
    assert!(seen >= 2, "{seen}");
}

#[test]
fn the_whereabouts_example_sets_range_exclusion_datastore_and_per_node() {
    let file = root().join("conf/from-whereabouts.conflist");
    let list: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let ipam = &list["plugins"][0]["ipam"];
    assert_eq!(
        (&ipam["range"], &ipam["exclude"][0]),
        (&json!("192.168.5.152/27"), &json!("192.168.5.151/32"))
    );
    assert_eq!(
        (&ipam["datastore"], &ipam["perNode"]),
        (&json!("kubernetes"), &json!(true))
    );
}

#[test]
fn networks_in_device_mode_set_keep_last_false_and_document_it() {
    let mut whole = Vec::new();
    for (name, _, config, comment) in networks() {
        if config["mode"] == "device" && !name.ends_with("-vf") {
            assert_eq!(
                config["keepLast"], false,
                "{name}: a node with one active port serves no pod"
            );
            assert!(comment.contains("keepLast false"), "{name}: {comment}");
            whole.push(name);
        }
    }
    assert_eq!(whole, ["from-hostdevicenetwork", "ib-device", "roce-device"]);
}
