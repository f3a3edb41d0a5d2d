// SPDX-License-Identifier: Apache-2.0
//! The process: its environment and streams, handed to the plugin.

use common::cni::run_process;
use ipam::RdmaIpam;
use ipam::agent::{Client, SOCKET_VARIABLE};

fn main() -> std::process::ExitCode {
    run_process(|env| {
        let mut plugin = RdmaIpam::default();
        if let Some(socket) = env.get(SOCKET_VARIABLE)? {
            plugin.agent = Client {
                socket: socket.into(),
                ..Client::default()
            };
        }
        Ok(plugin)
    })
}
