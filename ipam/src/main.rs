// SPDX-License-Identifier: Apache-2.0
//! The process: its environment and streams, handed to the plugin.

use common::cni::{Env, Streams, dispatch};
use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let env = Env::of_process();
    common::log::init(env.get("RDMANET_LOG").ok().flatten());
    let program = std::env::args_os().next().unwrap_or_default();
    let program = Path::new(&program)
        .file_name()
        .and_then(OsStr::to_str)
        .unwrap_or("rdma-ipam");
    let streams = Streams {
        stdin: std::io::stdin(),
        stdout: std::io::stdout(),
        stderr: std::io::stderr(),
    };
    ExitCode::from(dispatch(&ipam::RdmaIpam::default(), program, &env, streams))
}
