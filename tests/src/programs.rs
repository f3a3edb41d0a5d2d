// SPDX-License-Identifier: Apache-2.0
//! Paths of the programs under test.

mod freshness;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};

/// The directory of all plugins in the fabric's VM.
const IN_VM: &str = "/opt/cni/bin";

/// The directory of rdmanet's static binaries: `RDMANET_BIN`, else the workspace's build output, else (in the VM, which
/// has no workspace) `/opt/cni/bin`.
pub fn ours() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        let built = workspace().map(|root| {
            let target =
                std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
            target.join("x86_64-unknown-linux-musl/release")
        });
        let is_built = given("RDMANET_BIN").is_none() && built.is_some();
        let dir = given("RDMANET_BIN")
            .or(built)
            .unwrap_or_else(|| PathBuf::from(IN_VM));
        for plugin in ["cni-ipoib", "rdma-ipam"] {
            assert!(
                dir.join(plugin).is_file(),
                "{plugin} is not in {}: run `cargo build --release --target x86_64-unknown-linux-musl`, or set RDMANET_BIN",
                dir.display()
            );
            if is_built {
                require_fresh(&dir.join(plugin), "cargo build --release --target x86_64-unknown-linux-musl -p cni-ipoib -p ipam");
            }
        }
        dir
    })
}

/// A program that `cargo build` has built for this machine, in the directory of the running test. Its sources are compared once, so
/// they may change while a suite runs.
pub fn program(name: &str) -> PathBuf {
    static FOUND: LazyLock<Mutex<HashMap<String, PathBuf>>> = LazyLock::new(Mutex::default);
    let find = || {
        let path = running().parent().and_then(Path::parent).unwrap().join(name);
        let build = "cargo build --workspace --bins";
        assert!(path.is_file(), "{} is not there: run `{build}`", path.display());
        require_fresh(&path, build);
        path
    };
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    found.entry(name.to_owned()).or_insert_with(find).clone()
}

/// The program of the running test. In a chroot the kernel prints another path to a thread that has left the mount namespace of this
/// process. So [`crate::Node`] calls this function before its thread does so.
pub(crate) fn running() -> &'static Path {
    static FOUND: LazyLock<PathBuf> = LazyLock::new(|| std::env::current_exe().unwrap());
    &FOUND
}

/// The directory of the programs and manifests of an earlier version: `RDMANET_EARLIER`, which `tests/earlier` prints.
pub fn earlier() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        let dir = given("RDMANET_EARLIER")
            .expect("set RDMANET_EARLIER to what `tests/earlier COMMIT` prints, or run `tests/all versions`");
        assert!(
            dir.join("rdma-ipam").is_file(),
            "no programs in {}",
            dir.display()
        );
        dir
    })
}

/// Fails if `program` is older than its sources in this workspace. `build` is the command that builds it.
fn require_fresh(program: &Path, build: &str) {
    let Some(root) = workspace() else { return };
    if let Some(why) = freshness::staleness(program, &root) {
        panic!(
            "{} is not what this workspace builds: {why}; run `{build}`",
            program.display()
        );
    }
}

/// The directory of the reference plugins: `RDMANET_PEERS`, else the output of `tests/go/build --group cni`, else
/// `/opt/cni/bin`.
pub fn peers() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        let dir = given("RDMANET_PEERS")
            .or_else(|| built("cni"))
            .unwrap_or_else(|| PathBuf::from(IN_VM));
        for plugin in ["macvlan", "bridge", "ptp", "host-local", "static", "dhcp", "tuning"] {
            assert!(
                dir.join(plugin).is_file(),
                "the reference plugin {plugin} is not in {}: run tests/go/build --group cni and set RDMANET_PEERS to what it prints",
                dir.display()
            );
        }
        dir
    })
}

/// The directory of Multus: `RDMANET_MULTUS`, else the output of `tests/go/build --group multus`, else `/opt/cni/bin`.
pub fn multus() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        let dir = given("RDMANET_MULTUS")
            .or_else(|| built("multus"))
            .unwrap_or_else(|| PathBuf::from(IN_VM));
        for program in ["multus", "multus-daemon", "multus-shim", "podresources"] {
            assert!(
                dir.join(program).is_file(),
                "{program} is not in {}: run tests/go/build --group multus and set RDMANET_MULTUS to what it prints",
                dir.display()
            );
        }
        dir
    })
}

/// The program of whereabouts: from `RDMANET_WHEREABOUTS`, else the output of `tests/go/build --group whereabouts`.
pub fn whereabouts() -> PathBuf {
    let dir = given("RDMANET_WHEREABOUTS").or_else(|| built("whereabouts"));
    let program = dir
        .expect("RDMANET_WHEREABOUTS, the directory that tests/go/build --group whereabouts prints")
        .join("whereabouts");
    assert!(program.is_file(), "{} is not there", program.display());
    program
}

/// The directory with the definitions of whereabouts, in its module.
pub fn whereabouts_definitions() -> PathBuf {
    let group = workspace().map(|root| root.join("tests/go/whereabouts"));
    let output = Command::new("go")
        .arg("-C")
        .arg(group.expect("the workspace, for tests/go/whereabouts"))
        .args(["list", "-m", "-f", "{{.Dir}}"])
        .arg("github.com/k8snetworkplumbingwg/whereabouts")
        .output()
        .expect("start go");
    let dir = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim()).join("doc/crds");
    assert!(dir.is_dir(), "{} is not there", dir.display());
    dir
}

/// The directory with checkers of other projects' formats, built by `tests/go/build --group checks`.
pub fn checks() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| built("checks").expect("the workspace, for tests/go/build --group checks"))
}

fn given(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// The workspace of this program, if it is on this machine.
fn workspace() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    root.join("Cargo.toml").is_file().then(|| root.to_owned())
}

/// Builds a group with `tests/go/build`, if there is a workspace. Returns the output directory.
fn built(group: &str) -> Option<PathBuf> {
    let output = Command::new(workspace()?.join("tests/go/build"))
        .args(["--group", group])
        .output()
        .expect("start tests/go/build");
    assert!(
        output.status.success(),
        "tests/go/build failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(PathBuf::from(String::from_utf8(output.stdout).unwrap().trim()))
}
