// SPDX-License-Identifier: Apache-2.0
//! Random changes to valid inputs: configurations, environments, files of the store and answers of an agent.
//! `docs/design/fuzz.md` has the figures, and the command that does this for hours.
//!
//! Invariant of every case: no panic, no allocation beyond [`MOST_BYTES`], no file outside the data
//! directory, exactly one JSON document for an error, and success of DEL if it is promised.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use common::cni::{Env, Reader, Streams, dispatch};
use common::mutate::{self, Random};
use ipam::RdmaIpam;
use ipam::agent::Client;
use ipam::clock::KernelClock;
use ipam::config::Place;
use ipam::store::{Disk, Identity, LOCK_WAIT, Node, NodeDisk, Store};
use serde_json::{Value, json};
use std::cell::Cell;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// The most that one call may have allocated at any moment, in bytes. The configurations here have some
/// kilobytes, and a file has at most 16 MiB.
const MOST_BYTES: usize = 64 << 20;

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static NOW: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
// SAFETY: memory comes from and returns to the system's allocator; counting only changes thread-local
// numbers.
unsafe impl std::alloc::GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: std::alloc::Layout) -> *mut u8 {
        let now = NOW.get().wrapping_add(layout.size());
        NOW.set(now);
        // The number wraps if this thread frees memory of another.
        if now < usize::MAX / 2 && now > MOST.get() {
            MOST.set(now);
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { std::alloc::System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: std::alloc::Layout) {
        NOW.set(NOW.get().wrapping_sub(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { std::alloc::System.dealloc(memory, layout) }
    }
}

/// The node's file system below a directory; a changed `dataDir` must not lead out of it.
struct Confined(PathBuf);

impl Confined {
    fn inside(&self, path: &Path) -> io::Result<()> {
        let leaves = path.components().any(|part| part == Component::ParentDir);
        if path.starts_with(&self.0) && !leaves {
            return Ok(());
        }
        Err(io::ErrorKind::NotFound.into())
    }
}

impl Disk for Confined {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.inside(path)?;
        NodeDisk.read(path)
    }
    fn identity(&self, path: &Path) -> io::Result<Identity> {
        self.inside(path)?;
        NodeDisk.identity(path)
    }
    fn list(&self, path: &Path, most: usize) -> io::Result<Vec<OsString>> {
        self.inside(path)?;
        NodeDisk.list(path, most)
    }
    fn shared(&self, path: &Path) -> io::Result<Option<String>> {
        self.inside(path)?;
        NodeDisk.shared(path)
    }
    fn create(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.inside(path)?;
        NodeDisk.create(path, content)
    }
    fn overwrite(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.inside(path)?;
        NodeDisk.overwrite(path, content)
    }
    fn append(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.inside(path)?;
        NodeDisk.append(path, content)
    }
    fn link(&self, file: &Path, name: &Path) -> io::Result<()> {
        self.inside(name)?;
        NodeDisk.link(file, name)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inside(to)?;
        NodeDisk.rename(from, to)
    }
    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.inside(path)?;
        NodeDisk.unlink(path)
    }
    fn make_directory(&self, path: &Path) -> io::Result<()> {
        self.inside(path)?;
        NodeDisk.make_directory(path)
    }
    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        self.inside(path)?;
        NodeDisk.remove_tree(path)
    }
    fn sync(&self, path: &Path) -> io::Result<()> {
        self.inside(path)?;
        NodeDisk.sync(path)
    }
}

/// A node with its own directory, and its last call.
struct Fixture {
    dir: TempDir,
    plugin: RdmaIpam<Confined>,
}

const VERBS: [&str; 6] = ["ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION"];

impl Fixture {
    fn new() -> Self {
        // In memory, since each case makes some files.
        let dir = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        let agent = Client {
            socket: dir.path().join("agent.sock"),
            limit: Duration::from_millis(200),
        };
        let plugin = RdmaIpam {
            disk: Confined(dir.path().to_owned()),
            clock: KernelClock,
            lock_wait: Duration::from_secs(5),
            agent,
        };
        Self { dir, plugin }
    }

