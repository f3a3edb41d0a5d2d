// SPDX-License-Identifier: Apache-2.0
use super::{AskedBy, Client, Reply, Request, Verb};
use crate::range::Family;
use crate::testing::{assert_error, attachment};
use common::cni::{Code, Error};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn request() -> Request {
    Request {
        verb: Verb::Claim,
        pool: "rail0".parse().unwrap(),
        attachment: Some(AskedBy {
            owner: attachment("a"),
            network: "net".to_owned(),
        }),
        pod: None,
        ips: Vec::new(),
        families: vec![Family::V4],
        early: false,
        within_ms: None,
    }
}

/// The limit where the agent answers, or ends the connection.
const LONG: Duration = Duration::from_secs(60);

/// The limit where it does neither.
const SHORT: Duration = Duration::from_millis(300);

fn client(dir: &TempDir, limit: Duration) -> Client {
    Client {
        socket: dir.path().join("agent.sock"),
        limit,
    }
}

/// Starts an agent that serves one client with `script`.
fn agent(dir: &TempDir, script: impl FnOnce(UnixStream) + Send + 'static) -> JoinHandle<()> {
    let listener = UnixListener::bind(dir.path().join("agent.sock")).unwrap();
    std::thread::spawn(move || script(listener.accept().unwrap().0))
}

/// Reads the request. If the agent closed the connection earlier, the client could fail to send it.
fn read_request(stream: &UnixStream) {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
}

fn ask(client: &Client) -> Result<Reply, Error> {
    client.ask(&request(), Instant::now() + client.limit)
}

#[test]
fn a_request_is_one_line_and_so_is_its_answer() {
    let dir = tempfile::tempdir().unwrap();
    let served = agent(&dir, |mut stream| {
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        let expected = json!({
            "verb": "claim", "pool": "rail0", "families": [4],
            "attachment": {"containerID": "a", "ifname": "eth0", "network": "net"},
        });
        let mut request: Value = serde_json::from_str(&line).unwrap();
        let within = request["withinMs"].take().as_u64().unwrap();
        assert!((1..=60_000).contains(&within), "{within}");
        request.as_object_mut().unwrap().remove("withinMs");
        assert_eq!(request, expected);
        // The response arrives in pieces, as in a stream.
        for piece in [
            "{\"answer\":\"addres",
            "ses\",\"addresses\":[\"10.0.0.7\"",
            "]}\n",
        ] {
            stream.write_all(piece.as_bytes()).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let expected = Reply::Addresses {
        addresses: vec!["10.0.0.7".parse().unwrap()],
    };
    assert_eq!(ask(&client(&dir, LONG)).unwrap(), expected);
    served.join().unwrap();
}

#[test]
fn a_refusal_of_the_agent_is_an_error_with_its_code_and_texts() {
    let dir = tempfile::tempdir().unwrap();
    let refusal = Error::new(Code(110), "pool rail0 is exhausted").with_details("1022 of 1022");
    let answer = serde_json::to_string(&Reply::refused(refusal.clone())).unwrap();
    let served = agent(&dir, move |mut stream| {
        read_request(&stream);
        writeln!(stream, "{answer}").unwrap();
    });
    let reply = ask(&client(&dir, LONG)).unwrap();
    assert_eq!(reply.accepted().unwrap_err(), refusal);
    served.join().unwrap();
}

/// Asserts that a request to an agent with `script` fails, and that the error contains the socket and `what`.
fn assert_unanswered(limit: Duration, what: &str, script: impl FnOnce(UnixStream) + Send + 'static) {
    let dir = tempfile::tempdir().unwrap();
    let served = agent(&dir, script);
    let begun = Instant::now();
    let error = ask(&client(&dir, limit)).unwrap_err();
    assert_eq!(error.code, Code::TRY_AGAIN, "{error}");
    for word in [what, "agent.sock", "see whether the agent's pod runs"] {
        assert!(error.msg.contains(word), "{error} lacks {word}");
    }
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "the limit did not hold"
    );
    served.join().unwrap();
}

#[test]
fn a_call_to_an_agent_that_hangs_ends_at_the_limit() {
    assert_unanswered(SHORT, "no answer within 300 ms", |stream| {
        // Waits until the client has closed the connection.
        let _ = BufReader::new(stream).lines().last();
    });
}

#[test]
fn a_call_to_an_agent_that_answers_slowly_ends_at_the_limit() {
    assert_unanswered(SHORT, "no answer within 300 ms", |mut stream| {
        while stream.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

#[test]
fn an_agent_that_closes_the_connection_is_reported() {
    assert_unanswered(LONG, "closed without an answer", |stream| {
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
    });
}

#[test]
fn an_invalid_answer_is_quoted_in_the_error() {
    assert_unanswered(LONG, "its reply \"<html>\" cannot be decoded", |mut stream| {
        read_request(&stream);
        stream.write_all(b"<html>\n").unwrap();
    });
}

#[test]
fn an_endless_answer_is_cut_off() {
    assert_unanswered(LONG, "longer than 64 KiB", |mut stream| {
        while stream.write_all(&[b'x'; 4096]).is_ok() {}
    });
}

#[test]
fn a_missing_agent_and_a_dead_one_have_different_errors() {
    let dir = tempfile::tempdir().unwrap();
    let absent = ask(&client(&dir, LONG)).unwrap_err();
    assert_error(&absent, Code::TRY_AGAIN, &["it is not there"]);
    drop(UnixListener::bind(client(&dir, LONG).socket).unwrap());
    let dead = ask(&client(&dir, LONG)).unwrap_err();
    assert_error(&dead, Code::TRY_AGAIN, &["no process listens there"]);
    client(&dir, LONG).notify(&request());
}

#[test]
fn a_call_to_an_agent_with_a_full_queue_ends_at_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let listener = nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Unix,
        nix::sys::socket::SockType::Stream,
        nix::sys::socket::SockFlag::SOCK_CLOEXEC,
        None,
    )
    .unwrap();
    let client = client(&dir, SHORT);
    let address = nix::sys::socket::UnixAddr::new(&client.socket).unwrap();
    nix::sys::socket::bind(std::os::fd::AsRawFd::as_raw_fd(&listener), &address).unwrap();
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
    let _waiting = UnixStream::connect(&client.socket).unwrap();
    let error = ask(&client).unwrap_err();
    assert!(error.msg.contains("no answer within 300 ms"), "{error}");
}

/// Plugin and agent of one node differ in version while the agent's pod is replaced (`docs/design/versions.md`).
#[test]
fn messages_of_a_newer_version_are_read_without_their_new_members() {
    let mut question = serde_json::to_value(request()).unwrap();
    question["later"] = serde_json::json!({ "any": 1 });
    let read: Request = serde_json::from_value(question).unwrap();
    assert_eq!(read, request());
    let answer = serde_json::json!({ "answer": "addresses", "addresses": ["10.0.0.1"], "later": 1 });
    let read: Reply = serde_json::from_value(answer).unwrap();
    assert!(matches!(read, Reply::Addresses { addresses } if addresses.len() == 1));
}
