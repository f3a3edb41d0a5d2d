// SPDX-License-Identifier: Apache-2.0
//! The image's software bill of materials.

use deploy::workspace;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use tests::programs::checks;

/// Runs a program, which must succeed, and returns its output.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Validates a bill against the schema of the specification and the SPDX list (`tests/go/checks/bomcheck`).
fn validate(bill: &Path) -> Result<(), String> {
    let module = "github.com/CycloneDX/cyclonedx-go";
    let mut list = Command::new("go");
    list.args(["list", "-m", "-f", "{{.Dir}}", module]);
    let module = output(list.current_dir(workspace().join("tests/go/checks")));
    let checked = Command::new(checks().join("bomcheck"))
        .arg(format!("{module}/schema"))
        .arg(bill)
        .output()
        .unwrap();
    if checked.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&checked.stderr).into_owned())
}

/// Fails if the validation accepts a wrong type of component or a wrong licence, so that its success shows something.
fn the_schema_refuses_changes_of(bill: &Value, directory: &Path) {
    for (member, wrong) in [
        ("/components/0/type", "crate"),
        ("/components/0/licenses/0/expression", "MIT/Apache-2.0"),
    ] {
        let mut changed = bill.clone();
        *changed.pointer_mut(member).unwrap() = json!(wrong);
        let file = directory.join("changed.json");
        std::fs::write(&file, changed.to_string()).unwrap();
        let why = validate(&file).unwrap_err();
        assert!(
            why.contains("type must be one of") || why.contains(wrong),
            "{member}: {why}"
        );
    }
}

/// Writes the bill of materials and the licence texts to `directory`. Returns the bill's file and its content.
fn written(directory: &Path) -> (PathBuf, Value) {
    let made = Command::new(workspace().join("conf/image/build"))
        .args(["--bill", directory.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let file = directory.join("bom.json");
    let bill = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    (file, bill)
}

/// A scanner takes a package URL of the type cargo for the crate of this name on crates.io.
#[test]
fn our_crates_are_not_taken_for_those_of_others_with_the_same_name() {
    let directory = tempfile::tempdir().unwrap();
    let (_, bill) = written(directory.path());
    let lock = std::fs::read_to_string(workspace().join("Cargo.lock")).unwrap();
    let mut ours = Vec::new();
    for one in bill["components"].as_array().unwrap() {
        let [name, version, url] = ["name", "version", "purl"].map(|key| one[key].as_str().unwrap());
        if url.starts_with("pkg:cargo/") {
            let entry = format!(
                "name = \"{name}\"\nversion = \"{version}\"\nsource = \"registry+https://github.com/"
            );
            assert!(lock.contains(&entry), "{url} is not from crates.io");
        } else if one["group"] == "rdmanet" {
            assert_eq!(url, format!("pkg:generic/rdmanet/{name}@{version}"));
            ours.push(name);
        }
    }
    ours.sort_unstable();
    let linked = [
        "agent",
        "api",
        "block",
        "cni-ipoib",
        "common",
        "controller",
        "ipam",
    ];
    assert_eq!(ours, linked);
}

#[test]
fn the_bill_of_materials_is_valid_and_lists_each_package_with_its_licence() {
    let directory = tempfile::tempdir().unwrap();
    let (file, bill) = written(directory.path());
    validate(&file).unwrap();
    the_schema_refuses_changes_of(&bill, directory.path());
    assert_eq!(
        (&bill["bomFormat"], &bill["specVersion"]),
        (&"CycloneDX".into(), &"1.6".into())
    );
    let components = bill["components"].as_array().unwrap();
    let named = |name: &str| components.iter().find(|one| one["name"] == name);
    for name in [
        "agent",
        "controller",
        "cni-ipoib",
        "ipam",
        "kube",
        "tokio",
        "netlink-packet-route",
        "rust-std",
        "musl",
    ] {
        assert!(named(name).is_some(), "{name} is not in the bill");
    }
    // Only tests use this crate.
    assert!(named("stateright").is_none());
    let has_text = |one: &Value| {
        let [name, version] = ["name", "version"].map(|key| one[key].as_str().unwrap());
        directory
            .path()
            .join(format!("licenses/{name}-{version}"))
            .is_dir()
    };
    assert!(has_text(named("rust-std").unwrap()));
    for one in components {
        let licence = one["licenses"][0]["expression"].as_str().unwrap();
        assert!(!licence.is_empty() && !licence.contains('/'), "{one}");
    }
    let texts = components.iter().filter(|one| has_text(one)).count();
    // A few packages contain no licence text; those of rdmanet share one.
    assert!(
        texts * 10 > components.len() * 8,
        "{texts} of {}",
        components.len()
    );
    assert!(directory.path().join("licenses/rdmanet").is_file());
}
