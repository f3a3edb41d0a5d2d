// SPDX-License-Identifier: Apache-2.0
//! The benchmark as a command: its errors, and that it leaves nothing behind after one.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use tempfile::TempDir;

const GOOD_ANSWER: &str = r#"echo '{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.2/16"}]}'"#;

/// Four plugins, which are the same shell script, and an empty directory for the benchmark's files.
struct Scene {
    dir: TempDir,
}

impl Scene {
    fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["cni-ipoib", "rdma-ipam", "macvlan", "host-local"] {
            // Another process writes it: a test's child could inherit a descriptor of this process (ETXTBSY).
            let file = dir.path().join(name);
            let write = r#"printf '#!/bin/sh\n%s\n' "$1" > "$2" && chmod 755 "$2""#;
            let status = Command::new("/bin/sh")
                .args(["-c", write, "sh", script])
                .arg(&file)
                .status()
                .unwrap();
            assert!(status.success());
        }
        fs::create_dir(dir.path().join("tmp")).unwrap();
        Self { dir }
    }

    fn tmp(&self) -> std::path::PathBuf {
        self.dir.path().join("tmp")
    }

    fn start(&self) -> Child {
        let mut command = as_root(Path::new(env!("CARGO_BIN_EXE_bench")));
        command
            .arg("--bin")
            .arg(self.dir.path())
            .arg("--peers")
            .arg(self.dir.path());
        command
            .args(["--runs", "1", "--leases", "1"])
            .env("TMPDIR", self.tmp());
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn run(&self) -> Output {
        self.start().wait_with_output().unwrap()
    }

    fn assert_nothing_is_left(&self) {
        let left: Vec<_> = fs::read_dir(self.tmp()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// `program` as root: in a user namespace, unless this test already runs as root.
fn as_root(program: &Path) -> Command {
    if geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--"]).arg(program);
    command
}

/// Asserts that the run failed, and returns its error message.
fn failure(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        output.stdout.is_empty(),
        "a failed run must not print a report: {output:?}"
    );
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "60 s passed, and still not: {what}"
        );
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_failing_plugin_ends_the_run_with_its_error_message() {
    let scene = Scene::new("echo 'the pool is exhausted' >&2; exit 1");
    let error = failure(&scene.run());
    assert!(
        error.contains("ADD of ") && error.contains("/cni-ipoib failed with exit status: 1"),
        "{error}"
    );
    assert!(error.contains("stderr: the pool is exhausted"), "{error}");
    scene.assert_nothing_is_left();
}

#[test]
fn plugin_state_is_kept_in_the_directory_of_the_run() {
    let scene = Scene::new(r#"echo "state $RDMANET_STATE" >&2; exit 1"#);
    let error = failure(&scene.run());
    assert!(
        error.contains(&format!("state {}/", scene.tmp().display())),
        "{error}"
    );
}

#[test]
fn a_plugin_that_reports_a_link_it_did_not_create_fails_the_run() {
    let scene = Scene::new(GOOD_ANSWER);
    let error = failure(&scene.run());
    assert!(
        error.contains("the pod should have net1 with 10.0.0.2; it has [(\"lo\", None)"),
        "{error}"
    );
    scene.assert_nothing_is_left();
}

#[test]
fn an_interrupted_run_ends_the_plugin_and_leaves_nothing() {
    let scene = Scene::new(&format!(
        "echo $$ > \"$(dirname \"$0\")/pid\"; exec sleep 600; {GOOD_ANSWER}"
    ));
    let bench = scene.start();
    let pid_file = scene.dir.path().join("pid");
    let mut plugin = None;
    wait_until("the plugin runs", || {
        plugin = fs::read_to_string(&pid_file)
            .ok()
            .and_then(|pid| pid.trim().parse::<i32>().ok());
        plugin.is_some()
    });
    // `unshare` executes the benchmark in its own process, so its pid is the benchmark's in both cases.
    kill(Pid::from_raw(bench.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let error = failure(&bench.wait_with_output().unwrap());
    assert!(error.contains("interrupted; nothing is left behind"), "{error}");
    let plugin = Pid::from_raw(plugin.unwrap());
    wait_until("the plugin has ended", || kill(plugin, None).is_err());
    scene.assert_nothing_is_left();
}

#[test]
fn a_missing_plugin_is_reported_in_one_line_with_the_remedy() {
    let scene = Scene::new(GOOD_ANSWER);
    fs::remove_file(scene.dir.path().join("host-local")).unwrap();
    let error = failure(&scene.run());
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(
        error.contains("host-local is missing (--peers names the directory)"),
        "{error}"
    );
    assert!(error.contains("tests/go/build macvlan host-local"), "{error}");
}
