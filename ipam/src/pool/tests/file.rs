// SPDX-License-Identifier: Apache-2.0
use super::pool;
use crate::pool::{PoolFile, PoolName};
use common::cni::Code;
use serde_json::{Value, json};
use std::path::Path;

fn read(value: &Value) -> Result<PoolFile, common::cni::Error> {
    PoolFile::read(value.to_string().as_bytes(), Path::new("/pools/rail0/pool.json"))
}

#[test]
fn a_pool_file_survives_writing_and_reading() {
    let mut pool = pool();
    pool.ranges[0].gateway = Some("10.0.0.1".parse().unwrap());
    pool.ranges[0].exclude = vec!["10.0.0.9".to_owned()];
    pool.namespaces = Some(vec!["default".to_owned()]);
    pool.fallback = vec!["spare".parse().unwrap()];
    pool.counters.size = u64::MAX;
    let bytes = pool.to_bytes().unwrap();
    assert_eq!(PoolFile::read(&bytes, Path::new("/x")).unwrap(), pool);
}

#[test]
fn the_file_of_format_1_stays_readable() {
    let least = json!({
        "format": 1, "pool": "rail0", "uid": "u", "generation": 1, "node": "n1", "nodeUID": "nu", "bootID": "00b00710-0000-4000-8000-000000000001",
        "quarantineSeconds": 600, "cooldownSeconds": 30, "ranges": [{"subnet": "10.0.0.0/24"}],
        "blocks": [{"name": "default-10.0.0.0/28", "cidr": "10.0.0.0/28", "epoch": 1, "state": "active"}],
    });
    assert_eq!(read(&least).unwrap(), pool());
}

#[test]
fn a_newer_format_is_refused_before_its_content_is_read() {
    let error = read(&json!({"format": 2, "blocks": "of another kind"})).unwrap_err();
    assert_eq!(error.code, Code::UNSUPPORTED_FIELD, "{error}");
    for word in [
        "/pools/rail0/pool.json",
        "format 2",
        "reads up to 1",
        "install the plugin",
    ] {
        assert!(error.msg.contains(word), "{error} lacks {word}");
    }
}

#[test]
fn the_error_for_a_damaged_pool_names_file_path_and_remedy() {
    let mut odd: Value = serde_json::from_slice(&pool().to_bytes().unwrap()).unwrap();
    odd["blocks"][0]["state"] = json!("actve");
    for (content, what) in [
        (odd.to_string(), "blocks[0].state: unknown variant `actve`"),
        (String::new(), "EOF"),
        ("{}".to_owned(), "missing field"),
        (
            String::from_utf8(pool().to_bytes().unwrap()[..200].to_vec()).unwrap(),
            "EOF",
        ),
    ] {
        let error = PoolFile::read(content.as_bytes(), Path::new("/pools/rail0/pool.json")).unwrap_err();
        assert_eq!(error.code, Code::STORE_CORRUPT, "{error}");
        for word in ["/pools/rail0/pool.json is damaged", what, "remove the file"] {
            assert!(error.msg.contains(word), "{error} lacks {word}");
        }
    }
}

#[test]
fn a_pool_name_is_a_kubernetes_object_name() {
    for good in ["rail0", "a", "tenant-a.rail0", &"x".repeat(253)] {
        assert!(good.parse::<PoolName>().is_ok(), "{good}");
    }
    for bad in [
        "",
        ".",
        "..",
        "Rail0",
        "-a",
        "a-",
        "a..b",
        "a/b",
        "a_b",
        ".a",
        &"x".repeat(254),
    ] {
        let error = bad.parse::<PoolName>().unwrap_err();
        assert!(error.msg.contains("cannot be the name of an IPPool"), "{error}");
    }
}

#[test]
fn a_pod_of_unknown_namespace_is_admitted_only_if_all_are() {
    let mut pool = pool();
    assert!(pool.admits(None) && pool.admits(Some("any")));
    pool.namespaces = Some(vec!["default".to_owned()]);
    assert!(pool.admits(Some("default")) && !pool.admits(Some("other")) && !pool.admits(None));
    pool.namespaces = Some(Vec::new());
    assert!(!pool.admits(Some("default")));
}

/// The agent of a node may be newer than a running plugin (`docs/design/versions.md`).
#[test]
fn a_file_of_a_newer_agent_is_read_without_its_new_members() {
    let mut file = serde_json::to_value(pool()).unwrap();
    file["later"] = json!([1]);
    assert_eq!(read(&file).unwrap(), pool());
}
