// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::cni::IpConfig;
use std::cell::RefCell;

/// Records each verb that is called, with its arguments.
#[derive(Default)]
struct Recorder(RefCell<Vec<String>>);

impl Recorder {
    fn note(&self, text: String) {
        self.0.borrow_mut().push(text);
    }
}

impl Plugin for Recorder {
    fn about(&self) -> &'static str {
        "a recorder"
    }
    fn add(&self, call: &Call, attachment: &Attachment, netns: &Path) -> Result<CniResult, Error> {
        assert_ne!(call.conf.network, "panic", "as ordered");
        self.note(format!("add {attachment} {}", netns.display()));
        let ip = IpConfig {
            address: "10.0.0.2/24".parse().unwrap(),
            gateway: None,
            interface: None,
            probe: false,
        };
        Ok(CniResult {
            ips: vec![ip],
            ..CniResult::default()
        })
    }
    fn del(&self, _: &Call, attachment: &Attachment, netns: Option<&Path>) -> Result<(), Error> {
        self.note(format!("del {attachment} {netns:?}"));
        Ok(())
    }
    fn check(&self, _: &Call, attachment: &Attachment, _: &Path) -> Result<(), Error> {
        self.note(format!("check {attachment}"));
        Ok(())
    }
    fn gc(&self, _: &Call, gc: &GcConf) -> Result<(), Error> {
        self.note(format!("gc {}", gc.valid.len()));
        Ok(())
    }
    fn status(&self, _: &Call) -> Result<(), Error> {
        Err(Error::new(Code::NOT_AVAILABLE, "ib0 is down"))
    }
}

const CONF: &str = r#"{"cniVersion":"1.1.0","name":"ib","type":"x"}"#;

fn env(command: &str) -> Vec<(&str, &str)> {
    vec![
        ("CNI_COMMAND", command),
        ("CNI_CONTAINERID", "c1"),
        ("CNI_NETNS", "/run/netns/a"),
        ("CNI_IFNAME", "net1"),
        ("CNI_PATH", "/opt/cni/bin"),
    ]
}

fn with<'e>(name: &str, value: &'e str, env: Vec<(&'e str, &'e str)>) -> Vec<(&'e str, &'e str)> {
    let replaced = |(n, v)| (n, if n == name { value } else { v });
    env.into_iter().map(replaced).collect()
}

fn without<'e>(name: &str, env: Vec<(&'e str, &'e str)>) -> Vec<(&'e str, &'e str)> {
    env.into_iter().filter(|(n, _)| *n != name).collect()
}

/// Returns the exit status, stdout as JSON (null if empty), and the recorded calls.
fn call(env: Vec<(&str, &str)>, stdin: &str) -> (u8, Value, Vec<String>) {
    let (plugin, mut stdout) = (Recorder::default(), Vec::new());
    let streams = Streams {
        stdin: stdin.as_bytes(),
        stdout: &mut stdout,
        stderr: std::io::sink(),
        reader: Reader::PRESENT,
    };
    let status = dispatch(&plugin, "x", &env.into_iter().collect(), streams);
    let document = if stdout.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(&stdout).unwrap()
    };
    (status, document, plugin.0.into_inner())
}

fn error(env: Vec<(&str, &str)>, stdin: &str) -> (u64, String) {
    let (status, document, called) = call(env, stdin);
    assert_eq!(status, 1, "{document}");
    assert!(called.is_empty(), "the plugin was called: {called:?}");
    (
        document["code"].as_u64().unwrap(),
        document["msg"].as_str().unwrap().to_owned(),
    )
}