    fn conf(&self, ipam: &Value) -> Value {
        let mut ipam = ipam.clone();
        ipam["dataDir"] = json!(self.dir.path());
        json!({"cniVersion": "1.1.0", "name": "net", "type": "cni-ipoib", "ipam": ipam,
            "cni.dev/valid-attachments": [{"containerID": "keep", "ifname": "net1"}]})
    }

    /// Serves a call and checks the invariant. Returns whether it succeeded, and the document.
    fn call(&self, case: &str, verb: &str, env: &[(&str, String)], stdin: &[u8]) -> (bool, Value) {
        let mut all: Vec<(&str, String)> = [
            ("CNI_COMMAND", verb),
            ("CNI_CONTAINERID", "c1"),
            ("CNI_IFNAME", "net1"),
            ("CNI_NETNS", "/no/such/netns"),
            ("CNI_PATH", "/opt/cni/bin"),
        ]
        .map(|(name, value)| (name, value.to_owned()))
        .into();
        all.extend_from_slice(env);
        let env: Env = all.into_iter().collect();
        let mut stdout = Vec::new();
        let streams = Streams {
            stdin,
            stdout: &mut stdout,
            stderr: io::sink(),
            reader: Reader::PRESENT,
        };
        NOW.set(0);
        MOST.set(0);
        let status = dispatch(&self.plugin, "rdma-ipam", &env, streams);
        assert!(
            MOST.get() < MOST_BYTES,
            "{case}: {verb} had {} bytes at a time",
            MOST.get()
        );
        if stdout.is_empty() {
            assert_eq!(status, 0, "{case}: {verb} failed without a word");
            return (true, Value::Null);
        }
        let document: Value =
            serde_json::from_slice(&stdout).unwrap_or_else(|e| panic!("{case}: {verb}: {e}"));
        let msg = document["msg"].as_str().unwrap_or_default();
        assert!(!msg.starts_with("bug in"), "{case}: {verb}: {document}");
        assert_eq!(
            status == 0,
            document.get("code").is_none(),
            "{case}: {verb}: {document}"
        );
        (status == 0, document)
    }
}

