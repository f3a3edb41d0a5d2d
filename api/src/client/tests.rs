// SPDX-License-Identifier: Apache-2.0

use super::*;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::io::{BufRead, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

/// A configuration for an API server that is reachable only through `proxy`.
async fn behind(proxy: &str) -> Config {
    let kubeconfig: Kubeconfig = serde_json::from_value(serde_json::json!({
        "clusters": [{ "name": "c", "cluster": { "server": "http://api.invalid:6443", "proxy-url": proxy } }],
        "users": [{ "name": "u", "user": {} }],
        "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u" } }],
        "current-context": "x",
    }))
    .unwrap();
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap()
}

/// The lines before the next empty one.
fn head(stream: &TcpStream) -> Vec<String> {
    let lines = BufReader::new(stream).lines().map(Result::unwrap);
    lines.take_while(|line| !line.is_empty()).collect()
}

/// Starts a proxy that returns `answer` to the first CONNECT and then runs `then`. Returns its URL and the request that
/// it received.
fn proxy(
    answer: &'static str,
    then: impl FnOnce(TcpStream) + Send + 'static,
) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let asked = head(&stream);
        stream.write_all(answer.as_bytes()).unwrap();
        then(stream);
        asked
    });
    (format!("http://agent:p%40ss@127.0.0.1:{port}"), asked)
}

/// Responds to a version request as the API server does.
fn tell_version(mut stream: TcpStream) {
    let asked = head(&stream);
    assert!(asked[0].starts_with("GET /version "), "{asked:?}");
    let body = r#"{"major":"1","minor":"99","gitVersion":"v1.99.0","gitCommit":"","gitTreeState":"","buildDate":"","goVersion":"","compiler":"","platform":""}"#;
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).unwrap();
}

#[tokio::test]
async fn an_api_server_behind_a_proxy_is_reached_through_it() {
    for yes in [
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.0 200 Connection established\r\nProxy-Agent: old\r\n\r\n",
    ] {
        let (url, asked) = proxy(yes, tell_version);
        let client = new(behind(&url).await).unwrap();
        assert_eq!(client.apiserver_version().await.unwrap().minor, "99");
        let asked = asked.join().unwrap();
        assert_eq!(asked[0], "CONNECT api.invalid:6443 HTTP/1.1");
        // agent:p@ss
        let words = "proxy-authorization: basic ywdlbnq6cebzcw==";
        assert!(asked.iter().any(|line| line.to_lowercase() == words), "{asked:?}");
    }
}

/// The error message if the proxy returns `answer`. `PROXY` represents the URL of the proxy.
async fn sentence(answer: &'static str) -> String {
    let (url, asked) = proxy(answer, drop);
    let client = new(behind(&url).await).unwrap();
    let sentence = common::cni::error::causes(&client.apiserver_version().await.unwrap_err());
    asked.join().unwrap();
    assert!(!sentence.contains("p%40ss"), "{sentence}");
    sentence.replace(&url.replace("agent:p%40ss@", ""), "PROXY")
}

#[tokio::test]
async fn a_proxy_that_rejects_a_request_is_reported_with_reason_and_remedy() {
    let no = sentence("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno").await;
    let words = "the proxy PROXY/ rejects CONNECT api.invalid:6443: 403 Forbidden; let the proxy allow it";
    assert!(no.contains(words), "{no}");
    let who = sentence("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await;
    assert!(
        who.contains("407") && who.contains("http://NAME:PASSWORD@HOST:PORT"),
        "{who}"
    );
    let away = sentence("HTTP/1.1 502 Bad Gateway\r\n\r\n").await;
    assert!(away.contains("can the proxy reach that server?"), "{away}");
    for answer in [
        "",
        "220 mail.example.org ESMTP\r\n",
        "HTTP/1.1 200 OK\r\n\r\nSSH-2.0-x\r\n",
    ] {
        let strange = sentence(answer).await;
        let words = "the proxy PROXY/ does not answer CONNECT api.invalid:6443 as an HTTP proxy does: ";
        assert!(strange.contains(words), "{answer:?}: {strange}");
    }
}

#[tokio::test]
async fn an_unreachable_proxy_is_named_in_the_error() {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let client = new(behind(&format!("http://127.0.0.1:{port}")).await).unwrap();
    let sentence = common::cni::error::causes(&client.apiserver_version().await.unwrap_err());
    let words = format!("the proxy http://127.0.0.1:{port}/ cannot be reached");
    assert!(
        sentence.contains(&words) && sentence.contains("Connection refused"),
        "{sentence}"
    );
}

#[tokio::test]
async fn an_unsupported_proxy_is_rejected_before_the_first_request() {
    let refused = new(behind("socks5://agent:secret@127.0.0.1:1080").await);
    let error = common::cni::error::causes(&refused.err().unwrap());
    assert!(error.contains("the proxy socks5://127.0.0.1:1080"), "{error}");
}
