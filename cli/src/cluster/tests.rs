// SPDX-License-Identifier: Apache-2.0
//! Tests the requests of the command against one canned response.

use super::*;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;

/// A client of a server that gives this response to its only request.
pub(crate) fn client(response: &'static str) -> Client {
    client_of(vec![response.to_owned()])
}

/// A client of a server that gives one of these responses to each connection.
fn client_of(responses: Vec<String>) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for response in responses {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            assert!(stream.read(&mut request).unwrap() > 0);
            stream.write_all(response.as_bytes()).unwrap();
        }
    });
    Client::try_from(Config::new(url.parse().unwrap())).unwrap()
}

fn response(status: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn a_list_whose_state_has_expired_begins_anew() {
    let page = |names: &[&str], token: &str| {
        let items: Vec<Value> = names
            .iter()
            .map(|name| json!({ "metadata": { "name": name } }))
            .collect();
        let list = json!({ "kind": "NodeList", "apiVersion": "v1", "metadata": { "continue": token }, "items": items });
        response("200 OK", &list)
    };
    let expired = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 410, "reason": "Expired",
        "message": "The provided continue parameter is too old",
    });
    let expired = || response("410 Gone", &expired);
    let names = async |responses: Vec<String>| {
        let nodes: Api<Node> = Api::all(client_of(responses));
        let all = list(&nodes, "Nodes", &ListParams::default()).await?;
        Ok::<_, CommandError>(all.iter().map(ResourceExt::name_any).collect::<Vec<_>>())
    };
    let all = names(vec![page(&["a"], "next"), expired(), page(&["a", "b"], "")]).await;
    assert_eq!(all.unwrap(), ["a", "b"]);
    let error = names(vec![page(&["a"], "next"), expired(), expired()])
        .await
        .unwrap_err();
    assert!(error.0.contains("too old"), "{}", error.0);
}

#[tokio::test]
async fn the_time_of_the_api_server_comes_from_any_response() {
    let refused =
        "HTTP/1.1 403 Forbidden\r\nDate: Tue, 15 Nov 1994 08:12:31 GMT\r\nContent-Length: 0\r\n\r\n";
    let time = server_time(&client(refused)).await.unwrap();
    assert_eq!(time.to_string(), "1994-11-15T08:12:31Z");
    let without = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let error = server_time(&client(without)).await.unwrap_err();
    assert!(error.0.contains("no header Date"), "{}", error.0);
}
