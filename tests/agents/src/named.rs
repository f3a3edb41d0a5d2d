// SPDX-License-Identifier: Apache-2.0
//! Network namespaces of pods that outlive no test.

use std::path::PathBuf;
use std::process::Command;

/// A network namespace with a name, until it is dropped.
pub struct Named(pub String);

impl Named {
    /// Creates the namespace. `test` must be unique within the process.
    pub fn new(test: &str) -> Self {
        let name = format!("rdmanet-{test}-{}", std::process::id());
        assert!(ip(&["netns", "add", &name]), "ip netns add needs root");
        Self(name)
    }

    /// Its path.
    pub fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.0)
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        ip(&["netns", "delete", &self.0]);
    }
}

/// Runs `ip` with these arguments. Returns whether it succeeded.
pub fn ip(args: &[&str]) -> bool {
    Command::new("ip")
        .args(args)
        .output()
        .is_ok_and(|output| output.status.success())
}
