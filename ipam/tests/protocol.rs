// SPDX-License-Identifier: Apache-2.0
//! The plugin as a runtime calls it: environment and stdin in, one JSON document out.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use common::cni::{Env, Reader, Streams, dispatch};
use ipam::RdmaIpam;
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Calls a verb in process. Returns the exit status and stdout.
fn call(env: &[(&str, &str)], stdin: &[u8]) -> (u8, Value) {
    let mut stdout = Vec::new();
    let streams = Streams {
        stdin,
        stdout: &mut stdout,
        stderr: std::io::sink(),
        reader: Reader::PRESENT,
    };
    let env: Env = env.iter().copied().collect();
    let status = dispatch(&RdmaIpam::default(), "rdma-ipam", &env, streams);
    let document = if stdout.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(&stdout).unwrap()
    };
    (status, document)
}

fn verb(command: &str, conf: &Value) -> (u8, Value) {
    let env = [
        ("CNI_COMMAND", command),
        ("CNI_CONTAINERID", "3f1c"),
        ("CNI_IFNAME", "net1"),
        ("CNI_NETNS", "/no/such/netns"),
        ("CNI_PATH", "/opt/cni/bin"),
    ];
    call(&env, conf.to_string().as_bytes())
}

/// A dual-stack configuration with everything that a result can carry.
fn conf(version: &str, dir: &TempDir) -> Value {
    json!({
        "cniVersion": version, "name": "ibnet", "type": "cni-ipoib",
        "ipam": {
            "type": "rdma-ipam", "dataDir": dir.path(),
            "ranges": [[{"subnet": "10.0.0.0/24", "gateway": "10.0.0.1"}], [{"subnet": "fd00::/64", "gateway": "none"}]],
            "routes": [{"dst": "10.9.0.0/16", "gw": "10.0.0.1", "mtu": 2044}, {"dst": "fd09::/16"}],
            "dns": {"nameservers": ["10.0.0.53"], "search": ["cluster.local"]},
        },
    })
}

#[test]
fn every_version_gets_a_result_in_its_own_shape() {
    let dns = json!({"nameservers": ["10.0.0.53"], "search": ["cluster.local"]});
    let plain = json!([{"dst": "10.9.0.0/16", "gw": "10.0.0.1"}, {"dst": "fd09::/16"}]);
    let full = json!([{"dst": "10.9.0.0/16", "gw": "10.0.0.1", "mtu": 2044}, {"dst": "fd09::/16"}]);
    let old = json!({
        "dns": dns,
        "ip4": {"ip": "10.0.0.2/24", "gateway": "10.0.0.1", "routes": [{"dst": "10.9.0.0/16", "gw": "10.0.0.1"}]},
        "ip6": {"ip": "fd00::1/64", "routes": [{"dst": "fd09::/16"}]},
    });
    let middle = json!({
        "dns": dns, "routes": plain,
        "ips": [{"version": "4", "address": "10.0.0.2/24", "gateway": "10.0.0.1"}, {"version": "6", "address": "fd00::1/64"}],
    });
    let ips = json!([{"address": "10.0.0.2/24", "gateway": "10.0.0.1"}, {"address": "fd00::1/64"}]);
    let shapes = [
        ("0.1.0", old.clone()),
        ("0.2.0", old),
        ("0.3.0", middle.clone()),
        ("0.3.1", middle.clone()),
        ("0.4.0", middle),
        ("1.0.0", json!({"dns": dns, "routes": plain, "ips": ips})),
        ("1.1.0", json!({"dns": dns, "routes": full, "ips": ips})),
    ];
    let shared = tempfile::tempdir().unwrap();
    for (version, mut want) in shapes {
        want["cniVersion"] = json!(version);
        let dir = tempfile::tempdir().unwrap();
        let conf_here = conf(version, &dir);
        assert_eq!(verb("ADD", &conf_here), (0, want.clone()));
        assert_eq!(verb("ADD", &conf_here), (0, want.clone()), "ADD again");
        assert_eq!(verb("DEL", &conf_here), (0, Value::Null));
        assert_eq!(
            verb("ADD", &conf(version, &shared)),
            (0, want),
            "a lease of an older version in the shape of {version}"
        );
    }
}

