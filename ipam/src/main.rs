// SPDX-License-Identifier: Apache-2.0
//! The process: its environment and streams, handed to the plugin.

use common::cni::run_process;
use ipam::RdmaIpam;

fn main() -> std::process::ExitCode {
    run_process(|_| Ok(RdmaIpam::default()))
}
