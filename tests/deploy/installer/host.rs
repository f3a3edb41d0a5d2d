// SPDX-License-Identifier: Apache-2.0
//! A directory tree that looks like a node, the plugins of an image, and calls of the installer on them.

use agent::install::PLUGINS;
use deploy::program;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// The usual directory of plugins.
pub(crate) const BIN: &str = "opt/cni/bin";

pub(crate) struct Host {
    dir: TempDir,
}

/// The exit status and output of an installer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) worked: bool,
    pub(crate) output: String,
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        Self {
            worked: output.status.success(),
            output: format!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            ),
        }
    }
}

impl Answer {
    #[track_caller]
    pub(crate) fn worked(self) -> String {
        assert!(self.worked, "{}", self.output);
        self.output
    }

    #[track_caller]
    pub(crate) fn refused_with(&self, parts: &[&str]) {
        assert!(!self.worked, "{}", self.output);
        for part in parts {
            assert!(self.output.contains(part), "{part:?} is not in: {}", self.output);
        }
    }
}

impl Host {
    /// A node as kubeadm creates it.
    pub(crate) fn new() -> Self {
        let host = Self::bare();
        host.write("etc/os-release", "ID=debian\n");
        host.write("var/lib/kubelet/kubeadm-flags.env", "");
        host.write(&format!("{BIN}/loopback"), "");
        host
    }

    /// A node without files.
    pub(crate) fn bare() -> Self {
        let host = Self {
            dir: tempfile::Builder::new().prefix("host-").tempdir().unwrap(),
        };
        fs::create_dir(host.root()).unwrap();
        fs::create_dir(host.image()).unwrap();
        for name in PLUGINS {
            fs::copy(program(name), host.image().join(name)).unwrap();
        }
        host
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("host")
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// A path outside the node, for files of the test.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Writes an earlier release: small programs that respond as plugins do.
    pub(crate) fn write_earlier(dir: &Path) {
        for name in PLUGINS {
            let path = dir.join(name);
            fs::write(&path, earlier(name)).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    pub(crate) fn names(&self, dir: &str) -> Vec<String> {
        let mut names = fs::read_dir(self.at(dir))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect::<Vec<_>>();
        names.sort();
        names
    }

    /// The command line of the installer.
    pub(crate) fn words(&self, errand: &str) -> Vec<String> {
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        let mut words = vec![
            text(program("rdmanet-agent")),
            errand.to_owned(),
            "--host".to_owned(),
            text(self.root()),
        ];
        if errand == "install" {
            words.extend(["--plugins".to_owned(), text(self.image())]);
        }
        words
    }

    pub(crate) fn call(&self, errand: &str, more: &[&str]) -> Answer {
        let words = self.words(errand);
        let output = Command::new(&words[0]).args(&words[1..]).args(more).output();
        output.unwrap().into()
    }

    pub(crate) fn install(&self) -> Answer {
        self.call("install", &[])
    }

    /// Runs `script` in its own mount namespace, with the command line of the installer as its arguments.
    pub(crate) fn mounted(&self, errand: &str, script: &str) -> Answer {
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-ec", script, "sh"])
            .args(self.words(errand))
            .env("HOST", self.root())
            .env("BIN", self.at(BIN))
            .env("BESIDE", self.dir.path())
            .output();
        output.unwrap().into()
    }
}

/// The content of a plugin of an earlier release.
pub(crate) fn earlier(name: &str) -> String {
    format!("#!/bin/sh\n# {name} 0.0.9 (rdmanet): a test\necho '{{\"supportedVersions\": [\"1.1.0\"]}}'\n")
}

/// Whether the file at `path` is the real plugin `name`.
pub(crate) fn is_real(path: &Path, name: &str) -> bool {
    fs::read(path).is_ok_and(|content| content == fs::read(program(name)).unwrap())
}
