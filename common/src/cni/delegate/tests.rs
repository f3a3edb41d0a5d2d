// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::cni::{Args, Conf, Reader};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

/// A directory of plugins that are shell scripts.
struct Plugins(tempfile::TempDir);

impl Plugins {
    fn with(name: &str, script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(name);
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        Self(dir)
    }

    fn call(&self, extra: &str) -> Call {
        let conf = format!(r#"{{"cniVersion":"1.1.0","name":"ib","ipam":{{"type":"x"}}{extra}}}"#);
        Call {
            program: "cni-ipoib".to_owned(),
            conf: Conf::read(conf.as_bytes()).unwrap(),
            args: Args::default(),
            args_text: "IgnoreUnknown=1;A=b".to_owned(),
            path: vec![PathBuf::from("/nowhere"), self.0.path().to_owned()],
            netns_override: false,
            reader: Reader::PRESENT,
        }
    }
}

fn attachment() -> Attachment {
    Attachment {
        container_id: "c1".parse().unwrap(),
        ifname: "net1".parse().unwrap(),
    }
}

fn add(script: &str, extra: &str, timeout: Duration) -> Result<CniResult, Error> {
    let plugins = Plugins::with("x", script);
    let call = plugins.call(extra);
    Delegate::new("x", &call, timeout)
        .unwrap()
        .add(&attachment(), Path::new("/run/netns/a"))
}

/// A time limit that no delegate of these tests reaches.
const AMPLE: Duration = Duration::from_secs(120);

#[test]
fn a_delegate_is_called_as_the_plugin_was() {
    let script = r#"
        conf=$(cat)
        [ "$CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME $CNI_NETNS $CNI_ARGS" = "ADD c1 net1 /run/netns/a IgnoreUnknown=1;A=b" ] || exit 9
        case $conf in *'"ipam":{"type":"x"}'*) ;; *) exit 8;; esac
        echo '{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.2/24"}]}'"#;
    let result = add(script, "", AMPLE).unwrap();
    assert_eq!(result.ips[0].address.to_string(), "10.0.0.2/24");
}

#[test]
fn a_delegates_result_of_an_old_version_is_accepted() {
    let result = add(
        r#"echo '{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24","gateway":"10.0.0.1"}}'"#,
        "",
        AMPLE,
    )
    .unwrap();
    assert_eq!(result.ips[0].gateway, Some("10.0.0.1".parse().unwrap()));
}

