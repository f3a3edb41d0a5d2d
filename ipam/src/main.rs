// SPDX-License-Identifier: Apache-2.0
//! The process: its environment and streams, handed to the plugin.

use common::cni::run_process;
use ipam::RdmaIpam;
use ipam::agent::{Client, SOCKET_VARIABLE};

fn main() -> std::process::ExitCode {
    // A runtime's umask may take rights from the owner as well; the modes of our files are our own matter.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
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
