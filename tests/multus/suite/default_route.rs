// SPDX-License-Identifier: Apache-2.0
//! Multus changes a pod's routes after ADD: the effect on rdmanet's routes, and two pitfalls.

use crate::{default_routes, macvlan};
use multus::Setup;
use std::fs;
use tests::{Pod, Value, json};

/// The state of the pod's interface that Multus could change: its routes in every table, and the rules.
fn routing(sandbox: &Pod) -> (Vec<String>, Vec<String>) {
    // The numbers of tables depend on the container.
    let routes = sandbox.ip("route show table all dev ib0");
    let words = |line: &str| {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        if let Some(at) = words
            .iter()
            .position(|word| *word == "table" || *word == "lookup")
        {
            let number = words.get(at + 1).is_some_and(|word| word.parse::<u32>().is_ok());
            number.then(|| words.remove(at + 1));
        }
        words.join(" ")
    };
    let lines = |text: &str| text.lines().map(words).collect();
    (lines(&routes), lines(&sandbox.ip("rule show")))
}

/// The results of rdmanet's plugins that Multus has cached for a network.
fn results(network: &str) -> Vec<Value> {
    let files = fs::read_dir("/var/lib/cni/multus/results").unwrap();
    let ours = files.map(|file| file.unwrap().path()).filter(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with(network)
    });
    ours.map(|path| {
        let kept: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        kept["result"].clone()
    })
    .collect()
}

fn has_an_empty_list(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.is_empty() || list.iter().any(has_an_empty_list),
        Value::Object(object) => object.values().any(has_an_empty_list),
        _ => false,
    }
}

/// Multus should remove eth0's default route and set this one. Its netlink library shows default routes with a
/// destination, so 4.3.0 finds none to remove and then sets none (multus-cni#1552). Multus must fix both; rdmanet must
/// not prevent the route.
#[test]
fn default_route_is_left_to_multus() {
    Setup::run(|setup| {
        setup.network("rail0", &macvlan("rail0", "10.30.0.0/24"));
        let multus = setup.thin();
        let wanted = json!([{ "name": "rail0", "interface": "ib0", "default-route": ["10.30.0.1"] }]);
        let (sandbox, pod) = setup.pod("trainer", &wanted.to_string());
        let before = setup.node.settled_snapshot(&[&sandbox]);
        multus.add(&sandbox, &pod).result();
        let routes = default_routes(&sandbox);
        let old = "default via 10.244.0.1 dev eth0";
        assert!(
            routes == [old] || routes == ["default via 10.30.0.1 dev ib0"],
            "{routes:?}"
        );
        // Without the old route, the kernel accepts the new one.
        sandbox.ip("route replace default via 10.30.0.1 dev ib0");
        assert_eq!(default_routes(&sandbox), ["default via 10.30.0.1 dev ib0"]);
        multus.del(&sandbox, &pod);
        setup.node.assert_as_before(&before, &[&sandbox], "after DEL");
    });
}

/// An empty list in a result makes Multus treat the attachment as an interface: with `default-route` anywhere in the
/// pod, Multus then deletes routes of every link.
#[test]
fn no_result_of_the_plugin_contains_an_empty_list() {
    Setup::run(|setup| {
        let mut bare = macvlan("bare", "10.30.0.0/24");
        bare.as_object_mut().unwrap().remove("ipam");
        setup.network("bare", &bare);
        setup.network("rail0", &macvlan("rail0", "10.30.0.0/24"));
        let wanted = json!([
            { "name": "bare", "interface": "ib0" },
            { "name": "rail0", "interface": "ib1", "default-route": ["10.30.0.1"] },
        ]);
        let (sandbox, pod) = setup.pod("trainer", &wanted.to_string());
        setup.thin().add(&sandbox, &pod).result();
        let bare = results("bare");
        assert_eq!(bare.len(), 1);
        assert_eq!(bare[0].get("ips"), None);
        for result in bare.iter().chain(&results("rail0")) {
            assert!(!has_an_empty_list(result), "{result}");
        }
        assert_eq!(
            sandbox.ip("route show 10.244.0.1").trim(),
            "10.244.0.1 dev eth0 scope link src 10.244.0.2"
        );
        assert_eq!(
            sandbox.ip("route show 10.30.0.0/24").matches("dev ib1").count(),
            1
        );
    });
}

/// `"default-route": []` does not mean "keep eth0's": Multus treats an empty list as a request and removes the default
/// routes of the other networks. rdmanet's routes must be the same with and without it.
#[test]
fn an_empty_default_route_does_not_change_our_addresses_or_routes() {
    Setup::run(|setup| {
        setup.network("rail0", &macvlan("rail0", "10.30.0.0/24"));
        let multus = setup.thin();
        let ask = |keys: Value| {
            let mut element = json!({ "name": "rail0", "interface": "ib0", "ips": ["10.30.0.7/24"] });
            element
                .as_object_mut()
                .unwrap()
                .extend(keys.as_object().unwrap().clone());
            json!([element]).to_string()
        };
        let mut seen = Vec::new();
        for (name, keys) in [("without", json!({})), ("empty", json!({ "default-route": [] }))] {
            let (sandbox, pod) = setup.pod(name, &ask(keys));
            let before = setup.node.settled_snapshot(&[&sandbox]);
            multus.add(&sandbox, &pod).result();
            let status = setup.status(&pod);
            assert_eq!(status[1].get("gateway"), None);
            seen.push((sandbox.global("ib0"), routing(&sandbox)));
            multus.del(&sandbox, &pod);
            setup.node.assert_as_before(&before, &[&sandbox], name);
        }
        assert_eq!(seen[0], seen[1]);
    });
}
