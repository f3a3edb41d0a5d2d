// SPDX-License-Identifier: Apache-2.0
//! The binary itself: many at once, killed at any moment, on disks with faults.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod plugin;

use plugin::{BINARY, Dice, addresses, addresses_of, document, start};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

fn conf(dir: &Path, ipam: &Value) -> Value {
    let mut ipam = ipam.clone();
    ipam["type"] = json!("rdma-ipam");
    ipam["dataDir"] = json!(dir);
    json!({"cniVersion": "1.1.0", "name": "ibnet", "ipam": ipam})
}

fn run(verb: &str, id: &str, conf: &Value) -> Output {
    start(Command::new(BINARY), verb, id, conf)
        .wait_with_output()
        .unwrap()
}

#[test]
fn a_whereabouts_configuration_works_with_per_node_set() {
    let dir = tempfile::tempdir().unwrap();
    let ipam = json!({
        "datastore": "kubernetes", "kubernetes": {"kubeconfig": "/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig"},
        "range": "192.168.5.152/27", "exclude": ["192.168.5.151/32"],
        "log_file": "/var/log/whereabouts.log", "log_level": "info",
    });
    let mut conf = conf(dir.path(), &ipam);
    let error = document(&run("ADD", "a", &conf));
    assert_eq!(error["code"], 2, "{error}");
    assert!(
        !dir.path().join("ibnet").exists(),
        "a refused call makes no files"
    );
    conf["ipam"]["perNode"] = json!(true);
    for version in ["0.3.1", "1.1.0"] {
        conf["cniVersion"] = json!(version);
        let output = run("ADD", version, &conf);
        assert_eq!(document(&output)["cniVersion"], version, "{output:?}");
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            log.contains("addresses begin at 192.168.5.129, not at 192.168.5.152"),
            "{log:?}"
        );
    }
    let status = run("STATUS", "", &conf);
    assert!(
        status.status.success() && String::from_utf8_lossy(&status.stderr).contains("192.168.5.129"),
        "{status:?}"
    );
    // 30 hosts less the excluded one, of which two are allocated already.
    let rest: BTreeSet<String> = (0..27)
        .flat_map(|i| addresses(&run("ADD", &format!("pod-{i}"), &conf)))
        .collect();
    assert!(rest.len() == 27 && !rest.contains("192.168.5.151/27"), "{rest:?}");
    let error = document(&run("ADD", "one-more", &conf));
    assert_eq!(error["code"], 110, "{error}");
    assert!(
        error["details"]
            .as_str()
            .unwrap()
            .contains("begin at 192.168.5.129"),
        "{error}"
    );
}

/// The addresses that concurrent ADDs got.
fn given_to(children: Vec<Child>) -> BTreeSet<String> {
    let outputs = children
        .into_iter()
        .map(|child| child.wait_with_output().unwrap());
    outputs.flat_map(|output| addresses(&output)).collect()
}

