// SPDX-License-Identifier: Apache-2.0
//! Kills the installer at every request that changes something, during installation and removal.

use crate::host::{BIN, Host, earlier, is_real};
use agent::install::PLUGINS;
use nix::sys::signal::Signal;
use std::fs;
use std::path::Path;
use tests::Call;
use tests::trace::{Process, Scope, Step, Victim};

/// Runs `errand` and kills it before its request `number`. Without a number, runs it to the end.
fn run(host: &Host, errand: &str, number: Option<u32>) -> Vec<Step> {
    // The tracer starts a program without arguments. A script in a file would not do: while another test forks, the kernel may
    // still count the file as open for writing, and execve fails (ETXTBSY).
    let script = format!("exec {}\n", host.words(errand).join(" "));
    let call = Call::new(Path::new("/bin/sh"))
        .stdin(script)
        .env("PATH", "/usr/bin:/bin");
    let traced = call.traced(Scope::Changes, |step| {
        (step.by == Process::Plugin && Some(step.number) == number).then_some((Victim::All, Signal::SIGKILL))
    });
    traced
        .steps
        .into_iter()
        .filter(|step| step.by == Process::Plugin)
        .collect()
}

/// A node with the old plugins, and new ones in the image. They are small, because there are many runs.
fn before() -> Host {
    let host = Host::new();
    Host::write_earlier(&host.at(BIN));
    for name in PLUGINS {
        fs::write(host.image().join(name), later(name)).unwrap();
    }
    host
}

fn later(name: &str) -> String {
    earlier(name).replace("0.0.9", "0.2.0")
}

#[test]
fn a_killed_upgrade_leaves_complete_plugins_and_the_next_run_finishes_it() {
    let steps = run(&before(), "install", None);
    assert!(steps.len() > 6, "{steps:?}");
    println!("did: {} kills of an installation", steps.len());
    for step in &steps {
        let host = before();
        run(&host, "install", Some(step.number));
        for name in PLUGINS {
            let there = fs::read_to_string(host.at(BIN).join(name))
                .unwrap_or_else(|e| panic!("{step:?}: {name}: {e}"));
            assert!(
                there == earlier(name) || there == later(name),
                "{step:?}: {name} is {there:?}"
            );
        }
        host.install().worked();
        for name in PLUGINS {
            assert_eq!(
                fs::read_to_string(host.at(BIN).join(name)).unwrap(),
                later(name),
                "{step:?}"
            );
        }
        assert_eq!(
            host.names(BIN),
            ["cni-ipoib", "loopback", "rdma-ipam"],
            "{step:?}"
        );
    }
}

#[test]
fn a_killed_removal_can_be_finished_or_undone() {
    let steps = run(&before(), "uninstall", None);
    assert!(steps.len() > 3, "{steps:?}");
    println!("did: {} kills of a removal", steps.len());
    for step in &steps {
        let host = before();
        run(&host, "uninstall", Some(step.number));
        host.install().worked();
        assert_eq!(
            host.names(BIN),
            ["cni-ipoib", "loopback", "rdma-ipam"],
            "{step:?}"
        );
        assert!(!is_real(&host.at(BIN).join("cni-ipoib"), "cni-ipoib"));
        let host = before();
        run(&host, "uninstall", Some(step.number));
        host.call("uninstall", &["--force"]).worked();
        assert_eq!(host.names(BIN), ["loopback"], "{step:?}");
    }
}
