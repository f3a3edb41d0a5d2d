// SPDX-License-Identifier: Apache-2.0
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::TempDir;

/// An IPAM plugin `ranges` in its own directory: a script that records its calls.
pub(crate) struct Ipam {
    dir: TempDir,
    _alone: MutexGuard<'static, ()>,
}

/// Between `fork` and `exec` a child holds every lock of its parent, so a test of locks must not run beside a
/// test that starts processes.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ipam {
    /// Answers ADD with this, and everything else with success.
    pub(crate) fn giving(result: &Value) -> Self {
        Self::running(&format!("[ $CNI_COMMAND = ADD ] && echo '{result}'; exit 0"))
    }

    /// One IPv4 and one IPv6 address, and a default route.
    pub(crate) fn dual_stack() -> Self {
        Self::giving(&serde_json::json!({
            "cniVersion": "1.1.0",
            "ips": [
                {"address": "10.0.0.2/24", "gateway": "10.0.0.1"},
                {"address": "fd00:1::2/64"},
            ],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dns": {"nameservers": ["10.0.0.53"]},
        }))
    }

    /// Runs `script` after recording the call; `$conf` has the configuration, which is one line. The shell
    /// reads it itself: some tests make hundreds of calls, and a second program would double the time.
    pub(crate) fn running(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ranges");
        let text = format!(
            "#!/bin/sh\ncd {}\nIFS= read -r conf\necho \"$conf\" > conf.$CNI_COMMAND\n\
             [ -e fails ] && {{ echo '{{\"code\":99,\"msg\":\"no\"}}'; exit 1; }}\n\
             echo \"$CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME\" >> calls\n{script}\n",
            dir.path().display()
        );
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        Self { dir, _alone: alone() }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Every call so far: verb, container, interface.
    pub(crate) fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.dir().join("calls")).unwrap_or_default();
        text.lines().map(|line| line.trim().to_owned()).collect()
    }

    pub(crate) fn forget_calls(&self) {
        fs::write(self.dir().join("calls"), "").unwrap();
    }

    /// From now on every call fails with code 99, or succeeds again.
    pub(crate) fn fail(&self, fails: bool) {
        let sign = self.dir().join("fails");
        if fails {
            fs::write(sign, "").unwrap();
        } else {
            fs::remove_file(sign).unwrap_or_default();
        }
    }

    /// The verbs of every call so far.
    pub(crate) fn verbs(&self) -> Vec<String> {
        let verb = |call: String| call.split(' ').next().unwrap_or_default().to_owned();
        self.calls().into_iter().map(verb).collect()
    }

    /// The configuration of the last call of `verb`.
    pub(crate) fn conf_of(&self, verb: &str) -> Value {
        let text = fs::read(self.dir().join(format!("conf.{verb}"))).unwrap();
        serde_json::from_slice(&text).unwrap()
    }
}
