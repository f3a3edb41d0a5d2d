// SPDX-License-Identifier: Apache-2.0
//! A relay from a node's network to the API server, which listens on the machine's loopback.
//!
//! A socket belongs to the network namespace of the thread that creates it. The node's thread creates the listener. The
//! runtime's threads are in the machine's network and create the connections to the server.

use std::net::{Ipv4Addr, TcpListener as Listener};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A relay on the loopback of the node whose thread created it. It listens on the server's own port.
pub struct Relay {
    cut: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl Relay {
    /// Starts a relay to `port`.
    pub fn start(runtime: &Handle, port: u16) -> Self {
        let listener = Listener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let cut = watch::Sender::new(false);
        let accepting = runtime.spawn(accept(listener, port, cut.clone()));
        Self { cut, accepting }
    }

    /// Breaks all present and future connections until [`Relay::mend`], as if the API server were down.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Undoes [`Relay::cut`].
    pub fn mend(&self) {
        self.cut.send_replace(false);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.cut.send_replace(true);
        self.accepting.abort();
    }
}

async fn accept(listener: Listener, port: u16, cut: watch::Sender<bool>) {
    let listener = TcpListener::from_std(listener).unwrap();
    while let Ok((stream, _)) = listener.accept().await {
        let mut cut = cut.subscribe();
        tokio::spawn(async move {
            tokio::select! {
                () = carry(stream, port) => {}
                _ = cut.wait_for(|cut| *cut) => {}
            }
        });
    }
}

async fn carry(mut stream: TcpStream, port: u16) {
    if let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
        // The two ends handle a broken connection.
        let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
    }
}
