// SPDX-License-Identifier: Apache-2.0
//! What the image says of what it is made of.

use deploy::workspace;
use serde_json::Value;
use std::process::Command;

#[test]
fn the_bill_of_the_image_names_every_package_and_its_licence() {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new(workspace().join("conf/image/build"))
        .args(["--bill", folder.path().to_str().unwrap()])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let bill = std::fs::read(folder.path().join("bom.json")).unwrap();
    let bill: Value = serde_json::from_slice(&bill).unwrap();
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
    ] {
        assert!(named(name).is_some(), "{name} is not in the bill");
    }
    // Only tests need this one.
    assert!(named("stateright").is_none());
    let mut texts = 0;
    for one in components {
        let licence = one["licenses"][0]["expression"].as_str().unwrap();
        assert!(!licence.is_empty() && !licence.contains('/'), "{one}");
        let text = format!(
            "licenses/{}-{}",
            one["name"].as_str().unwrap(),
            one["version"].as_str().unwrap()
        );
        texts += usize::from(folder.path().join(text).is_dir());
    }
    // A few packages come without a text; ours share one.
    assert!(
        texts * 10 > components.len() * 8,
        "{texts} of {}",
        components.len()
    );
    assert!(folder.path().join("licenses/rdmanet").is_file());
}