#[test]
fn fifty_concurrent_adds_get_fifty_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let conf = conf(
        dir.path(),
        &json!({"ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "fd00::/64"}]]}),
    );
    let children: Vec<Child> = (0..50)
        .map(|i| start(Command::new(BINARY), "ADD", &format!("pod-{i}"), &conf))
        .collect();
    let given = given_to(children);
    assert_eq!(given.len(), 100, "{given:?}");
    // Half of them are removed while as many others are added.
    let children: Vec<Child> = (0..50)
        .map(|i| {
            let (verb, id) = if i % 2 == 0 { ("DEL", i) } else { ("ADD", 100 + i) };
            start(Command::new(BINARY), verb, &format!("pod-{id}"), &conf)
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let live = (0..50)
        .filter(|i| i % 2 == 1)
        .chain((101..150).filter(|i| i % 2 == 1));
    let given: BTreeSet<String> = live
        .flat_map(|i| addresses(&run("ADD", &format!("pod-{i}"), &conf)))
        .collect();
    assert_eq!(given.len(), 100, "{given:?}");
}

#[test]
fn concurrent_adds_of_networks_that_share_a_range_get_different_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let mut conf = conf(dir.path(), &json!({"range": "10.0.0.0/24", "perNode": true}));
    let children: Vec<Child> = (0..60)
        .map(|i| {
            conf["name"] = json!(format!("net-{}", i % 6));
            start(Command::new(BINARY), "ADD", &format!("pod-{i}"), &conf)
        })
        .collect();
    let given = given_to(children);
    assert_eq!(given.len(), 60, "{given:?}");
}

/// How long one ADD of this build takes here, in microseconds.
fn usual_time(conf: &Value) -> u64 {
    let mut times: Vec<Duration> = (0..11)
        .map(|_| {
            let begin = Instant::now();
            assert!(run("ADD", "timing", conf).status.success());
            assert!(run("DEL", "timing", conf).status.success());
            begin.elapsed() / 2
        })
        .collect();
    times.sort();
    u64::try_from(times[5].as_micros()).unwrap()
}

#[test]
fn three_hundred_kills_duplicate_and_lose_no_address() {
    let dir = tempfile::tempdir().unwrap();
    let conf = conf(
        dir.path(),
        &json!({"subnet": "10.0.0.0/27", "gateway": "none", "cooldown": 0}),
    );
    let mut longest = usual_time(&conf);
    let mut dice = Dice(42);
    let mut live: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut killed = 0;
    let mut round = 0;
    while killed < 300 {
        round += 1;
        assert!(round < 6000, "only {killed} processes were killed at work");
        let id = format!("pod-{}", dice.below(20));
        let verb = if dice.below(2) == 0 { "ADD" } else { "DEL" };
        let mut child = start(Command::new(BINARY), verb, &id, &conf);
        std::thread::sleep(Duration::from_micros(dice.below(longest)));
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        let is_killed = output.status.signal() == Some(9);
        killed += u32::from(is_killed);
        // About half of the processes are killed, whatever else the machine does.
        longest = if is_killed {
            longest + longest / 16
        } else {
            longest - longest / 16
        };
        let answered = output
            .stdout
            .ends_with(b"\n")
            .then(|| addresses_of(&document(&output)));
        if verb == "DEL" {
            assert!(run("DEL", &id, &conf).status.success(), "round {round}");
            live.remove(&id);
            continue;
        }
        let now = addresses(&run("ADD", &id, &conf));
        if let Some(before) = answered.as_ref().or(live.get(&id)) {
            assert_eq!(&now, before, "round {round}: {id} got another address");
        }
        live.insert(id, now);
        let distinct: BTreeSet<&String> = live.values().flatten().collect();
        assert_eq!(distinct.len(), live.len(), "round {round}: {live:?}");
    }
    for (id, added) in &live {
        assert_eq!(
            &addresses(&run("ADD", id, &conf)),
            added,
            "{id} has lost its lease"
        );
    }
    for i in 0..30 - live.len() {
        addresses(&run("ADD", &format!("rest-{i}"), &conf));
    }
    assert_eq!(
        document(&run("ADD", "one-more", &conf))["code"],
        110,
        "an address was lost or allocated twice"
    );
}

/// Runs `script` with a small tmpfs of its own mounted at `$1`; `$2` is the plugin. It must succeed. Returns its output and the
/// documents on its stdout. Without the rights of root it needs
/// user namespaces; where they are forbidden, the test fails and says so.
fn on_small_disk(dir: &Path, script: &str, conf: &Value) -> (Output, Vec<Value>) {
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--mount", "sh", "-euc"]);
    command.arg(format!(
        "mount -t tmpfs -o size=256k,nr_inodes=200 tmpfs \"$1\"\n{script}"
    ));
    command
        .arg("sh")
        .arg(dir)
        .arg(BINARY)
        .env("CONF", conf.to_string());
    let output = start(command, "ADD", "a", conf).wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let answers = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    let answers = answers.map(Result::unwrap).collect();
    (output, answers)
}

#[test]
fn on_a_full_disk_add_fails_with_a_remedy_and_del_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    let conf = conf(dir.path(), &json!({"subnet": "10.0.0.0/24", "gateway": "none"}));
    let script = r#"
        add() { printf '%s' "$CONF" | CNI_CONTAINERID=$1 "$2" || true; }
        add a "$2"
        dd if=/dev/zero of="$1/filler" bs=1k 2>/dev/null || true
        add b "$2"
        printf '%s' "$CONF" | CNI_COMMAND=STATUS "$2" || true
        printf '%s' "$CONF" | CNI_COMMAND=DEL CNI_CONTAINERID=a "$2"
        find "$1/ibnet" -path '*/addresses/*' >&2
        rm "$1/filler"
        add c "$2"
    "#;
    let (output, answers) = on_small_disk(dir.path(), script, &conf);
    let [first, full, status, last] = answers.as_slice() else {
        panic!("{output:?}")
    };
    assert_eq!(first["ips"][0]["address"], "10.0.0.1/24");
    assert_eq!(
        (&full["code"], &status["code"]),
        (&json!(5), &json!(50)),
        "{full} {status}"
    );
    for error in [full, status] {
        assert!(
            error["msg"]
                .as_str()
                .unwrap()
                .contains("free space or inodes on that file system"),
            "{error}"
        );
    }
    assert!(
        !String::from_utf8_lossy(&output.stderr).contains("/addresses/"),
        "DEL left an address: {output:?}"
    );
    assert_eq!(last["ips"][0]["address"], "10.0.0.2/24");
}

#[test]
fn a_read_only_disk_still_answers_a_repeated_add() {
    let dir = tempfile::tempdir().unwrap();
    let conf = conf(dir.path(), &json!({"subnet": "10.0.0.0/24", "gateway": "none"}));
    let script = r#"
        add() { printf '%s' "$CONF" | CNI_CONTAINERID=$1 "$2" || true; }
        add a "$2"
        mount -o remount,bind,ro "$1"
        add a "$2"
        add b "$2"
        printf '%s' "$CONF" | CNI_COMMAND=DEL CNI_CONTAINERID=unknown "$2"
        printf '%s' "$CONF" | CNI_COMMAND=DEL CNI_CONTAINERID=a "$2" || true
    "#;
    let (output, answers) = on_small_disk(dir.path(), script, &conf);
    let [first, again, refused, kept] = answers.as_slice() else {
        panic!("{output:?}")
    };
    assert_eq!(first, again);
    for error in [refused, kept] {
        assert_eq!(error["code"], 5, "{error}");
        assert!(
            error["msg"].as_str().unwrap().contains("remount it writable"),
            "{error}"
        );
    }
}

/// The names and modes of everything below `dir`.
fn modes(dir: &Path) -> BTreeMap<String, u32> {
    use std::os::unix::fs::PermissionsExt;
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(dir).unwrap().display().to_string();
            found.insert(name, meta.permissions().mode() & 0o7777);
            if meta.is_dir() {
                open.push(path);
            }
        }
    }
    found
}

