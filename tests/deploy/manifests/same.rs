// SPDX-License-Identifier: Apache-2.0
//! Kustomize and Helm render the same objects, and these match the installer.

use agent::install::Distribution;
use deploy::manifests::{DIRECTORIES, IMAGE, NAMESPACE, find, kind, kustomized, name, templated};
use deploy::workspace;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn chart_for(distribution: &str) -> Vec<Value> {
    let values = [format!("image={IMAGE}"), format!("distribution={distribution}")];
    templated(NAMESPACE, &values.each_ref().map(String::as_str)).unwrap()
}

#[test]
fn the_chart_renders_the_same_objects_as_the_overlay_of_each_distribution() {
    for (distribution, directory) in DIRECTORIES {
        let mut applied = kustomized(directory);
        // The caller of Helm passes the namespace.
        applied.retain(|object| kind(object) != "Namespace");
        // The directory `base` serves several distributions, so its manifest names none.
        if directory == "base" {
            let install = install_container(&mut applied);
            install["env"][0]["value"] = json!(distribution);
        }
        let mut released = chart_for(distribution);
        for object in &mut released {
            if kind(object) == "CustomResourceDefinition" {
                let annotations = object["metadata"]["annotations"].as_object_mut().unwrap();
                assert_eq!(annotations.remove("helm.sh/resource-policy"), Some(json!("keep")));
                if annotations.is_empty() {
                    object["metadata"].as_object_mut().unwrap().remove("annotations");
                }
            }
        }
        let names = |objects: &[Value]| {
            objects
                .iter()
                .map(|object| format!("{} {}", kind(object), name(object)))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&released), names(&applied), "{distribution}");
        for (released, applied) in released.iter().zip(&applied) {
            assert_eq!(
                released,
                applied,
                "{distribution}: {} {}",
                kind(applied),
                name(applied)
            );
        }
    }
}

fn install_container(objects: &mut [Value]) -> &mut Value {
    let daemonset = objects
        .iter_mut()
        .find(|object| kind(object) == "DaemonSet")
        .unwrap();
    &mut daemonset["spec"]["template"]["spec"]["initContainers"][0]
}

#[test]
fn the_chart_mounts_the_plugin_directory_that_the_installer_uses() {
    for distribution in Distribution::ALL {
        let objects = chart_for(distribution.name());
        let pod = &find(&objects, "DaemonSet", "rdmanet-agent")["spec"]["template"]["spec"];
        let dir = distribution.bin_dir();
        assert_eq!(pod["volumes"][0]["hostPath"]["path"], dir, "{distribution}");
        let mounts = &pod["initContainers"][0]["volumeMounts"];
        assert_eq!(
            *mounts,
            json!([{ "name": "plugins", "mountPath": format!("/host{dir}") }])
        );
    }
}

#[test]
fn the_auto_distribution_mounts_the_whole_host() {
    let objects = chart_for("auto");
    let pod = &find(&objects, "DaemonSet", "rdmanet-agent")["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"][0]["hostPath"]["path"], "/");
    assert_eq!(pod["initContainers"][0]["volumeMounts"][0]["mountPath"], "/host");
}

/// The kubelet checks the type in its own file system, and on Talos it is a container without /opt.
#[test]
fn the_kubelet_checks_the_plugin_directory_except_on_talos() {
    for (distribution, directory) in DIRECTORIES {
        for objects in [kustomized(directory), chart_for(distribution)] {
            let pod = &find(&objects, "DaemonSet", "rdmanet-agent")["spec"]["template"]["spec"];
            let checked = &pod["volumes"][0]["hostPath"]["type"];
            let expected = if distribution == "talos" {
                Value::Null
            } else {
                json!("Directory")
            };
            assert_eq!(*checked, expected, "{distribution}: conf/{directory}");
        }
    }
}

#[test]
fn every_distribution_of_the_installer_has_a_directory() {
    let mut known: Vec<&str> = Distribution::ALL.iter().map(|one| one.name()).collect();
    known.push("auto");
    known.sort_unstable();
    let mut here = DIRECTORIES.map(|(distribution, _)| distribution);
    here.sort_unstable();
    assert_eq!(here.as_slice(), known);
}

/// The names of the manifests in a directory.
fn manifests(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .unwrap_or_else(|e| panic!("{}: {e}", directory.display()))
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| Path::new(name).extension().is_some_and(|end| end == "yaml"))
        .collect();
    names.sort();
    names
}

#[test]
fn every_manifest_is_listed_in_the_kustomization_of_its_directory() {
    let conf = workspace().join("conf");
    for directory in ["crds", "rbac", "policies", "agent", "controller", "uninstall"] {
        let text = std::fs::read_to_string(conf.join(directory).join("Kustomization")).unwrap();
        let kustomization: Value = serde_norway::from_str(&text).unwrap();
        let resources = kustomization["resources"].as_array().unwrap().iter();
        let mut listed: Vec<&str> = resources.map(|name| name.as_str().unwrap()).collect();
        listed.sort_unstable();
        assert_eq!(manifests(&conf.join(directory)), listed, "{directory}");
    }
}

/// Every file below `directory`. Links are not followed.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            all.extend(files(&entry.path()));
        } else {
            all.push(entry.path());
        }
    }
    all
}

#[test]
fn the_chart_has_copies_of_the_manifests_and_no_links() {
    let conf = workspace().join("conf");
    for file in files(&conf.join("chart")) {
        assert!(!file.is_symlink(), "{} is a link", file.display());
    }
    let copies = conf.join("chart/files");
    let mut pairs = vec![
        (conf.join("agent/daemonset.yaml"), copies.join("daemonset.yaml")),
        (
            conf.join("controller/deployment.yaml"),
            copies.join("controller.yaml"),
        ),
        (conf.join("overlays/openshift/scc.yaml"), copies.join("scc.yaml")),
        (conf.join("overlays/gke/quota.yaml"), copies.join("quota.yaml")),
    ];
    for directory in ["crds", "rbac", "policies"] {
        for name in manifests(&conf.join(directory)) {
            pairs.push((
                conf.join(directory).join(&name),
                copies.join(directory).join(&name),
            ));
        }
    }
    for (original, copy) in &pairs {
        let [original_text, text] =
            [original, copy].map(|path| std::fs::read_to_string(path).unwrap_or_default());
        assert!(
            text == original_text,
            "{} is not {}: run conf/sync-chart",
            copy.display(),
            original.display()
        );
    }
    assert_eq!(
        files(&copies).len(),
        pairs.len(),
        "conf/chart/files has more than conf/"
    );
}
