// SPDX-License-Identifier: Apache-2.0
mod allocate;
mod early;
mod faults;
mod local;
mod reboot;
mod requests;
mod several;

use crate::agent::{Reply, Request};
use crate::pool::{Counters, PoolFile};
use crate::testing::{Fixture, pool_file};
use common::cni::{Code, Error};
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A pool of 10.0.0.0/24 without gateway, with `blocks` of this node and with counted addresses.
pub(super) fn pool(name: &str, blocks: &[&str]) -> PoolFile {
    PoolFile {
        counters: Counters {
            size: 254,
            used: 100,
            free: 96,
        },
        ..pool_file(name, blocks)
    }
}

/// Writes `pool.json`, as the agent does.
pub(super) fn write(data_dir: &Path, pool: &PoolFile) {
    let dir = data_dir.join("pools").join(pool.pool.as_str());
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("new"), pool.to_bytes().unwrap()).unwrap();
    std::fs::rename(dir.join("new"), dir.join("pool.json")).unwrap();
}

/// A node whose configuration names the pool `rail0`, with the pool file `pool`.
pub(super) fn fixture(pool: &PoolFile) -> Fixture {
    let fixture = Fixture::of_pools(&json!({"pool": "rail0"}));
    write(fixture.data_dir(), pool);
    fixture
}

/// An agent that answers each request with `script`; `None` is no answer. It ends when this value is dropped.
pub(super) struct Agent {
    socket: PathBuf,
    asked: Arc<Mutex<Vec<Request>>>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    pub(super) fn start(
        fixture: &Fixture,
        mut script: impl FnMut(&Request) -> Option<Reply> + Send + 'static,
    ) -> Self {
        let socket = fixture.data_dir().join("agent.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&asked);
        let thread = std::thread::spawn(move || {
            let mut silent = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut line = String::new();
                // A connection without a request ends the agent.
                if BufReader::new(&stream).read_line(&mut line).unwrap() == 0 {
                    return;
                }
                let request: Request = serde_json::from_str(&line).unwrap();
                heard.lock().unwrap().push(request.clone());
                match script(&request) {
                    // The plugin does not wait for the answer to a release.
                    Some(reply) => drop(writeln!(stream, "{}", serde_json::to_string(&reply).unwrap())),
                    None => silent.push(stream),
                }
            }
        });
        Self {
            socket,
            asked,
            thread: Some(thread),
        }
    }

    /// Ends the agent. Returns its requests.
    pub(super) fn end(mut self) -> Vec<Request> {
        self.stop();
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    fn stop(&mut self) {
        if let Some(thread) = self.thread.take() {
            drop(UnixStream::connect(&self.socket).unwrap());
            let ended = thread.join();
            std::fs::remove_file(&self.socket).unwrap();
            assert!(
                ended.is_ok() || std::thread::panicking(),
                "the agent's script has failed"
            );
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop();
    }
}

pub(super) fn refused(code: Code, msg: &str) -> Reply {
    Reply::refused(Error::new(code, msg))
}

/// Asserts that `error` has `code` and contains each of `words`.
pub(super) fn assert_says(error: &Error, code: Code, words: &[&str]) {
    assert_eq!(error.code, code, "{error:?}");
    let text = format!("{} | {}", error.msg, error.details);
    for word in words {
        assert!(text.contains(word), "{text:?} lacks {word:?}");
    }
}
