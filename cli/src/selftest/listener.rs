// SPDX-License-Identifier: Apache-2.0
//! The other side of `--peer`: one pod that responds until stdin has a line or ends.
//!
//! Invariant: no server outlives the listener.

use super::bench::{Bench, Pod};
use super::log::Log;
use super::program::installed;
use super::steps::{attach, serve_bandwidth};
use std::io::{self, Write};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

/// The longest time without a server between two measurements.
const PAUSE: Duration = Duration::from_millis(200);

/// Attaches a pod, prints its address to stderr, and serves it.
pub fn listen(bench: &Bench, log: &mut Log) {
    let Some(attached) = attach(bench, log, "a") else {
        return;
    };
    let served = log.step("the pod answers until Enter is pressed", || {
        announce(attached.address()).map_err(|e| format!("stderr: {e}"))?;
        serve(bench, &attached.pod)
    });
    if let Some(served) = served {
        log.seen(format!("{served} measurements of ib_write_bw"));
    }
    log.step("DEL detaches the pod", || {
        bench.del(&attached.pod)?;
        bench.require_no_link(&attached.pod)
    });
}

fn announce(address: &str) -> io::Result<()> {
    writeln!(
        io::stderr(),
        "rdmanet: listening; run this on the other node: rdmanet selftest --peer {address}\n\
         rdmanet: Enter ends the listener"
    )
}

/// Serves measurements and returns their number.
fn serve(bench: &Bench, pod: &Pod) -> Result<u32, String> {
    let done = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&done);
    thread::spawn(move || {
        // The listener also ends at the end of stdin.
        let _ = io::stdin().read_line(&mut String::new());
        end.store(true, Ordering::Relaxed);
    });
    let rdma = bench.rdma.as_ref().filter(|_| installed("ib_write_bw"));
    let (mut server, mut measured): (Option<Child>, u32) = (None, 0);
    while !done.load(Ordering::Relaxed) {
        if let Some(rdma) = rdma {
            let ended = server
                .as_mut()
                .and_then(|server| server.try_wait().ok().flatten());
            measured += u32::from(ended.is_some_and(|status| status.success()));
            if server.is_none() || ended.is_some() {
                server = serve_bandwidth(bench, rdma, pod)?;
            }
        }
        sleep(PAUSE);
    }
    if let Some(mut server) = server {
        // The server may have ended by itself.
        let _ = server.kill();
        let _ = server.wait();
    }
    Ok(measured)
}
