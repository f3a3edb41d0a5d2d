// SPDX-License-Identifier: Apache-2.0
//! The process around [`cni_ipoib::CniIpoib`].

use cni_ipoib::CniIpoib;
use common::cni::{Env, run_process};

fn main() -> std::process::ExitCode {
    run_process(|env: &Env| CniIpoib::on_node(env))
}
