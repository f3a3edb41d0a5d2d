// SPDX-License-Identifier: Apache-2.0
//! The binary with pools of a cluster: many at once or killed, beside an agent that claims blocks through the
//! library.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod plugin;

use ipam::agent::{Reply, Request, Verb};
use ipam::clock::{Clock, KernelClock};
use ipam::config::Place;
use ipam::pool::PoolFile;
use ipam::store::{LOCK_WAIT, Node, NodeDisk, Store};
use ipnetwork::IpNetwork;
use plugin::{BINARY, Dice, addresses, document};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Addresses per block.
const BLOCK: usize = 16;

fn start(dir: &Path, verb: &str, id: &str) -> Child {
    let conf = json!({"cniVersion": "1.1.0", "name": "ibnet", "ipam": {"type": "rdma-ipam", "pool": "rail0", "dataDir": dir}});
    let mut command = Command::new(BINARY);
    command
        .env(
            "CNI_ARGS",
            "K8S_POD_NAMESPACE=default;K8S_POD_NAME=a;K8S_POD_UID=u",
        )
        .env("RDMANET_AGENT_SOCKET", dir.join("agent.sock"));
    plugin::start(command, verb, id, &conf)
}

fn run(dir: &Path, verb: &str, id: &str) -> Output {
    start(dir, verb, id).wait_with_output().unwrap()
}

fn address(output: &Output) -> String {
    addresses(output).remove(0)
}

/// The address of an ADD that ended with `output`. Repeats the ADD while its time is too short (code 11), as a runtime does: two
/// hundred calls on a busy machine take longer than one call waits.
fn address_soon(dir: &Path, id: &str, mut output: Output) -> String {
    while !output.status.success() && document(&output)["code"] == 11 {
        output = run(dir, "ADD", id);
    }
    address(&output)
}

/// Works on the pool as an agent does.
fn with<T>(dir: &Path, work: impl FnOnce(&Store) -> T) -> T {
    let node = Node {
        disk: &NodeDisk,
        clock: &KernelClock,
        lock_wait: LOCK_WAIT,
    };
    let place = Place::of_pool(dir, &"rail0".parse().unwrap());
    work(&Store::new(&place, &node).unwrap())
}

/// The pool 10.0.0.0/16 with the first `blocks` blocks, of which `leaving` are being drained.
fn write(dir: &Path, blocks: usize, leaving: usize) {
    let block = |i: usize| {
        json!({
            "name": format!("default-4-{i}"), "epoch": 1, "state": if i < leaving { "draining" } else { "active" },
            "cidr": format!("10.0.{}.{}/28", (i + 1) * BLOCK / 256, (i + 1) * BLOCK % 256),
        })
    };
    let pool: PoolFile = serde_json::from_value(json!({
        "format": 1, "pool": "rail0", "uid": "u", "generation": 1, "node": "n1", "nodeUID": "nu",
        "bootID": KernelClock.boot_id().unwrap(), "quarantineSeconds": 600, "cooldownSeconds": 0,
        "ranges": [{"subnet": "10.0.0.0/16"}], "blocks": (0..blocks).map(block).collect::<Vec<_>>(),
    }))
    .unwrap();
    with(dir, |store| store.enter().unwrap().write_pool(&pool).unwrap());
}

/// An agent that claims a block whenever none has a free address, up to `most`.
struct Agent {
    socket: PathBuf,
    blocks: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    fn start(dir: &Path, most: usize) -> Self {
        write(dir, 0, 0);
        let (dir, socket) = (dir.to_owned(), dir.join("agent.sock"));
        let listener = UnixListener::bind(&socket).unwrap();
        let blocks = Arc::new(AtomicUsize::new(0));
        let claimed = Arc::clone(&blocks);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut line = String::new();
                // A killed plugin sends nothing, or half a line.
                let _ = BufReader::new(&stream).read_line(&mut line);
                if line == "end\n" {
                    return;
                }
                let Ok(request) = serde_json::from_str::<Request>(&line) else {
                    continue;
                };
                assert_eq!(request.verb, Verb::Claim);
                let reply = claim(&dir, &claimed, most);
                let _ = writeln!(stream, "{}", serde_json::to_string(&reply).unwrap());
            }
        });
        Self {
            socket,
            blocks,
            thread: Some(thread),
        }
    }
}