#[test]
fn files_are_open_to_their_owner_alone_whatever_the_umask() {
    for umask in ["000", "022", "777"] {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let conf = conf(&data, &json!({"subnet": "10.0.0.0/24", "gateway": "none"}));
        for (verb, id) in [("ADD", "a"), ("ADD", "b"), ("DEL", "a")] {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("umask {umask}; exec \"$0\""), BINARY]);
            let output = start(command, verb, id, &conf).wait_with_output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        let modes = modes(dir.path());
        assert!(modes.len() > 9, "{modes:?}");
        for (name, mode) in &modes {
            let is_directory = dir.path().join(name).is_dir();
            let want = if is_directory { 0o700 } else { 0o600 };
            assert_eq!(*mode, want, "umask {umask}: {name} has {mode:o}");
        }
    }
}

/// flock(2) needs only the right to read a file, which every user had.
#[test]
fn no_other_user_can_lock_a_store_even_of_an_older_version() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let conf = conf(dir.path(), &json!({"subnet": "10.0.0.0/24"}));
    let lock = dir.path().join("ibnet/lock");
    // With the modes of earlier versions.
    std::fs::create_dir(dir.path().join("ibnet")).unwrap();
    std::fs::write(&lock, "").unwrap();
    for (path, mode) in [(lock.parent().unwrap(), 0o755), (&lock, 0o644)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let taken = || {
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            "flock",
            "--nonblock",
        ]);
        command
            .arg(&lock)
            .arg("true")
            .output()
            .expect("setpriv and flock of util-linux, as root")
    };
    assert!(
        taken().status.success(),
        "the lock of an older build is open: {:?}",
        taken()
    );
    assert!(run("ADD", "a", &conf).status.success());
    assert!(!taken().status.success(), "{:?}", taken());
    assert_eq!(modes(dir.path())["ibnet"], 0o700);
}
