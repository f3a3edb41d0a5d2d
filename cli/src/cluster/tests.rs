// SPDX-License-Identifier: Apache-2.0
//! Tests the requests of the command against one canned response.

use super::*;
use std::io::{Read, Write};
use std::net::TcpListener;

/// A client of a server that gives this response to its only request.
pub(crate) fn client(response: &'static str) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        assert!(stream.read(&mut request).unwrap() > 0);
        stream.write_all(response.as_bytes()).unwrap();
    });
    Client::try_from(Config::new(url.parse().unwrap())).unwrap()
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
