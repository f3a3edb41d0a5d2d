// SPDX-License-Identifier: Apache-2.0
//! Checks that the tables of `docs/` list exactly what the code has.

use api::IpPool;
use kube::CustomResourceExt;
use std::collections::BTreeSet;

const OPERATE: &str = include_str!("../../docs/operate.md");
const POOLS: &str = include_str!("../../docs/pools.md");

/// The entries of one column of the tables below a heading: the text in backticks, or the bare word.
fn column(page: &str, heading: &str, column: usize) -> BTreeSet<String> {
    let start = page.find(&format!("\n## {heading}\n")).expect(heading) + 1;
    let section = &page[start + 3..];
    let section = section.find("\n## ").map_or(section, |end| &section[..end]);
    let rows = section
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| ---"));
    let cells = rows
        .skip(1)
        .filter_map(|row| row.split('|').nth(column + 1).map(str::trim).map(str::to_owned));
    let words = |cell: String| -> Vec<String> {
        match cell
            .split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect::<Vec<_>>()
        {
            quoted if quoted.is_empty() => vec![cell],
            quoted => quoted,
        }
    };
    cells.flat_map(words).collect()
}

/// The values of the string constants of a module.
fn constants(source: &str, module: &str) -> BTreeSet<String> {
    let start = source.find(&format!("pub mod {module} {{")).expect(module);
    let text = &source[start..];
    let lines = text[..text.find("\n}").unwrap()].lines();
    lines
        .filter(|line| line.contains("pub const "))
        .map(|line| line.split('"').nth(1).unwrap().to_owned())
        .collect()
}

#[test]
fn the_docs_explain_every_pool_condition_and_its_reasons() {
    let source = include_str!("../../api/src/pool/status.rs");
    assert_eq!(
        column(OPERATE, "Conditions of a pool", 0),
        constants(source, "condition")
    );
    assert_eq!(
        column(OPERATE, "Conditions of a pool", 1),
        constants(source, "reason")
    );
}

#[test]
fn the_docs_explain_the_node_condition_and_its_reasons() {
    let source = include_str!("../../api/src/links.rs");
    let heading = "Condition of a node";
    assert_eq!(column(OPERATE, heading, 0), constants(source, "kind"));
    assert_eq!(column(OPERATE, heading, 1), constants(source, "reason"));
}

#[test]
fn the_docs_explain_every_event() {
    let mut reasons = constants(include_str!("../../api/src/pool/status.rs"), "reason");
    // Reasons of conditions that have ended; no Event has them.
    for quiet in ["None", "AddressesAvailable"] {
        assert!(reasons.remove(quiet));
    }
    reasons.extend(constants(include_str!("agent.rs"), "event"));
    assert_eq!(column(OPERATE, "Events", 1), reasons);
}

#[test]
fn the_docs_explain_every_metric() {
    let served = |source: &str, prefix: &str| -> Vec<String> {
        let registered = source.split("all.register(").skip(1);
        registered
            .map(|text| format!("{prefix}_{}", text.split('"').nth(1).unwrap()))
            .collect()
    };
    let agent = served(include_str!("metrics.rs"), "rdmanet");
    let controller = served(include_str!("../../controller/src/metrics.rs"), "rdmanet");
    let both = served(include_str!("../../api/src/metrics.rs"), "rdmanet");
    let names: BTreeSet<String> = [agent, controller, both].concat().into_iter().collect();
    assert!(names.len() > 10);
    assert_eq!(column(OPERATE, "Metrics", 0), names);
}

#[test]
fn the_docs_explain_every_error_code() {
    let source = include_str!("../../common/src/cni/error.rs");
    let codes: BTreeSet<String> = source
        .lines()
        .filter_map(|line| {
            line.split(": Self = Self(")
                .nth(1)?
                .strip_suffix(");")
                .map(str::to_owned)
        })
        .collect();
    assert!(codes.len() > 20);
    assert_eq!(column(OPERATE, "Error codes", 0), codes);
}

#[test]
fn the_docs_explain_every_key_of_a_pool() {
    let definition = serde_json::to_value(IpPool::crd()).unwrap();
    let spec = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut keys = BTreeSet::new();
    for (name, schema) in spec["properties"].as_object().unwrap() {
        let (prefix, members) = match name.as_str() {
            "ranges" | "routes" => (format!("{name}[]."), &schema["items"]["properties"]),
            "blockSize" => (format!("{name}."), &schema["properties"]),
            _ => {
                keys.insert(name.clone());
                continue;
            }
        };
        // The second of two keys in one row has no prefix.
        keys.extend(members.as_object().unwrap().keys().map(|member| {
            let alone = ["end", "gw", "v6"].contains(&member.as_str());
            if alone {
                member.clone()
            } else {
                format!("{prefix}{member}")
            }
        }));
    }
    assert_eq!(column(POOLS, "Every key", 0), keys);
}