#[test]
fn add_answers_in_the_version_of_the_configuration() {
    for version in Version::ALL {
        let conf = format!(r#"{{"cniVersion":"{version}","name":"ib"}}"#);
        let (status, document, called) = call(env("ADD"), &conf);
        assert_eq!(
            (status, document["cniVersion"].as_str()),
            (0, Some(version.as_str()))
        );
        assert_eq!(called, ["add net1 of container c1 /run/netns/a"]);
    }
}

#[test]
fn a_missing_version_is_0_1_0() {
    let (_, document, _) = call(env("ADD"), r#"{"name":"ib"}"#);
    assert_eq!(document["cniVersion"], "0.1.0");
    assert_eq!(document["ip4"]["ip"], "10.0.0.2/24");
}

#[test]
fn verbs_without_a_result_print_nothing() {
    assert_eq!(call(env("DEL"), CONF).1, Value::Null);
    assert_eq!(call(env("CHECK"), CONF).1, Value::Null);
}

#[test]
fn del_needs_no_namespace() {
    let (status, _, called) = call(without("CNI_NETNS", env("DEL")), CONF);
    assert_eq!((status, called[0].as_str()), (0, "del net1 of container c1 None"));
    let empty = env("DEL")
        .into_iter()
        .map(|(n, v)| (n, if n == "CNI_NETNS" { "" } else { v }))
        .collect();
    assert_eq!(call(empty, CONF).2, ["del net1 of container c1 None"]);
}

#[test]
fn one_error_names_all_missing_variables() {
    let (code, msg) = error(vec![("CNI_COMMAND", "ADD"), ("CNI_IFNAME", "net1")], CONF);
    assert_eq!(code, 4);
    assert_eq!(
        msg,
        "required environment variables are not set: CNI_CONTAINERID, CNI_NETNS, CNI_PATH"
    );
}

#[test]
fn a_call_without_a_command_prints_what_the_plugin_is() {
    let mut stderr = Vec::new();
    let streams = Streams {
        stdin: &b""[..],
        stdout: std::io::sink(),
        stderr: &mut stderr,
        reader: Reader::PRESENT,
    };
    assert_eq!(dispatch(&Recorder::default(), "x", &Env::default(), streams), 1);
    let text = String::from_utf8(stderr).unwrap();
    assert!(
        text.starts_with("a recorder\nCNI protocol versions supported: 0.1.0, 0.2.0,"),
        "{text}"
    );
}

#[test]
fn version_needs_no_environment_and_repeats_the_callers_version() {
    let (status, document, _) = call(vec![("CNI_COMMAND", "VERSION")], r#"{"cniVersion":"9.9.9"}"#);
    assert_eq!((status, document["cniVersion"].as_str()), (0, Some("9.9.9")));
    assert_eq!(document["supportedVersions"].as_array().unwrap().len(), 7);
    assert_eq!(
        call(vec![("CNI_COMMAND", "VERSION")], "").1["cniVersion"],
        "1.1.0"
    );
}

#[test]
fn bad_interface_names_are_refused_with_the_reason() {
    for (ifname, reason) in [
        ("net1234567890123", "16 bytes"),
        ("a/b", "'/'"),
        ("a:b", "':'"),
        ("a b", "' '"),
        ("..", "directory"),
        ("net%d", "'%'"),
        ("a%", "'%'"),
        ("\u{e0}", "0xa0"),
        ("all", "/proc/sys/net/ipv4/conf/all"),
        ("default", "keeps that name"),
    ] {
        let env = env("ADD")
            .into_iter()
            .map(|(n, v)| (n, if n == "CNI_IFNAME" { ifname } else { v }))
            .collect();
        let (code, msg) = error(env, CONF);
        assert!(
            code == 4 && msg.contains(reason) && msg.contains("CNI_IFNAME"),
            "{ifname}: {code} {msg}"
        );
    }
}

#[test]
fn bad_container_ids_are_refused() {
    for id in ["../x", "-x", "a@b", "é"] {
        let env = env("DEL")
            .into_iter()
            .map(|(n, v)| (n, if n == "CNI_CONTAINERID" { id } else { v }))
            .collect::<Vec<_>>();
        let named = |command| {
            env.iter()
                .map(move |(n, v)| (*n, if *n == "CNI_COMMAND" { command } else { *v }))
        };
        assert_eq!(error(named("ADD").collect(), CONF).0, 4, "{id}");
        assert_eq!(
            call(named("DEL").collect(), CONF),
            (0, Value::Null, Vec::new()),
            "{id}"
        );
    }
}

#[test]
fn invalid_stdin_is_refused_with_the_reason() {
    for (stdin, reason) in [
        ("", "stdin is empty"),
        (" \n", "stdin is empty"),
        ("{", "not JSON"),
        ("hello", "not JSON"),
        ("[1]", "is a list"),
        ("null", "is null"),
        ("\"x\"", "is a text"),
        (r#"{"cniVersion":1}"#, "cniVersion is 1, want a text"),
        (
            r#"{"cniVersion":"1.1.0","name":["a"]}"#,
            "name is [\"a\"], want a text",
        ),
    ] {
        let (code, msg) = error(env("ADD"), stdin);
        assert!(code == 6 && msg.contains(reason), "{stdin}: {code} {msg}");
    }
}

#[test]
fn reading_stdin_stops_at_the_size_limit() {
    let big = format!(
        r#"{{"cniVersion":"1.1.0","name":"ib","x":"{}"}}"#,
        "y".repeat(10 << 20)
    );
    assert_eq!(
        error(env("ADD"), &big),
        (
            6,
            "the network configuration on stdin is larger than 4 MiB".to_owned()
        )
    );
}

#[test]
fn an_unknown_version_is_code_1_and_the_error_lists_ours() {
    let (code, msg) = error(env("ADD"), r#"{"cniVersion":"2.0.0","name":"ib"}"#);
    assert!(
        code == 1 && msg.contains("\"2.0.0\"") && msg.contains("1.1.0"),
        "{msg}"
    );
}

#[test]
fn a_network_needs_a_name() {
    for conf in [
        r#"{"cniVersion":"1.1.0"}"#,
        r#"{"cniVersion":"1.1.0","name":"a/b"}"#,
    ] {
        assert_eq!(error(env("ADD"), conf).0, 7, "{conf}");
    }
}

#[test]
fn del_succeeds_for_names_that_add_refuses() {
    let calls = [
        (env("DEL"), r#"{"cniVersion":"1.1.0","name":"rail 0"}"#),
        (env("DEL"), r#"{"cniVersion":"1.1.0","name":["a"]}"#),
        (with("CNI_IFNAME", "a/b", env("DEL")), CONF),
        (with("CNI_IFNAME", "net%d", env("DEL")), CONF),
        (with("CNI_CONTAINERID", "../x", env("DEL")), CONF),
    ];
    for (env, conf) in calls {
        let (status, document, called) = call(env, conf);
        assert_eq!((status, document, called), (0, Value::Null, Vec::new()), "{conf}");
    }
}

#[test]
fn add_and_check_need_an_absolute_namespace_path() {
    for verb in ["ADD", "CHECK"] {
        let (code, msg) = error(with("CNI_NETNS", "../run/netns/a", env(verb)), CONF);
        assert!(code == 4 && msg.contains("../run/netns/a is relative"), "{msg}");
    }
    let (status, _, called) = call(with("CNI_NETNS", "../run/netns/a", env("DEL")), CONF);
    assert_eq!(
        (status, called.len()),
        (0, 1),
        "DEL searches every place that an older ADD accepted"
    );
}

#[test]
fn del_of_an_unknown_version_removes_the_attachment_of_a_newer_plugin() {
    for version in [r#""2.0.0""#, "2", "{}"] {
        let conf = format!(r#"{{"cniVersion":{version},"name":"ib"}}"#);
        let (status, document, called) = call(env("DEL"), &conf);
        assert_eq!((status, document), (0, Value::Null), "{version}");
        assert_eq!(called, [r#"del net1 of container c1 Some("/run/netns/a")"#]);
    }
}

#[test]
fn del_works_with_an_unreadable_version_or_arguments() {
    let with_args = |text: &'static str| [env("DEL"), vec![("CNI_ARGS", text)]].concat();
    for (env, conf) in [
        (env("DEL"), r#"{"cniVersion":1.1,"name":"ib"}"#),
        (env("DEL"), r#"{"cniVersion":["1.1.0"],"name":"ib"}"#),
        (with_args("IgnoreUnknown;x"), CONF),
    ] {
        let (status, document, called) = call(env, conf);
        assert_eq!((status, document), (0, Value::Null), "{conf}");
        assert_eq!(
            called,
            [r#"del net1 of container c1 Some("/run/netns/a")"#],
            "{conf}"
        );
    }
}

#[test]
fn gc_ignores_attachments_with_names_that_add_refuses() {
    let gc = vec![("CNI_COMMAND", "GC"), ("CNI_PATH", "/x")];
    let listed =
        |list: &str| format!(r#"{{"cniVersion":"1.1.0","name":"ib","cni.dev/valid-attachments":[{list}]}}"#);
    let good = r#"{"containerID":"c1","ifname":"net1"}"#;
    for bad in [
        r#"{"containerID":"../x","ifname":"net1"}"#,
        r#"{"containerID":"","ifname":"net1"}"#,
        r#"{"containerID":"c2","ifname":"sixteen-long-eth"}"#,
    ] {
        assert_eq!(
            call(gc.clone(), &listed(&format!("{bad},{good}"))).2,
            ["gc 1"],
            "{bad}"
        );
    }
    for unreadable in [
        r#"{"containerId":"c2","ifname":"net1"}"#,
        r#"{"containerID":5,"ifname":"net1"}"#,
    ] {
        let (code, msg) = error(gc.clone(), &listed(&format!("{unreadable},{good}")));
        assert!(code == 6 && msg.contains("cni.dev/valid-attachments"), "{msg}");
    }
}

#[test]
fn unknown_commands_are_refused() {
    assert_eq!(error(env("UPDATE"), CONF).0, 4);
}

#[test]
fn verbs_that_the_version_lacks_are_refused() {
    let old = |v: &str| format!(r#"{{"cniVersion":"{v}","name":"ib","cni.dev/valid-attachments":[]}}"#);
    assert_eq!(error(env("CHECK"), &old("0.3.1")).0, 1);
    assert_eq!(error(env("GC"), &old("1.0.0")).0, 1);
    assert_eq!(error(env("STATUS"), &old("1.0.0")).0, 1);
}

#[test]
fn gc_without_its_list_removes_nothing() {
    let (code, msg) = error(vec![("CNI_COMMAND", "GC"), ("CNI_PATH", "/x")], CONF);
    assert!(code == 6 && msg.contains("cni.dev/valid-attachments"), "{msg}");
    let listed = r#"{"cniVersion":"1.1.0","name":"ib","cni.dev/valid-attachments":[{"containerID":"c1","ifname":"net1"}]}"#;
    assert_eq!(gc(listed).2, ["gc 1"]);
}

fn gc(conf: &str) -> (u8, Value, Vec<String>) {
    call(vec![("CNI_COMMAND", "GC"), ("CNI_PATH", "/x")], conf)
}

#[test]
fn a_null_list_of_valid_attachments_is_read_as_empty() {
    let null = r#"{"cniVersion":"1.1.0","name":"ib","cni.dev/valid-attachments":null}"#;
    assert_eq!(gc(null), (0, Value::Null, vec!["gc 0".to_owned()]));
}

#[test]
fn errors_carry_the_version_of_the_configuration() {
    let conf = CONF.replace("1.1.0", "0.4.0");
    let (_, document, _) = call(without("CNI_NETNS", env("ADD")), &conf);
    assert_eq!(
        document["cniVersion"], "1.1.0",
        "the environment is validated before stdin is read"
    );
    let (_, document, _) = call(env("STATUS"), &conf);
    assert_eq!(document["cniVersion"], "0.4.0");
}

#[test]
fn a_panic_is_answered_with_an_error_document() {
    let (status, document, _) = call(env("ADD"), &CONF.replace("\"ib\"", "\"panic\""));
    assert_eq!((status, document["code"].as_u64()), (1, Some(999)));
    assert!(
        document["msg"].as_str().unwrap().contains("as ordered"),
        "{document}"
    );
}

#[test]
fn unknown_cni_args_need_ignore_unknown() {
    let known = ["MAC"];
    assert!(
        Args::parse("MAC=1;K8S_POD_NAME=p")
            .unwrap()
            .require_known(&known)
            .is_ok()
    );
    assert!(
        Args::parse("IgnoreUnknown=1;X=2")
            .unwrap()
            .require_known(&known)
            .is_ok()
    );
    let error = Args::parse("X=2").unwrap().require_known(&known).unwrap_err();
    assert!(
        error.code == Code::INVALID_ENVIRONMENT && error.msg.contains("\"X\""),
        "{}",
        error.msg
    );
    assert_eq!(Args::parse("X").unwrap_err().code, Code::INVALID_ENVIRONMENT);
}

#[test]
fn the_details_of_an_error_end_with_its_code_once() {
    let plain = Error::new(Code::NO_CARRIER, "ib0 is down");
    let details = |error: &Error| error.to_json(Version::LATEST)["details"].clone();
    assert_eq!(details(&plain), "rdmanet error 102");
    let more = plain.clone().with_details("port 1 is Polling");
    assert_eq!(details(&more), "port 1 is Polling; rdmanet error 102");
    let passed_on = plain.with_details("port 1 is Polling; rdmanet error 102");
    assert_eq!(details(&passed_on), "port 1 is Polling; rdmanet error 102");
}