/// Configurations in every spelling.
fn ipams() -> Vec<Value> {
    vec![
        json!({"type": "rdma-ipam", "subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "gateway": "10.0.0.1", "cooldown": 3}),
        json!({"type": "rdma-ipam", "ranges": [[{"subnet": "10.0.0.0/30", "exclude": ["10.0.0.2"]}, {"subnet": "10.1.0.0/16"}],
            [{"subnet": "fd00::/64", "gateway": "none", "exclude": ["fd00::/80", "fd00::1:0:0:1-fd00::1:0:0:9"]}]],
            "exclude": ["10.1.0.0/24", "10.1.9.9"], "routes": [{"dst": "10.9.0.0/16", "gw": "10.1.0.1", "mtu": 2044}],
            "dns": {"nameservers": ["10.0.0.53"], "search": ["a.b"], "domain": "a", "options": ["ndots:2"]}}),
        json!({"type": "rdma-ipam", "range": "192.168.5.152/27", "range_start": "192.168.5.140", "range_end": "192.168.5.150",
            "exclude": ["192.168.5.151/32"], "perNode": true, "datastore": "kubernetes", "kubernetes": {"kubeconfig": "/x"},
            "network_name": "space", "log_level": "info", "enable_overlapping_ranges": false}),
        json!({"type": "rdma-ipam", "ipRanges": [{"range": "10.0.0.1-10.0.0.9/24"}, {"range": "fd00::/64", "range_start": "fd00::9"}], "perNode": true}),
        json!({"type": "rdma-ipam", "pool": "rail0", "routes": [{"dst": "0.0.0.0/0"}]}),
        json!({"type": "rdma-ipam", "pools": ["rail0", "spare"], "dns": {"search": ["x"]}}),
    ]
}

/// The file of a pool with blocks for this node.
fn pool(name: &str) -> Value {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    json!({"format": 1, "pool": name, "uid": "u", "generation": 1, "node": "n1", "nodeUID": "nu", "bootID": boot.trim(),
        "quarantineSeconds": 600, "cooldownSeconds": 1, "ranges": [{"subnet": "10.7.0.0/24", "exclude": ["10.7.0.9"]},
        {"subnet": "fd07::/64", "gateway": "fd07::1"}], "reserved": ["10.7.0.3"], "namespaces": null, "priority": 1, "fallback": ["spare"],
        "blocks": [{"name": "b", "cidr": "10.7.0.0/28", "epoch": 1, "state": "active"},
        {"name": "c", "cidr": "fd07::/120", "epoch": 2, "state": "active"}],
        "counters": {"size": 9, "used": 1, "free": 2}})
}

fn write_pool(fixture: &Fixture, name: &str) -> PathBuf {
    let directory = fixture.dir.path().join("pools").join(name);
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("pool.json"), pool(name).to_string()).unwrap();
    std::fs::write(directory.join("confirmed"), "2026-01-01T00:00:00Z\n").unwrap();
    // A plugin writes such a file only when a lease of ten seconds ends.
    std::fs::create_dir(directory.join("used")).unwrap();
    std::fs::write(directory.join("used/fd07::-120@2"), "fd07::2\nfd07::3\n").unwrap();
    directory
}

/// A configuration of some spelling, changed, as it comes on stdin.
fn changed_conf(random: &mut Random, fixture: &Fixture) -> Vec<u8> {
    let mut conf = fixture.conf(random.pick(&ipams()));
    if random.one_in(2) {
        conf["runtimeConfig"] = json!({"ips": ["10.0.0.9"], "ipRanges": [[{"subnet": "10.3.0.0/24"}]]});
        conf["args"] = json!({"cni": {"ips": ["10.0.0.9/24"]}});
    }
    if random.one_in(3) {
        conf[common::cni::PROBES] = json!(true);
    }
    for _ in 0..random.below(4) {
        mutate::json(random, &mut conf);
    }
    // Most changed directories lead out of this one, where only the refusal is visible.
    if conf.pointer("/ipam/dataDir").is_some_and(Value::is_string) && !random.one_in(8) {
        conf["ipam"]["dataDir"] = json!(fixture.dir.path());
    }
    let mut stdin = conf.to_string().into_bytes();
    if random.one_in(4) {
        mutate::bytes(random, &mut stdin);
    }
    stdin
}

#[test]
fn configurations_and_environments() {
    let (mut given, mut refused) = (0_u32, 0_u32);
    mutate::cases("configurations", 1500, |case, random| {
        let fixture = Fixture::new();
        if random.one_in(3) {
            write_pool(&fixture, "rail0");
        }
        let stdin = changed_conf(random, &fixture);
        let mut env = vec![(
            "CNI_ARGS",
            random.text("IgnoreUnknown=1;IP=10.0.0.7;K8S_POD_NAMESPACE=a;K8S_POD_NAME=b"),
        )];
        if random.one_in(4) {
            env.push(("CNI_CONTAINERID", random.text("3f1c")));
            env.push(("CNI_IFNAME", random.text("net1")));
        }
        let named = env.iter().skip(1).all(|(_, value)| !value.is_empty());
        let is_object = serde_json::from_slice::<Value>(&stdin).is_ok_and(|conf| conf.is_object());
        for verb in [*random.pick(&VERBS), "ADD", *random.pick(&VERBS), "DEL", "DEL"] {
            let (succeeded, answer) = fixture.call(case, verb, &env, &stdin);
            given += u32::from(verb == "ADD" && succeeded);
            refused += u32::from(verb == "ADD" && !succeeded);
            if verb == "DEL" && is_object && named {
                assert!(succeeded, "{case}: DEL: {answer}");
            }
        }
    });
    // A single seed may lack either.
    assert!(
        given + refused <= 3 || (given > 0 && refused > 0),
        "{given} ADDs succeeded, {refused} did not"
    );
}

/// Every file of the store below `directory`.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

/// A store with two leases, a resting address, and leftovers of a killed call. Returns its directory.
fn used_store(case: &str, random: &mut Random, fixture: &Fixture, ipam: &Value, store: &Path) {
    let conf = fixture.conf(ipam).to_string().into_bytes();
    for id in ["keep", "gone", "c1"] {
        assert!(fixture.call(case, "ADD", &of(id), &conf).0, "{case}");
    }
    assert!(fixture.call(case, "DEL", &of("gone"), &conf).0, "{case}");
    let directories = std::fs::read_dir(store)
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    let boot = directories
        .into_iter()
        .find(|path| path.join("leases").is_dir())
        .unwrap();
    let lease = boot.join("leases/c1@net1");
    for name in ["adding", "removing"] {
        if random.one_in(4) {
            std::fs::copy(&lease, boot.join(name)).unwrap();
        }
    }
    // Only an agent could make the lease that ends with this record of an object.
    for (directory, name) in [
        (boot.join("asking"), "c1@net1"),
        (store.join("releases"), "10.7.0.77"),
    ] {
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::copy(&lease, directory.join(name)).unwrap();
    }
}

/// Reads the records of released objects, and removes them, as the agent does.
fn read_releases(fixture: &Fixture) {
    let node = Node {
        disk: &fixture.plugin.disk,
        clock: &KernelClock,
        lock_wait: LOCK_WAIT,
    };
    let place = Place::of_pool(fixture.dir.path(), &"rail0".parse().unwrap());
    let store = Store::new(&place, &node).unwrap();
    let released = store.releases().unwrap_or_default();
    if let Ok(Some(locked)) = store.enter_existing() {
        for one in &released {
            // The damaged file may be a directory by now, which the agent reports.
            let _ = locked.end_release(one);
        }
    }
}

fn of(id: &str) -> [(&'static str, String); 1] {
    [("CNI_CONTAINERID", id.to_owned())]
}

/// Changes a file below `store` in place, so that hard links stay.
fn damage(random: &mut Random, store: &Path) {
    let file = random.pick(&files(store)).clone();
    let mut content = std::fs::read(&file).unwrap_or_default();
    let line = content.split(|byte| *byte == b'\n').next().unwrap_or_default();
    match serde_json::from_slice::<Value>(line) {
        Ok(mut line) if random.one_in(2) => {
            mutate::json(random, &mut line);
            content = format!("{line}\n").into_bytes();
        }
        _ => mutate::bytes(random, &mut content),
    }
    if std::fs::write(&file, content).is_ok() && random.one_in(8) {
        let name = random.text("10.0.0.1").replace(['/', '\0'], "_");
        // Some of these names do not exist.
        let _ = std::fs::rename(&file, store.join(name));
    }
}

#[test]
fn files_of_the_store() {
    mutate::cases("files", 700, |case, random| {
        let fixture = Fixture::new();
        let directory = write_pool(&fixture, "rail0");
        let (ipam, store) = if random.one_in(2) {
            (json!({"type": "rdma-ipam", "pool": "rail0"}), directory)
        } else {
            let ranges = json!([[{"subnet": "10.0.0.0/24"}], [{"subnet": "fd00::/64"}]]);
            (
                json!({"type": "rdma-ipam", "cooldown": 1, "ranges": ranges}),
                fixture.dir.path().join("net"),
            )
        };
        used_store(case, random, &fixture, &ipam, &store);
        for _ in 0..=random.below(2) {
            damage(random, &store);
        }
        let conf = fixture.conf(&ipam).to_string().into_bytes();
        for verb in ["STATUS", "ADD", "CHECK", "GC"] {
            fixture.call(case, verb, &[], &conf);
        }
        read_releases(&fixture);
        for id in ["c1", "keep", "gone", "c1"] {
            let (succeeded, answer) = fixture.call(case, "DEL", &of(id), &conf);
            assert!(succeeded, "{case}: DEL of {id}: {answer}");
        }
    });
}

/// Answers of an agent. The first is for a node without a block.
fn replies() -> Vec<Value> {
    vec![
        json!({"answer": "local"}),
        json!({"answer": "allocate", "families": [4]}),
        json!({"answer": "addresses", "addresses": ["10.7.0.77", "fd07::77"]}),
        json!({"answer": "done"}),
        json!({"answer": "refused", "code": 110, "msg": "pool rail0: no address is left", "details": "x"}),
    ]
}

/// Three answers, most of them changed.
fn changed_replies(random: &mut Random) -> Vec<Vec<u8>> {
    let changed = |_| {
        let mut reply = random.pick(&replies()).clone();
        if random.one_in(2) {
            mutate::json(random, &mut reply);
        }
        let mut line = format!("{reply}\n").into_bytes();
        if random.one_in(3) {
            mutate::bytes(random, &mut line);
        }
        line
    };
    (0..3).map(changed).collect()
}

/// An agent that gives `answers` in turn, until a connection has no request.
fn agent(listener: UnixListener, answers: Vec<Vec<u8>>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        for (stream, answer) in listener.incoming().zip(answers.iter().cycle()) {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            if BufReader::new(&stream).read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            serde_json::from_str::<ipam::agent::Request>(&line).unwrap();
            // The plugin may have ended by then.
            let _ = stream.write_all(answer);
        }
    })
}

