// SPDX-License-Identifier: Apache-2.0
//! The process around [`cni_ipoib::CniIpoib`]: a plugin, or with the word `collect` the collector of a node.

use cni_ipoib::{CniIpoib, collect};
use common::cni::{Env, run_process};
use std::process::ExitCode;

/// musl's allocator maps and unmaps a page for most allocations of a short process.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|word| word == "collect") {
        return collect::run_process();
    }
    run_process(|env: &Env| CniIpoib::on_node(env))
}
