// SPDX-License-Identifier: Apache-2.0
//! The proxy through which an API server on this host reaches kubelets in the fabric's VM:
//!
//! ```text
//! kubelet-proxy SOCKET ADDRESS:PORT=PORT...
//! ```
//!
//! The API server sends `CONNECT ADDRESS:PORT` to the unix socket SOCKET (its egress selector, `HTTPConnect`), with the
//! address in the Node object. The proxy connects to the second PORT, which the VM publishes on this host's loopback,
//! and copies bytes in both directions.
//!
//! Invariant: only the listed addresses are reachable; every other request gets status 502 and no connection.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::thread;

/// The size limit of a request's head; an API server's is smaller.
const LONGEST_HEAD: usize = 8192;

/// The published port of each kubelet, by `ADDRESS:PORT`.
type Ways = HashMap<String, u16>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error);
            ExitCode::FAILURE
        }
    }
}

/// Logs to standard error, which `up` writes to a file.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "kubelet-proxy: {line}");
}

fn run(args: &[String]) -> Result<(), String> {
    let [socket, ways @ ..] = args else {
        return Err("usage: kubelet-proxy SOCKET ADDRESS:PORT=PORT...".to_owned());
    };
    let ways = ways.iter().map(|way| parse(way)).collect::<Result<Ways, _>>()?;
    let listener = UnixListener::bind(socket).map_err(|e| format!("cannot listen on {socket}: {e}"))?;
    for client in listener.incoming() {
        let client = client.map_err(|e| format!("accept on {socket} failed: {e}"))?;
        let ways = ways.clone();
        thread::spawn(move || serve(client, &ways).unwrap_or_else(|error| say(&error)));
    }
    Ok(())
}

/// Reads `ADDRESS:PORT=PORT`.
fn parse(way: &str) -> Result<(String, u16), String> {
    let refused = || format!("'{way}' is not ADDRESS:PORT=PORT");
    let (kubelet, published) = way.split_once('=').ok_or_else(refused)?;
    Ok((kubelet.to_owned(), published.parse().map_err(|_| refused())?))
}

fn serve(mut client: UnixStream, ways: &Ways) -> Result<(), String> {
    let head = read_head(&mut client).map_err(|e| format!("cannot read a request: {e}"))?;
    let refused = |mut client: UnixStream, why: String| {
        let _ = client.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n");
        Err(why)
    };
    let Some(port) = asked_for(&head).and_then(|kubelet| ways.get(kubelet)) else {
        return refused(
            client,
            format!("no way for '{}'", head.lines().next().unwrap_or_default()),
        );
    };
    let kubelet = match TcpStream::connect(("127.0.0.1", *port)) {
        Ok(kubelet) => kubelet,
        Err(e) => return refused(client, format!("cannot connect to port {port}: {e}")),
    };
    client
        .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
        .map_err(|e| format!("the API server is gone: {e}"))?;
    carry(client, kubelet).map_err(|e| format!("cannot carry a connection to port {port}: {e}"))
}

/// Reads the head of an HTTP request byte by byte, because the bytes after it belong to the kubelet.
fn read_head(client: &mut UnixStream) -> io::Result<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte)?;
        head.push(byte[0]);
        if head.len() > LONGEST_HEAD {
            return Err(io::Error::other("its head has no end"));
        }
    }
    String::from_utf8(head).map_err(io::Error::other)
}

/// Extracts `ADDRESS:PORT` from `CONNECT ADDRESS:PORT HTTP/1.1`.
fn asked_for(head: &str) -> Option<&str> {
    head.lines().next()?.strip_prefix("CONNECT ")?.split(' ').next()
}

/// Copies in both directions until both ends have closed.
fn carry(client: UnixStream, kubelet: TcpStream) -> io::Result<()> {
    let (mut from_client, mut to_kubelet) = (client.try_clone()?, kubelet.try_clone()?);
    let (mut from_kubelet, mut to_client) = (kubelet, client);
    let upwards = thread::spawn(move || {
        // If one end has closed, this copy ends; the other direction notices by itself.
        let _ = io::copy(&mut from_client, &mut to_kubelet);
        let _ = to_kubelet.shutdown(Shutdown::Write);
    });
    let _ = io::copy(&mut from_kubelet, &mut to_client);
    let _ = to_client.shutdown(Shutdown::Both);
    let _ = upwards.join();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{asked_for, parse, run, serve};
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;
    use std::thread;

    /// Sends `request` through the proxy, which maps 10.0.2.16:10250 to `port`. Returns the whole response.
    fn answer(port: u16, request: &str) -> String {
        let (mut near, far) = UnixStream::pair().unwrap();
        let ways = [("10.0.2.16:10250".to_owned(), port)].into();
        let proxy = thread::spawn(move || serve(far, &ways).map_err(drop));
        near.write_all(request.as_bytes()).unwrap();
        near.shutdown(std::net::Shutdown::Write).unwrap();
        let mut said = String::new();
        near.read_to_string(&mut said).unwrap();
        let _ = proxy.join();
        said
    }

    #[test]
    fn bytes_travel_both_ways() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let kubelet = thread::spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            let mut heard = String::new();
            peer.read_to_string(&mut heard).unwrap();
            peer.write_all(heard.to_uppercase().as_bytes()).unwrap();
        });
        let said = answer(port, "CONNECT 10.0.2.16:10250 HTTP/1.1\r\nHost: x\r\n\r\nhello");
        kubelet.join().unwrap();
        assert_eq!(said, "HTTP/1.1 200 Connection established\r\n\r\nHELLO");
    }

    #[test]
    fn an_address_that_is_not_listed_is_refused() {
        let said = answer(1, "CONNECT 10.0.2.17:10250 HTTP/1.1\r\n\r\n");
        assert_eq!(said, "HTTP/1.1 502 Bad Gateway\r\n\r\n");
        assert!(answer(1, "GET / HTTP/1.1\r\n\r\n").contains("502"));
    }

    #[test]
    fn a_kubelet_that_does_not_listen_is_a_bad_gateway() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        assert!(answer(port, "CONNECT 10.0.2.16:10250 HTTP/1.1\r\n\r\n").contains("502"));
    }

    #[test]
    fn bad_use_names_the_argument() {
        assert!(run(&[]).unwrap_err().starts_with("usage:"));
        assert!(
            parse("10.0.2.16:10250")
                .unwrap_err()
                .contains("'10.0.2.16:10250'")
        );
        assert!(parse("10.0.2.16:10250=x").unwrap_err().contains("=x"));
        assert_eq!(asked_for("GET / HTTP/1.1\r\n"), None);
    }
}
