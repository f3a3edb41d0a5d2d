// SPDX-License-Identifier: Apache-2.0
use super::streams;
use std::io::stderr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// `Netns::run` does its work on another thread, and that work logs warnings.
#[test]
fn another_thread_logs_while_a_call_has_the_streams() {
    let held = streams();
    let (logged, waits) = mpsc::channel();
    thread::spawn(move || {
        drop(stderr().lock());
        logged.send(()).unwrap();
    });
    waits
        .recv_timeout(Duration::from_secs(60))
        .expect("the other thread waits for stderr");
    drop(held);
}