#[test]
fn an_attachment_lives_through_every_verb() {
    let dir = tempfile::tempdir().unwrap();
    let mut conf = conf("1.1.0", &dir);
    assert_eq!(verb("STATUS", &conf), (0, Value::Null));
    conf["prevResult"] = json!("not for an IPAM plugin to read");
    let (status, result) = verb("ADD", &conf);
    assert_eq!(status, 0, "{result}");
    conf["prevResult"] = result;
    assert_eq!(verb("CHECK", &conf), (0, Value::Null));
    conf["cni.dev/valid-attachments"] = json!([{"containerID": "3f1c", "ifname": "net1"}]);
    assert_eq!(verb("GC", &conf), (0, Value::Null));
    assert_eq!(verb("CHECK", &conf), (0, Value::Null));
    conf["cni.dev/valid-attachments"] = json!([]);
    assert_eq!(verb("GC", &conf), (0, Value::Null));
    let (status, error) = verb("CHECK", &conf);
    assert_eq!((status, &error["code"]), (1, &json!(104)), "{error}");
    assert_eq!(verb("DEL", &conf), (0, Value::Null));
    assert_eq!(verb("DEL", &conf), (0, Value::Null));
}

#[test]
fn bad_input_is_answered_with_its_code() {
    let dir = tempfile::tempdir().unwrap();
    let good = conf("1.1.0", &dir).to_string();
    let mut large = good.clone().into_bytes();
    large.resize(10 << 20, b' ');
    let mut gc_without_list = conf("1.1.0", &dir);
    gc_without_list["ipam"]["ranges"] = json!("none");
    let cases: [(&str, &[u8], u32, &str); 8] = [
        ("ADD", b"", 6, "stdin is empty"),
        ("ADD", &large, 6, "larger than 4 MiB"),
        ("ADD", b"{]", 6, "not JSON"),
        ("ADD", b"[]", 6, "a list, want a JSON object"),
        (
            "ADD",
            br#"{"cniVersion":"9.9.9","name":"n"}"#,
            1,
            "cniVersion \"9.9.9\" is not supported",
        ),
        (
            "ADD",
            br#"{"cniVersion":"1.1.0","name":"../n"}"#,
            7,
            "network name \"../n\" is not valid",
        ),
        (
            "ADD",
            br#"{"cniVersion":"1.1.0","name":"n"}"#,
            7,
            "ipam is missing",
        ),
        ("GC", good.as_bytes(), 6, "cni.dev/valid-attachments"),
    ];
    for (command, stdin, code, want) in cases {
        let env = [
            ("CNI_COMMAND", command),
            ("CNI_CONTAINERID", "3f1c"),
            ("CNI_IFNAME", "net1"),
            ("CNI_NETNS", "/n"),
            ("CNI_PATH", "/p"),
        ];
        let (status, error) = call(&env, stdin);
        assert_eq!((status, &error["code"]), (1, &json!(code)), "{error}");
        assert!(
            error["msg"].as_str().unwrap().contains(want),
            "{error} lacks {want:?}"
        );
    }
}

#[test]
fn a_bad_environment_is_answered_with_its_code() {
    let dir = tempfile::tempdir().unwrap();
    let conf = conf("1.1.0", &dir).to_string();
    let cases: [(&[(&str, &str)], &str); 5] = [
        (&[], "CNI_COMMAND is not set"),
        (
            &[("CNI_COMMAND", "ADD")],
            "CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME, CNI_PATH",
        ),
        (&[("CNI_COMMAND", "MOVE")], "CNI_COMMAND is \"MOVE\""),
        (
            &[
                ("CNI_COMMAND", "ADD"),
                ("CNI_CONTAINERID", "a"),
                ("CNI_NETNS", "/n"),
                ("CNI_IFNAME", "sixteen-long-eth"),
                ("CNI_PATH", "/p"),
            ],
            "CNI_IFNAME",
        ),
        (
            &[
                ("CNI_COMMAND", "ADD"),
                ("CNI_CONTAINERID", "a/b"),
                ("CNI_NETNS", "/n"),
                ("CNI_IFNAME", "net1"),
                ("CNI_PATH", "/p"),
            ],
            "CNI_CONTAINERID",
        ),
    ];
    for (env, want) in cases {
        let (status, error) = call(env, conf.as_bytes());
        assert_eq!((status, &error["code"]), (1, &json!(4)), "{error}");
        assert!(
            error["msg"].as_str().unwrap().contains(want),
            "{error} lacks {want:?}"
        );
    }
    assert!(
        std::fs::read_dir(dir.path()).unwrap().next().is_none(),
        "a refused call makes no files"
    );
}

