// SPDX-License-Identifier: Apache-2.0
//! Plugins that run while another release is installed and removed.

use crate::host::{BIN, Host};
use agent::install::PLUGINS;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Starts a call that waits for the rest of its configuration.
fn waiting(program: &Path) -> Child {
    Command::new(program)
        .env("CNI_COMMAND", "VERSION")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn answer(mut call: Child) -> String {
    call.stdin
        .take()
        .unwrap()
        .write_all(b"{\"cniVersion\": \"1.0.0\"}")
        .unwrap();
    let mut text = String::new();
    call.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(call.wait().unwrap().success());
    text
}

/// Changes the image's plugins so that they differ from the installed ones and still run.
fn another_build(host: &Host) {
    for name in PLUGINS {
        let mut file = OpenOptions::new()
            .append(true)
            .open(host.image().join(name))
            .unwrap();
        file.write_all(b"another build").unwrap();
    }
}

#[test]
fn running_plugin_calls_complete_during_an_upgrade_and_a_removal() {
    let host = Host::new();
    host.install().worked();
    let calls = PLUGINS.map(|name| waiting(&host.at(BIN).join(name)));
    // A plain copy over the plugin fails, because the file is busy.
    let busy = fs::copy(host.image().join("cni-ipoib"), host.at(BIN).join("cni-ipoib")).unwrap_err();
    assert_eq!(busy.kind(), std::io::ErrorKind::ExecutableFileBusy);
    another_build(&host);
    assert!(
        host.install()
            .worked()
            .contains("cni-ipoib 0.1.0 installed (was 0.1.0)")
    );
    let later = PLUGINS.map(|name| waiting(&host.at(BIN).join(name)));
    host.call("uninstall", &[]).worked();
    for call in calls.into_iter().chain(later) {
        assert!(answer(call).contains("\"cniVersion\":\"1.0.0\""));
    }
    assert_eq!(host.names(BIN), ["loopback"]);
}
