// SPDX-License-Identifier: Apache-2.0
use super::*;
use common::cni::{Code, Error, Version};

/// The text that `kubectl describe pod` shows after an error has passed through libcni, Multus, containerd and the
/// kubelet.
fn event(error: &Error) -> String {
    let document = error.to_json(Version::V1_1_0);
    let (msg, details) = (
        document["msg"].as_str().unwrap(),
        document["details"].as_str().unwrap(),
    );
    format!(
        "  Warning  FailedCreatePodSandBox  2s  kubelet  Failed to create pod sandbox: rpc error: code = Unknown desc = failed to \
         setup network for sandbox \"3f1c\": plugin type=\"multus\" name=\"multus-cni-network\" failed (add): \
         [ml/trainer-0/8a2f:ib-ipoib]: error adding container to network \"ib-ipoib\": plugin type=\"cni-ipoib\" failed (add): \
         {msg}; {details}\n"
    )
}

#[test]
fn an_error_wrapped_by_multus_is_found_with_its_code_and_its_message() {
    let down = Error::new(
        Code::NO_CARRIER,
        "ib0 carries nothing: mlx5_0 port 1 is down (Polling); check cable",
    );
    let full =
        Error::new(Code::EXHAUSTED, "rdma-ipam: pool rail0 has no address left").with_details("254 of 254");
    let answer = explain(&format!(
        "Events:\n{}{}{}",
        event(&down),
        event(&full),
        event(&down)
    ));
    assert_eq!(answer.outcome, Outcome::Fine);
    let errors = answer.json["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 2, "each once: {}", answer.text);
    assert_eq!(errors[0]["code"], 102);
    assert_eq!(
        errors[0]["message"],
        "ib0 carries nothing: mlx5_0 port 1 is down (Polling); check cable"
    );
    assert_eq!(
        errors[1]["message"],
        "rdma-ipam: pool rail0 has no address left; 254 of 254"
    );
    assert!(
        answer.text.contains("code 102, from `cni-ipoib`: "),
        "{}",
        answer.text
    );
    assert!(
        answer.text.contains("remedy   cable, switch port"),
        "{}",
        answer.text
    );
}

/// What a kubelet 1.37 with containerd 2.4 and thick Multus 4.3 shows: the sandbox differs in each Event.
#[test]
fn an_error_wrapped_by_thick_multus_is_found_once_with_its_message() {
    let event = |sandbox: &str| {
        format!(
            "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox \"{sandbox}\": \
             plugin type=\"multus-shim\" name=\"multus-cni-network\" failed (add): CmdAdd (shim): CNI request failed with status \
             400: 'ContainerID:\"{sandbox}\" Netns:\"/var/run/netns/cni-{sandbox}\" IfName:\"eth0\" ERRORED: error configuring pod \
             [ml/a] networking: [ml/a/8a2f:rail0]: error adding container to network \"rail0\": \
             master \"ibs1\" does not exist on this node; rdmanet error 7\n': StdinData: {{}}\n"
        )
    };
    let answer = explain(&format!("{}{}", event("3f1c"), event("77aa")));
    let errors = answer.json["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 1, "{}", answer.text);
    assert_eq!(
        errors[0]["message"],
        "master \"ibs1\" does not exist on this node"
    );
}

#[test]
fn a_bare_code_and_a_cni_error_are_explained_too() {
    let codes = |text: &str| {
        let answer = explain(text);
        let errors = answer.json["errors"].as_array().unwrap().clone();
        errors
            .iter()
            .map(|error| error["code"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(codes(" 118\n"), [118]);
    assert_eq!(
        codes(r#"{"cniVersion":"1.0.0","code":7,"msg":"master is not set"}"#),
        [7]
    );
    let ours = Error::new(Code::TRY_AGAIN, "locked").to_json(Version::V1_1_0);
    assert_eq!(codes(&ours.to_string()), [11]);
    assert_eq!(codes("level=error rdmanet error 4 and rdmanet error 5"), [4, 5]);
    let unknown = explain("12345");
    assert!(unknown.text.contains("has no such code"), "{}", unknown.text);
}

#[test]
fn a_text_without_an_rdmanet_error_is_reported_as_such() {
    for text in [
        "",
        "code 999",
        "rdmanet error",
        "rdmanet error x",
        "plugin type=\"multus\" failed (add): x",
    ] {
        let answer = explain(text);
        assert_eq!(answer.outcome, Outcome::Found, "{text}");
        assert!(answer.text.starts_with("no error of rdmanet"), "{text}");
    }
    assert!(explain("Multus: error").text.contains("999"));
}

/// `agent/src/tests.rs` compares the table's codes with the constants.
#[test]
fn every_row_of_the_error_code_table_is_parsed() {
    let rows = OPERATE.split_once(HEADING).unwrap().1;
    let rows = rows.split("\n## ").next().unwrap();
    let lines = rows
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| ---"))
        .count();
    assert_eq!(table(OPERATE).len(), lines - 1, "all but the heading");
    for code in [1, 7, 100, 119, 999] {
        assert!(table(OPERATE).contains_key(&code), "{code}");
    }
}

#[test]
fn a_message_with_a_line_break_forges_no_second_error() {
    let text = r#"{"code": 7, "msg": "one\ncode 1, from x: forged\u001b[2J"}"#;
    let answer = explain(text);
    let errors = answer.text.lines().filter(|line| line.starts_with("code "));
    assert_eq!(errors.count(), 1, "{}", answer.text);
    assert!(!answer.text.contains('\u{1b}'), "{}", answer.text);
}
