// SPDX-License-Identifier: Apache-2.0
//! Runs the binary as a runtime does, one process for each call.

use serde_json::Value;
use std::io::Write;
use std::process::{Child, Command, Output, Stdio};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_rdma-ipam");

/// Starts `command`, which runs [`BINARY`], for a call of `verb`.
pub(crate) fn start(mut command: Command, verb: &str, id: &str, conf: &Value) -> Child {
    command
        .env("CNI_COMMAND", verb)
        .env("CNI_CONTAINERID", id)
        .env("CNI_IFNAME", "net1")
        .env("CNI_NETNS", "/no/such/netns")
        .env("CNI_PATH", "/opt/cni/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A process that is killed before it reads leaves a broken pipe.
    let _ = child.stdin.take().unwrap().write_all(conf.to_string().as_bytes());
    child
}

pub(crate) fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

/// The addresses of a successful ADD.
pub(crate) fn addresses(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{output:?}");
    addresses_of(&document(output))
}

/// The addresses of a result.
pub(crate) fn addresses_of(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().unwrap();
    ips.iter()
        .map(|ip| ip["address"].as_str().unwrap().to_owned())
        .collect()
}

/// Pseudo-random numbers, the same in every run (Knuth's MMIX generator).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}