#[test]
fn answers_of_an_agent() {
    mutate::cases("answers", 400, |case, random| {
        let fixture = Fixture::new();
        let directory = write_pool(&fixture, "rail0");
        let mut file = pool("rail0");
        file["allocation"] = json!(random.pick(&["blocks", "agent", "sticky"]));
        file["blocks"] = json!([]);
        std::fs::write(directory.join("pool.json"), file.to_string()).unwrap();
        let socket = fixture.dir.path().join("agent.sock");
        let agent = agent(UnixListener::bind(&socket).unwrap(), changed_replies(random));
        let conf = fixture
            .conf(&json!({"type": "rdma-ipam", "pool": "rail0"}))
            .to_string()
            .into_bytes();
        let env = [("CNI_ARGS", "K8S_POD_NAMESPACE=a;K8S_POD_NAME=b-0".to_owned())];
        for verb in ["ADD", "STATUS"] {
            fixture.call(case, verb, &env, &conf);
        }
        let (succeeded, answer) = fixture.call(case, "DEL", &env, &conf);
        assert!(succeeded, "{case}: DEL: {answer}");
        drop(UnixStream::connect(&socket).unwrap());
        agent.join().unwrap();
    });
}

/// The agent reads what plugins send; a line is at most 64 KiB there.
#[test]
fn requests_of_plugins() {
    let question = json!({"verb": "allocate", "pool": "rail0", "attachment": {"containerID": "c1", "ifname": "net1", "network": "net"},
        "pod": {"namespace": "a", "name": "b", "uid": "c"}, "ips": ["10.7.0.9"], "families": [4, 6], "withinMs": 5000});
    serde_json::from_value::<ipam::agent::Request>(question.clone()).unwrap();
    mutate::cases("questions", 20_000, |_, random| {
        let mut question = question.clone();
        mutate::json(random, &mut question);
        let mut line = question.to_string().into_bytes();
        if random.one_in(2) {
            mutate::bytes(random, &mut line);
        }
        if let Ok(request) = serde_json::from_slice::<ipam::agent::Request>(&line) {
            assert!(request.within() <= ipam::agent::LIMIT);
        }
    });
}
