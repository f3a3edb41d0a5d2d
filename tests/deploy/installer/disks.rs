// SPDX-License-Identifier: Apache-2.0
//! Directories that are read-only, full, or mounted without execute permission.

use crate::host::{Host, earlier};
use agent::install::PLUGINS;

/// Mounts a small file system over the directory of plugins, with an earlier release on it.
const SMALL: &str = r#"
mount -t tmpfs -o size=2m none "$BIN"
cp -p "$BESIDE"/earlier/* "$BIN"
echo other > "$BIN/loopback"
"#;

fn host() -> Host {
    let host = Host::new();
    let earlier = host.beside("earlier");
    std::fs::create_dir(&earlier).unwrap();
    Host::write_earlier(&earlier);
    host
}

/// The contents of the directory after the installer ended, as the script printed them.
fn assert_as_before(output: &str) {
    let after = output
        .split_once("AFTER\n")
        .unwrap_or_else(|| panic!("{output}"))
        .1;
    assert_eq!(after, "cni-ipoib\nloopback\nrdma-ipam\nsame\n", "{output}");
}

/// Runs the installer and prints the contents of the directory, for [`assert_as_before`].
const LOOK: &str = r#"
status=0
"$@" 2>&1 || status=$?
echo AFTER
ls -A "$BIN"
for name in cni-ipoib rdma-ipam; do cmp "$BIN/$name" "$BESIDE/earlier/$name"; done
echo same
exit $status
"#;

#[test]
fn installing_on_a_full_disk_changes_nothing() {
    let host = host();
    let answer = host.mounted("install", &format!("{SMALL}{LOOK}"));
    answer.refused_with(&[
        "cannot write",
        "No space left on device",
        "both plugins need",
        "are still there",
    ]);
    assert_as_before(&answer.output);
}

#[test]
fn installing_to_a_read_only_directory_changes_nothing() {
    let host = host();
    let answer = host.mounted(
        "install",
        &format!("{SMALL}mount -o remount,ro none \"$BIN\"\n{LOOK}"),
    );
    answer.refused_with(&["cannot write", "Read-only file system", "--bin-dir"]);
    assert_as_before(&answer.output);
}

#[test]
fn installing_to_a_noexec_directory_changes_nothing() {
    let host = host();
    let large = SMALL.replace("size=2m", "size=200m,noexec");
    let answer = host.mounted("install", &format!("{large}{LOOK}"));
    answer.refused_with(&["does not run there: Permission denied", "mounted noexec"]);
    assert_as_before(&answer.output);
}

#[test]
fn uninstalling_from_a_read_only_directory_changes_nothing() {
    let host = host();
    let answer = host.mounted(
        "uninstall",
        &format!("{SMALL}mount -o remount,ro none \"$BIN\"\n{LOOK}"),
    );
    answer.refused_with(&["cannot rename", "Read-only file system"]);
    assert_as_before(&answer.output);
}

#[test]
fn the_installer_replaces_a_foreign_program_only_on_request_and_restores_it() {
    let host = Host::new();
    host.write("opt/cni/bin/rdma-ipam", "mine");
    host.install()
        .refused_with(&["is not rdmanet's", "--replace-foreign"]);
    assert_eq!(host.names(crate::host::BIN), ["loopback", "rdma-ipam"]);
    host.call("install", &["--replace-foreign"]).worked();
    host.call("uninstall", &[]).worked();
    assert_eq!(
        std::fs::read_to_string(host.at("opt/cni/bin/rdma-ipam")).unwrap(),
        "mine"
    );
}

#[test]
fn the_installer_reports_the_version_of_the_earlier_release() {
    let host = host();
    for name in PLUGINS {
        std::fs::copy(
            host.beside("earlier").join(name),
            host.at("opt/cni/bin").join(name),
        )
        .unwrap();
        assert!(earlier(name).contains("0.0.9"));
    }
    assert!(
        host.install()
            .worked()
            .contains("cni-ipoib 0.1.0 installed (was 0.0.9)")
    );
}
