// SPDX-License-Identifier: Apache-2.0

use super::*;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpListener;
use std::thread;

/// A configuration for an API server that nobody can reach but by way of `proxy`.
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

#[tokio::test]
async fn an_api_server_behind_a_proxy_is_reached_through_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let proxy = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap())
            .lines()
            .map(Result::unwrap);
        let mut head = || -> Vec<String> { lines.by_ref().take_while(|line| !line.is_empty()).collect() };
        let connect = head();
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        let asked = head();
        let body = r#"{"major":"1","minor":"99","gitVersion":"v1.99.0","gitCommit":"","gitTreeState":"","buildDate":"","goVersion":"","compiler":"","platform":""}"#;
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(answer.as_bytes()).unwrap();
        (connect, asked)
    });
    let config = behind(&format!("http://agent:p%40ss@127.0.0.1:{port}")).await;
    let version = new(config).unwrap().apiserver_version().await.unwrap();
    assert_eq!(version.minor, "99");
    let (connect, asked) = proxy.join().unwrap();
    assert_eq!(connect[0], "CONNECT api.invalid:6443 HTTP/1.1");
    // agent:p@ss
    let words = "proxy-authorization: basic ywdlbnq6cebzcw==";
    assert!(
        connect.iter().any(|line| line.to_lowercase() == words),
        "{connect:?}"
    );
    assert!(asked[0].starts_with("GET /version "), "{asked:?}");
}

#[tokio::test]
async fn a_proxy_that_cannot_be_used_is_named_before_anything_is_asked() {
    let refused = new(behind("socks5://127.0.0.1:1080").await);
    let error = common::cni::error::causes(&refused.err().unwrap());
    assert!(error.contains("socks5://127.0.0.1:1080"), "{error}");
}