/// The code and message of an ADD whose delegate fails with `code` and `details`.
fn failed_with(code: u32, details: &str) -> (u32, String) {
    let script = format!(r#"echo '{{"code":{code},"msg":"pool is full","details":"{details}"}}'; exit 1"#);
    let error = add(&script, "", AMPLE).unwrap_err();
    assert_eq!(error.details, details);
    (error.code.0, error.msg)
}

#[test]
fn a_delegates_error_keeps_its_code_and_is_prefixed_with_its_name() {
    let ours = "x: pool is full".to_owned();
    for code in [7, 11, 99] {
        assert_eq!(failed_with(code, "254 of 254"), (code, ours.clone()));
    }
    for code in [100, 110, 999] {
        let details = format!("254 of 254; rdmanet error {code}");
        assert_eq!(failed_with(code, &details), (code, ours.clone()));
    }
}

/// whereabouts, host-local and each other Go plugin: 999 for any error without a code.
#[test]
fn a_code_that_another_product_defines_is_named_in_the_message() {
    for (code, details) in [
        (100, ""),
        (110, "254 of 254"),
        (999, ""),
        (110, "rdmanet error 1110"),
    ] {
        let text = format!("x: pool is full (code {code} of x)");
        assert_eq!(failed_with(code, details), (103, text), "{details}");
    }
}

#[test]
fn a_failure_without_an_error_document_reports_the_exit_status() {
    let error = add("echo oops; exit 3", "", AMPLE).unwrap_err();
    assert_eq!(error.code, Code::DELEGATE);
    assert!(
        error.msg.contains("exit status: 3") && error.details.contains("oops"),
        "{error:?}"
    );
}

#[test]
fn garbage_on_stdout_is_not_accepted_as_a_result() {
    for garbage in [
        "echo hello",
        "true",
        r#"echo '{"ips":[{"address":"x"}]}'"#,
        "echo '[]'",
    ] {
        let error = add(garbage, "", AMPLE).unwrap_err();
        assert_eq!(error.code, Code::DELEGATE, "{garbage}: {error:?}");
        assert!(error.msg.contains("no CNI result"), "{error:?}");
    }
}

#[test]
fn a_delegate_that_hangs_is_killed_with_its_children() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pid");
    let script = format!("sleep 300 & echo $! >{}; sleep 300", file.display());
    let start = Instant::now();
    let mut limit = Duration::from_millis(200);
    let child = loop {
        let error = add(&script, "", limit).unwrap_err();
        let expected = format!("did not end within {limit:?}");
        assert!(
            error.code == Code::DELEGATE && error.msg.contains(&expected),
            "{error:?}"
        );
        // On a busy machine the script may be killed before its first line.
        let child = std::fs::read_to_string(&file).unwrap_or_default();
        if child.ends_with('\n') {
            break child;
        }
        limit *= 2;
    };
    let status = format!("/proc/{}/stat", child.trim());
    while std::fs::read_to_string(&status).is_ok_and(|line| !line.contains(") Z")) {
        assert!(
            start.elapsed() < Duration::from_secs(120),
            "a child process of the delegate still runs, or ADD waited for it"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_delegate_that_closes_stdout_and_hangs_is_killed() {
    let error = add("exec >&-; sleep 60", "", Duration::from_millis(200)).unwrap_err();
    assert!(error.msg.contains("did not end within"), "{error:?}");
}

#[test]
fn a_delegate_that_reads_nothing_does_not_block_a_large_configuration() {
    let extra = format!(r#","x":"{}""#, "y".repeat(1 << 20));
    let result = add(r#"echo '{"ips":[{"address":"10.0.0.2/24"}]}'"#, &extra, AMPLE).unwrap();
    assert_eq!(result.ips.len(), 1);
}

#[test]
fn a_process_that_a_delegate_leaves_with_its_stdout_delays_no_call() {
    let dir = tempfile::tempdir().unwrap();
    let pid = dir.path().join("pid");
    // Spaces before the result: more than a pipe holds.
    let script = format!(
        "cat >/dev/null; setsid sleep 600 & echo $! >{}; head -c 300000 /dev/zero | tr '\\0' ' '; \
         echo '{{\"ips\":[{{\"address\":\"10.0.0.2/24\"}}]}}'",
        pid.display()
    );
    let result = add(&script, "", AMPLE);
    let pid = fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("the process still ran");
    assert_eq!(result.unwrap().ips.len(), 1);
}

#[test]
fn a_delegate_that_floods_stdout_is_killed() {
    let error = add("yes", "", AMPLE).unwrap_err();
    assert!(error.msg.contains("more than 4 MiB"), "{error:?}");
}

#[test]
fn the_error_for_a_missing_delegate_lists_the_searched_directories() {
    let plugins = Plugins::with("x", "");
    let call = plugins.call("");
    let error = Delegate::new("y", &call, AMPLE)
        .unwrap()
        .add(&attachment(), Path::new("/a"))
        .unwrap_err();
    assert!(
        error.code == Code::DELEGATE && error.msg.contains("\"y\"") && error.msg.contains("/nowhere:"),
        "{error:?}"
    );
}

#[test]
fn a_delegate_type_that_is_a_path_is_refused() {
    let plugins = Plugins::with("x", "");
    for name in ["", "../x", "/bin/sh", "."] {
        assert_eq!(
            Delegate::new(name, &plugins.call(""), AMPLE).unwrap_err().code,
            Code::INVALID_CONFIG,
            "{name}"
        );
    }
}

#[test]
fn gc_passes_the_valid_attachments_and_no_attachment_variables() {
    let script = r#"
        [ -z "$CNI_CONTAINERID$CNI_NETNS$CNI_IFNAME" ] || exit 9
        case $(cat) in *'"cni.dev/valid-attachments":[{"containerID":"c1","ifname":"net1"}]'*) ;; *) exit 8;; esac"#;
    let plugins = Plugins::with("x", script);
    let call = plugins.call("");
    Delegate::new("x", &call, AMPLE)
        .unwrap()
        .gc(&[attachment()])
        .unwrap();
}

#[test]
fn starting_a_binary_that_is_being_replaced_is_retried() {
    let plugins = Plugins::with("x", "");
    let file = plugins.0.path().join("x");
    fs::copy("/bin/true", &file).unwrap();
    let writer = fs::OpenOptions::new().append(true).open(&file).unwrap();
    let closer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(15));
        drop(writer);
    });
    let call = plugins.call("");
    Delegate::new("x", &call, AMPLE).unwrap().status().unwrap();
    closer.join().unwrap();
}
