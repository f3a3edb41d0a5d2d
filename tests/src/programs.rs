// SPDX-License-Identifier: Apache-2.0
//! Where the programs under test are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Where the fabric's VM has every plugin.
const IN_VM: &str = "/opt/cni/bin";

/// The folder of our static binaries: `RDMANET_BIN`, else what the workspace built, else (in the VM, where no
/// workspace is) `/opt/cni/bin`.
pub fn ours() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        let built = workspace().map(|root| {
            let target =
                std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
            target.join("x86_64-unknown-linux-musl/release")
        });
        let dir = given("RDMANET_BIN")
            .or(built)
            .unwrap_or_else(|| PathBuf::from(IN_VM));
        for plugin in ["cni-ipoib", "rdma-ipam"] {
            assert!(
                dir.join(plugin).is_file(),
                "{plugin} is not in {}: run `cargo build --release --target x86_64-unknown-linux-musl`, or set RDMANET_BIN",
                dir.display()
            );
        }
        dir
    })
}

/// A program of the workspace, as `cargo build` makes it for this machine, beside the one that runs.
pub fn program(name: &str) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let path = here.parent().and_then(Path::parent).unwrap().join(name);
    assert!(
        path.is_file(),
        "{} is not there: run `cargo build --workspace --bins`",
        path.display()
    );
    path
}

/// The folder of the reference plugins: `RDMANET_PEERS`, else what `tests/go/build --group cni` makes, else `/opt/cni/bin`.
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

/// The folder of Multus: `RDMANET_MULTUS`, else what `tests/go/build --group multus` makes, else `/opt/cni/bin`.
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

/// The program of whereabouts: `RDMANET_WHEREABOUTS`, else what `tests/go/build whereabouts` makes.
pub fn whereabouts() -> PathBuf {
    let dir = given("RDMANET_WHEREABOUTS").or_else(|| built("whereabouts"));
    let program = dir
        .expect("RDMANET_WHEREABOUTS, the folder that tests/go/build --group whereabouts prints")
        .join("whereabouts");
    assert!(program.is_file(), "{} is not there", program.display());
    program
}

/// The folder of the checkers of other projects' formats, which `tests/go/build --group checks` makes.
pub fn checks() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| built("checks").expect("the workspace, for tests/go/build --group checks"))
}

fn given(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// The workspace this was built from, if it is on this machine.
fn workspace() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    root.join("Cargo.toml").is_file().then(|| root.to_owned())
}

/// What `tests/go/build` makes of a group, where there is a workspace.
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
