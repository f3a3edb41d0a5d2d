// SPDX-License-Identifier: Apache-2.0
//! Runs on directories that look like the root of a node. Tests that need root or a real plugin are in `tests/deploy`.

mod detect;
mod place;
mod remove;

use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

/// A node's file system, and the plugins of an image.
struct Node {
    dir: TempDir,
}

impl Node {
    fn new() -> Self {
        let node = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        fs::create_dir_all(node.host()).unwrap();
        node
    }

    /// A node with the default directory of plugins.
    fn usual() -> Self {
        let node = Self::new();
        node.write("/var/lib/kubelet/kubeadm-flags.env", "");
        node.write("/opt/cni/bin/loopback", "");
        node
    }

    fn host(&self) -> PathBuf {
        self.dir.path().join("host")
    }

    fn at(&self, path: &str) -> PathBuf {
        on_host(&self.host(), Path::new(path))
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    fn names(&self, path: &str) -> Vec<String> {
        let mut names = fs::read_dir(self.at(path))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect::<Vec<_>>();
        names.sort();
        names
    }

    /// The plugins of an image of `version`.
    fn image(&self, version: &str) -> PathBuf {
        let image = self.dir.path().join("image");
        fs::create_dir_all(&image).unwrap();
        for name in PLUGINS {
            fs::write(image.join(name), program(name, version)).unwrap();
        }
        image
    }

    fn target(&self) -> Target {
        Target {
            host: self.host(),
            distribution: Choice(None),
            bin_dir: None,
        }
    }

    fn wanted(&self, version: &str) -> Install {
        Install {
            target: self.target(),
            plugins: self.image(version),
            replace_foreign: false,
            peer_names: Vec::new(),
        }
    }

    fn install(&self, version: &str) -> Result<String, Error> {
        output_of(|out| install(&self.wanted(version), out))
    }

    fn removal(&self) -> Uninstall {
        Uninstall {
            target: self.target(),
            paths: Paths {
                data_dir: ipam::config::DATA_DIR.into(),
                state: "/run/rdmanet".into(),
                netns: "/run/netns".into(),
            },
            force: false,
            stay: false,
        }
    }

    fn uninstall(&self) -> Result<String, Error> {
        output_of(|out| uninstall(&self.removal(), out))
    }
}

/// A program that responds to `VERSION` as a plugin does.
fn program(name: &str, version: &str) -> String {
    format!(
        "#!/bin/sh\n# {name} {version} (rdmanet): a test\necho '{{\"supportedVersions\": [\"1.1.0\"]}}'\n"
    )
}

fn output_of(work: impl FnOnce(&mut dyn Write) -> Result<(), Error>) -> Result<String, Error> {
    let mut out = Vec::new();
    work(&mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

#[track_caller]
fn assert_says(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} is not in: {text}");
}

#[track_caller]
fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().to_string()
}
