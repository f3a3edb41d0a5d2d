// SPDX-License-Identifier: Apache-2.0
//! The process: passes its environment and streams to the plugin.

use common::cni::run_process;
use ipam::RdmaIpam;
use ipam::agent::{Client, SOCKET_VARIABLE};

/// musl's allocator maps and unmaps a page for most allocations of a short process.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> std::process::ExitCode {
    // A runtime's umask may remove even the owner's rights. The plugin sets the modes of its files itself.
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