/// How many addresses of the blocks `cidrs` are taken.
fn taken(dir: &Path, cidrs: &[IpNetwork]) -> u64 {
    let usage = with(dir, |store| store.enter().unwrap().usage(None, cidrs).unwrap());
    usage.iter().map(|usage| usage.taken).sum()
}

fn claim(dir: &Path, claimed: &AtomicUsize, most: usize) -> Reply {
    let blocks = claimed.load(Ordering::SeqCst);
    let pool = with(dir, |store| store.pool().unwrap().unwrap());
    let active: Vec<_> = pool.active().map(|block| block.cidr).collect();
    if taken(dir, &active) < (blocks * BLOCK) as u64 {
        return Reply::Local;
    }
    if blocks == most {
        return Reply::refused(common::cni::Error::new(common::cni::Code::EXHAUSTED, "exhausted"));
    }
    write(dir, blocks + 1, 0);
    claimed.store(blocks + 1, Ordering::SeqCst);
    Reply::Local
}

impl Drop for Agent {
    fn drop(&mut self) {
        UnixStream::connect(&self.socket)
            .unwrap()
            .write_all(b"end\n")
            .unwrap();
        let ended = self.thread.take().unwrap().join();
        std::fs::remove_file(&self.socket).unwrap();
        assert!(ended.is_ok() || std::thread::panicking(), "the agent has failed");
    }
}

#[test]
fn two_hundred_adds_get_unique_addresses_from_few_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 13);
    let children: Vec<Child> = (0..200)
        .map(|i| start(dir.path(), "ADD", &format!("pod-{i}")))
        .collect();
    let given: BTreeSet<String> = children
        .into_iter()
        .enumerate()
        .map(|(i, child)| {
            let output = child.wait_with_output().unwrap();
            address_soon(dir.path(), &format!("pod-{i}"), output)
        })
        .collect();
    assert_eq!((given.len(), agent.blocks.load(Ordering::SeqCst)), (200, 13));
    for i in 200..208 {
        address(&run(dir.path(), "ADD", &format!("pod-{i}")));
    }
    let error = document(&run(dir.path(), "ADD", "one-more"));
    assert_eq!(error["code"], 110, "{error}");
    drop(agent);
    // Without an agent every call works that needs no new block.
    let again: BTreeSet<String> = (0..200)
        .map(|i| address(&run(dir.path(), "ADD", &format!("pod-{i}"))))
        .collect();
    assert_eq!(again, given);
    let children: Vec<Child> = (0..208)
        .map(|i| start(dir.path(), "DEL", &format!("pod-{i}")))
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    }
    address(&run(dir.path(), "ADD", "later"));
}

#[test]
fn kills_with_an_agent_duplicate_and_lose_no_address() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 2);
    let mut dice = Dice(42);
    for _ in 0..200 {
        let id = format!("pod-{}", dice.below(40));
        let mut child = start(dir.path(), if dice.below(2) == 0 { "ADD" } else { "DEL" }, &id);
        std::thread::sleep(Duration::from_micros(dice.below(4000)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    for i in 0..40 {
        assert!(run(dir.path(), "DEL", &format!("pod-{i}")).status.success());
    }
    let given: BTreeSet<String> = (0..2 * BLOCK)
        .map(|i| address(&run(dir.path(), "ADD", &format!("all-{i}"))))
        .collect();
    assert_eq!(given.len(), 2 * BLOCK);
    assert_eq!(document(&run(dir.path(), "ADD", "one-more"))["code"], 110);
    drop(agent);
}

#[test]
fn a_draining_block_allocates_nothing_while_pods_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 4, 0);
    let mut children: Vec<Child> = (0..20)
        .map(|i| start(dir.path(), "ADD", &format!("pod-{i}")))
        .collect();
    write(dir.path(), 4, 2);
    let leaving: Vec<_> = with(dir.path(), |store| {
        store.pool().unwrap().unwrap().blocks[..2].to_vec()
    });
    let cidrs: Vec<_> = leaving.iter().map(|block| block.cidr).collect();
    let at_the_change = taken(dir.path(), &cidrs);
    children.extend((20..32).map(|i| start(dir.path(), "ADD", &format!("pod-{i}"))));
    for child in children {
        address(&child.wait_with_output().unwrap());
    }
    assert_eq!(
        taken(dir.path(), &cidrs),
        at_the_change,
        "a leaving block allocates nothing more"
    );
}
