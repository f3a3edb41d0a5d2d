// SPDX-License-Identifier: Apache-2.0
//! A plugin's process, and many of them in parallel.

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// A call of a plugin.
#[derive(Clone, Debug)]
pub struct Call {
    /// The plugin.
    pub program: PathBuf,
    /// `ADD` or `DEL`.
    pub verb: &'static str,
    /// `CNI_CONTAINERID`.
    pub id: String,
    /// The pod's name.
    pub pod: String,
    /// The network configuration.
    pub conf: String,
    /// The socket of the node's agent, if the plugin may use it.
    pub agent: Option<PathBuf>,
    /// `NODENAME`, which whereabouts reads if it has node slices.
    pub node: Option<String>,
    /// The file of the pod's network namespace; `None` for the namespace of this process.
    pub netns: Option<PathBuf>,
}

/// The result of a call.
pub struct Answer {
    /// The time from fork to exit.
    pub time: Duration,
    /// Whether the exit status was 0.
    pub succeeded: bool,
    /// Whether the process ended by itself, not by a signal.
    pub ended: bool,
    /// The standard output, which a runtime reads.
    pub stdout: String,
}

/// The results of many calls.
pub struct Done {
    /// The result of each call.
    pub answers: Vec<Answer>,
    /// The time from the first start to the last exit.
    pub wall: Duration,
}

impl Answer {
    /// The address in the result of ADD.
    pub fn address(&self) -> String {
        let result: Value = serde_json::from_str(&self.stdout).unwrap();
        result["ips"][0]["address"].as_str().unwrap().to_owned()
    }
}

/// Runs all calls in parallel, each from its own thread.
pub fn at_once(calls: &[Call]) -> Done {
    let ready = Barrier::new(calls.len());
    let timed: Vec<(Instant, Answer, Instant)> = std::thread::scope(|scope| {
        let threads: Vec<_> = calls
            .iter()
            .map(|call| {
                scope.spawn(|| {
                    ready.wait();
                    let begun = Instant::now();
                    let answer = run(call);
                    (begun, answer, Instant::now())
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let begun = timed.iter().map(|(begun, _, _)| *begun).min().unwrap();
    let ended = timed.iter().map(|(_, _, ended)| *ended).max().unwrap();
    Done {
        answers: timed.into_iter().map(|(_, answer, _)| answer).collect(),
        wall: ended - begun,
    }
}

/// Runs one call.
pub fn run(call: &Call) -> Answer {
    let begun = Instant::now();
    finish(start(call), begun)
}

/// Runs one call, and kills its process after this time. `None` if the process had not ended before.
pub fn killed_after(call: &Call, time: Duration) -> Option<Answer> {
    let begun = Instant::now();
    let mut child = start(call);
    std::thread::sleep(time);
    child.kill().unwrap();
    let answer = finish(child, begun);
    answer.ended.then_some(answer)
}

/// Starts a call, with the configuration in its standard input.
fn start(call: &Call) -> Child {
    let mut command = Command::new(&call.program);
    // The namespace of a running process, so that the pod does not count as gone.
    let netns = call.netns.as_deref().unwrap_or(Path::new("/proc/self/ns/net"));
    command
        .env_clear()
        .env("CNI_COMMAND", call.verb)
        .env("CNI_CONTAINERID", &call.id)
        .env("CNI_IFNAME", "net1")
        .env("CNI_NETNS", netns)
        // The namespace is the plugin's own, which programs with libcni refuse without this variable.
        .env("CNI_NETNS_OVERRIDE", "1")
        .env("CNI_PATH", "/opt/cni/bin")
        .env(
            "CNI_ARGS",
            format!(
                "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={}",
                call.pod
            ),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if let Some(socket) = &call.agent {
        command.env(ipam::agent::SOCKET_VARIABLE, socket);
    }
    if let Some(node) = &call.node {
        command.env("NODENAME", node);
    }
    let mut child = command
        .spawn()
        .unwrap_or_else(|e| panic!("{}: {e}", call.program.display()));
    child
        .stdin
        .take()
        .unwrap()
        .write_all(call.conf.as_bytes())
        .unwrap();
    child
}

fn finish(child: Child, begun: Instant) -> Answer {
    let output = child.wait_with_output().unwrap();
    Answer {
        time: begun.elapsed(),
        succeeded: output.status.success(),
        ended: output.status.code().is_some(),
        stdout: String::from_utf8(output.stdout).unwrap(),
    }
}