#[test]
fn del_needs_no_valid_ranges() {
    let dir = tempfile::tempdir().unwrap();
    let mut conf = conf("1.1.0", &dir);
    assert_eq!(verb("ADD", &conf).0, 0);
    conf["ipam"] = json!({"type": "rdma-ipam", "dataDir": dir.path(), "ranges": 5, "nonsense": true});
    assert_eq!(verb("DEL", &conf), (0, Value::Null));
    let ipam =
        json!({"type": "rdma-ipam", "dataDir": dir.path(), "subnet": "10.0.0.0/24", "gateway": "none"});
    conf["ipam"] = ipam;
    conf["runtimeConfig"] = json!({"ips": ["10.0.0.2"]});
    assert_eq!(verb("ADD", &conf).0, 0, "the address was given back");
    for ipam in [
        json!({"dataDir": 5}),
        json!({"dataDir": "relative"}),
        json!({"network_name": "a/b"}),
        json!(null),
        json!("x"),
    ] {
        conf["ipam"] = ipam;
        assert_eq!(verb("DEL", &conf), (0, Value::Null), "{}", conf["ipam"]);
    }
}

#[test]
fn an_add_whose_caller_has_ended_allocates_nothing() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdma-ipam"));
    command.env_clear().env("CNI_COMMAND", "ADD");
    let child = command
        .stdin(Stdio::piped())
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn();
    let output = child.unwrap().wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{stderr}");
    assert!(stderr.contains("nothing reads stdout"), "{stderr}");
}

/// std opens /dev/null in place of a closed stdout, so ADD succeeded and its answer was lost.
#[test]
fn an_add_with_closed_stdout_allocates_nothing() {
    for (redirection, given) in [(">&-", false), (">/dev/null", true)] {
        let dir = tempfile::tempdir().unwrap();
        let script = format!("exec \"$0\" {redirection}");
        let mut command = Command::new("sh");
        command
            .args(["-c", &script, env!("CARGO_BIN_EXE_rdma-ipam")])
            .env_clear();
        for (name, value) in [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", "3f1c"),
            ("CNI_IFNAME", "net1"),
            ("CNI_NETNS", "/no/such/netns"),
            ("CNI_PATH", "/opt/cni/bin"),
        ] {
            command.env(name, value);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The process may end before it reads.
        let _ = child
            .stdin
            .take()
            .unwrap()
            .write_all(conf("1.1.0", &dir).to_string().as_bytes());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), given, "{redirection}: {stderr}");
        assert_eq!(
            dir.path().join("ibnet").exists(),
            given,
            "{redirection}: {stderr}"
        );
        assert!(given || stderr.contains("nothing reads stdout"), "{stderr}");
    }
}

#[test]
fn errors_for_a_missing_verb_name_its_first_version() {
    let dir = tempfile::tempdir().unwrap();
    for (command, version, since) in [
        ("CHECK", "0.3.1", "0.4.0"),
        ("GC", "1.0.0", "1.1.0"),
        ("STATUS", "1.0.0", "1.1.0"),
    ] {
        let (status, error) = verb(command, &conf(version, &dir));
        assert_eq!(
            (status, &error["code"], &error["cniVersion"]),
            (1, &json!(1), &json!(version)),
            "{error}"
        );
        assert!(error["msg"].as_str().unwrap().contains(since), "{error}");
    }
}
