// SPDX-License-Identifier: Apache-2.0
//! Renders manifests with the real tools (`tests/go/deploy`), and kubectl.

use crate::workspace;
use serde::Deserialize;
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The image in every manifest of `conf/`.
pub const IMAGE: &str = "rdmanet-agent:0.1.0";

/// The namespace in every manifest of `conf/`.
pub const NAMESPACE: &str = "rdmanet-system";

/// Each distribution and its directory of `conf/`.
pub const DIRECTORIES: [(&str, &str); 8] = [
    ("auto", "overlays/auto"),
    ("kubeadm", "base"),
    ("rke2", "base"),
    ("k0s", "base"),
    ("talos", "overlays/talos"),
    ("k3s", "overlays/k3s"),
    ("microk8s", "overlays/microk8s"),
    ("openshift", "overlays/openshift"),
];

/// The directory of Helm, kustomize and kubectl.
fn tools() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        let script = workspace().join("tests/go/build");
        let output = Command::new(&script)
            .args(["helm", "kustomize", "kubectl"])
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{} failed: {}",
            script.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
    })
}

/// Calls a tool and returns its output.
///
/// # Errors
/// Returns its stderr.
pub fn tool<S: AsRef<OsStr>>(name: &str, arguments: &[S]) -> Result<String, String> {
    tool_with(name, arguments, Path::new("/nowhere"))
}

/// Like [`tool`], with a cluster.
///
/// # Errors
/// Returns its stderr.
pub fn tool_with<S: AsRef<OsStr>>(name: &str, arguments: &[S], kubeconfig: &Path) -> Result<String, String> {
    let scratch = tempfile::tempdir().unwrap();
    let output = Command::new(tools().join(name))
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .env("HOME", scratch.path())
        .output()
        .unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// The objects of a stream of documents, sorted by kind and name.
pub fn objects(text: &str) -> Vec<Value> {
    let mut all = serde_norway::Deserializer::from_str(text)
        .map(|document| Value::deserialize(document).unwrap())
        .filter(|object| !object.is_null())
        .collect::<Vec<_>>();
    all.sort_by_key(|object| (kind(object).to_owned(), name(object).to_owned()));
    all
}

/// The objects that `kubectl apply -k conf/DIRECTORY` sends.
pub fn kustomized(directory: &str) -> Vec<Value> {
    let path = workspace().join("conf").join(directory);
    objects(&tool("kustomize", &["build".as_ref(), path.as_os_str()]).unwrap())
}

/// The same objects, moved to `namespace` by another kustomization. Namespaces and definitions precede the objects that
/// need them.
pub fn renamed(directory: &str, namespace: &str) -> Vec<Value> {
    let scratch = tempfile::tempdir().unwrap();
    let up: PathBuf = scratch.path().ancestors().skip(1).map(|_| "..").collect();
    let path = workspace().join("conf").join(directory);
    let base = up.join(path.strip_prefix("/").unwrap());
    let text = format!(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: {namespace}\nresources:\n- {}\n",
        base.display()
    );
    std::fs::write(scratch.path().join("kustomization.yaml"), text).unwrap();
    let built = tool("kustomize", &["build".as_ref(), scratch.path().as_os_str()]);
    let mut all = objects(&built.unwrap());
    all.sort_by_key(|object| match kind(object) {
        "Namespace" => 0,
        "CustomResourceDefinition" => 1,
        _ => 2,
    });
    all
}

/// The chart's directory.
pub fn chart() -> String {
    workspace().join("conf/chart").to_str().unwrap().to_owned()
}

/// The objects that `helm install` sends, with `values` in the format of `--set`.
///
/// # Errors
/// The output of Helm.
pub fn templated(namespace: &str, values: &[&str]) -> Result<Vec<Value>, String> {
    let chart = chart();
    let mut arguments = vec!["template", "rdmanet", &chart, "--namespace", namespace];
    arguments.extend(values.iter().flat_map(|value| ["--set", value]));
    tool("helm", &arguments).map(|text| objects(&text))
}

/// The kind of an object.
pub fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap()
}

/// The name of an object.
pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// The object of `kind` with the name `name`.
pub fn find<'o>(objects: &'o [Value], wanted: &str, called: &str) -> &'o Value {
    objects
        .iter()
        .find(|object| kind(object) == wanted && name(object) == called)
        .unwrap_or_else(|| panic!("there is no {wanted} {called}"))
}
