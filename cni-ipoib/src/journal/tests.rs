// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::model::{alone, attachment};
use common::lock::wait_until_awaited;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::thread;
use tempfile::TempDir;

thread_local! {
    /// The number of attachment files that this thread has read.
    static READS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    /// The number of names that this thread has read from directories.
    static NAMES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

pub(super) fn count_read() {
    READS.with(|reads| reads.set(reads.get() + 1));
}

pub(super) fn count_name() {
    NAMES.with(|names| names.set(names.get() + 1));
}

/// The number of names that `work` reads from directories.
pub(crate) fn names_of<T>(work: impl FnOnce() -> T) -> usize {
    let before = NAMES.with(std::cell::Cell::get);
    work();
    NAMES.with(std::cell::Cell::get) - before
}

/// The result of `work`, and the number of attachment files that it reads.
pub(crate) fn reads_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = READS.with(std::cell::Cell::get);
    let done = work();
    (done, READS.with(std::cell::Cell::get) - before)
}

const SHORT: Duration = Duration::from_millis(40);

/// Only a hang takes as long.
const HANG: Duration = Duration::from_secs(300);

fn journal() -> (TempDir, Journal) {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::new(dir.path(), "fabric");
    (dir, journal)
}

pub(super) fn intent() -> Intent {
    Intent {
        netns: "/run/netns/a".into(),
        netns_id: (4, 4_026_532_000),
        pod: None,
        master: "ib0".to_owned(),
        parent: None,
        why: None,
        ipam: Some("ranges".to_owned()),
        device_info: None,
        rdma: None,
        device: None,
        restored: false,
        ipvlan: None,
        macvlan: None,
        made: Vec::new(),
    }
}

fn file(dir: &TempDir) -> PathBuf {
    dir.path().join("attachments/fabric/c1@net1")
}

/// A journal file that a power loss or a person damaged must not keep a container from being removed.
#[test]
fn an_attachment_is_removed_whatever_its_file_contains() {
    let _alone = alone();
    common::mutate::cases("journal", 1500, |case, random| {
        let (dir, journal) = journal();
        let mut entry = journal.open(&attachment("c1")).unwrap();
        entry.begin(intent()).unwrap();
        if random.one_in(2) {
            entry.amend(intent()).unwrap();
        }
        if random.one_in(2) {
            entry.finish().unwrap();
        }
        drop(entry);
        let mut content = fs::read(file(&dir)).unwrap();
        match serde_json::from_slice::<serde_json::Value>(
            content.split(|byte| *byte == b'\n').next().unwrap(),
        ) {
            Ok(mut line) if random.one_in(2) => {
                common::mutate::json(random, &mut line);
                // A line of an earlier release has no sum, so any value of it is used.
                if random.one_in(2)
                    && let Some(line) = line.as_object_mut()
                {
                    line.remove("sum");
                }
                content = format!("{line}\n").into_bytes();
            }
            _ => common::mutate::bytes(random, &mut content),
        }
        fs::write(file(&dir), content).unwrap();
        journal.peek(&attachment("c1"));
        loads(dir.path(), None);
        written(dir.path()).unwrap_or_else(|e| panic!("{case}: {e}"));
        let entry = journal
            .open(&attachment("c1"))
            .unwrap_or_else(|e| panic!("{case}: {e}"));
        entry.remove().unwrap_or_else(|e| panic!("{case}: {e}"));
        assert!(!file(&dir).exists(), "{case}");
    });
}

#[test]
fn an_entry_survives_writing_and_reading() {
    let (_dir, journal) = journal();
    let _alone = alone();
    let mut entry = journal.open(&attachment("c1")).unwrap();
    assert_eq!((&entry.intent, entry.done), (&None, false));
    entry.begin(intent()).unwrap();
    drop(entry);
    let mut entry = journal.open(&attachment("c1")).unwrap();
    assert_eq!((&entry.intent, entry.done), (&Some(intent()), false));
    entry.finish().unwrap();
    drop(entry);
    let entry = journal.open(&attachment("c1")).unwrap();
    assert_eq!((&entry.intent, entry.done), (&Some(intent()), true));
}

#[test]
fn an_entry_is_readable_json_for_root_only() {
    let (dir, journal) = journal();
    let mut entry = journal.open(&attachment("c1")).unwrap();
    entry.begin(intent()).unwrap();
    entry.finish().unwrap();
    let text = fs::read_to_string(file(&dir)).unwrap();
    let line = r#"{"netns":"/run/netns/a","netns_id":[4,4026532000],"master":"ib0","ipam":"ranges","device_info":null"#;
    assert!(text.starts_with(&format!("{line},\"sum\":\"")), "{text}");
    assert!(text.ends_with("\"}\ndone\n"), "{text}");
    assert_eq!(fs::metadata(file(&dir)).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn a_new_intent_replaces_the_old_one() {
    let (dir, journal) = journal();
    let mut entry = journal.open(&attachment("c1")).unwrap();
    entry.begin(intent()).unwrap();
    entry.finish().unwrap();
    let other = Intent {
        master: "ib1".to_owned(),
        ..intent()
    };
    entry.begin(other.clone()).unwrap();
    assert_eq!((&entry.intent, entry.done), (&Some(other), false));
    assert_eq!(fs::read_to_string(file(&dir)).unwrap().lines().count(), 1);
    entry.forget().unwrap();
    assert_eq!(
        (&entry.intent, fs::metadata(file(&dir)).unwrap().len()),
        (&None, 0)
    );
}

#[test]
fn a_foreign_file_is_an_entry_without_intent() {
    let whole = serde_json::to_vec(&intent()).unwrap();
    let half = &whole[..whole.len() / 2];
    for content in [
        &b""[..],
        b"\n",
        half,
        b"hello\ndone\n",
        b"\xff\xfe\x00\xd8",
        b"{}\ndone\n",
        b"null\n",
    ] {
        let _alone = alone();
        let (dir, journal) = journal();
        fs::create_dir_all(file(&dir).parent().unwrap()).unwrap();
        fs::write(file(&dir), content).unwrap();
        assert_eq!(journal.attachments().unwrap(), [attachment("c1")]);
        let mut entry = journal.open(&attachment("c1")).unwrap();
        assert_eq!(entry.intent, None, "{content:?}");
        entry.begin(intent()).unwrap();
        drop(entry);
        let entry = journal.open(&attachment("c1")).unwrap();
        assert_eq!(
            (&entry.intent, entry.done),
            (&Some(intent()), false),
            "{content:?}"
        );
    }
}

/// A person or a fault changed it, or copied it from another attachment.
#[test]
fn an_intent_is_used_only_as_it_was_written_for_this_attachment() {
    let _alone = alone();
    let (dir, journal) = journal();
    journal.open(&attachment("c1")).unwrap().begin(intent()).unwrap();
    let written = fs::read(file(&dir)).unwrap();
    for at in 0..written.len() - 1 {
        let mut changed = written.clone();
        changed[at] ^= 1;
        fs::write(file(&dir), &changed).unwrap();
        let read = journal.peek(&attachment("c1")).filter(|read| *read != intent());
        assert_eq!(read, None, "{}", String::from_utf8_lossy(&changed));
    }
    fs::write(file(&dir), &written).unwrap();
    fs::copy(file(&dir), dir.path().join("attachments/fabric/c2@net1")).unwrap();
    assert_eq!(journal.peek(&attachment("c1")), Some(intent()));
    assert_eq!(journal.peek(&attachment("c2")), None);
}

#[test]
fn a_later_intent_is_used_whatever_the_first_line_contains() {
    let _alone = alone();
    let (dir, journal) = journal();
    let mut entry = journal.open(&attachment("c1")).unwrap();
    entry.begin(intent()).unwrap();
    let first = fs::read(file(&dir)).unwrap().len();
    let later = Intent {
        master: "ib7".to_owned(),
        ..intent()
    };
    entry.amend(later.clone()).unwrap();
    entry.finish().unwrap();
    drop(entry);
    let written = fs::read(file(&dir)).unwrap();
    // The end of the line stays.
    for at in 0..first - 1 {
        let mut changed = written.clone();
        changed[at] ^= 1;
        fs::write(file(&dir), &changed).unwrap();
        let entry = journal.open(&attachment("c1")).unwrap();
        assert_eq!(
            (&entry.intent, entry.done, entry.is_damaged()),
            (&Some(later.clone()), true, false),
            "{}",
            String::from_utf8_lossy(&changed)
        );
    }
}

#[test]
fn a_complete_entry_is_reduced_without_a_moment_in_which_it_has_no_intent() {
    let _alone = alone();
    let (dir, journal) = journal();
    let mut entry = journal.open(&attachment("c1")).unwrap();
    entry.begin(intent()).unwrap();
    entry.finish().unwrap();
    let before = fs::read(file(&dir)).unwrap();
    let part = Intent {
        why: Some("a part".to_owned()),
        ..intent()
    };
    entry.reduce(part.clone()).unwrap();
    drop(entry);
    let written = fs::read(file(&dir)).unwrap();
    assert!(written.starts_with(&before));
    // kill -9 at any byte of the change.
    for end in before.len()..=written.len() {
        fs::write(file(&dir), &written[..end]).unwrap();
        let entry = journal.open(&attachment("c1")).unwrap();
        assert_eq!(
            entry.intent.as_ref().map(|of| &of.master),
            Some(&part.master),
            "{end}"
        );
    }
    let entry = journal.open(&attachment("c1")).unwrap();
    assert_eq!((&entry.intent, entry.done), (&Some(part), true));
}

#[test]
fn a_half_written_last_line_is_not_done() {
    let _alone = alone();
    let (dir, journal) = journal();
    journal.open(&attachment("c1")).unwrap().begin(intent()).unwrap();
    let mut content = fs::read(file(&dir)).unwrap();
    content.extend(b"don");
    fs::write(file(&dir), content).unwrap();
    let entry = journal.open(&attachment("c1")).unwrap();
    assert_eq!((&entry.intent, entry.done), (&Some(intent()), false));
}

#[test]
fn an_entry_of_an_older_release_is_read() {
    let _alone = alone();
    let (dir, journal) = journal();
    fs::create_dir_all(file(&dir).parent().unwrap()).unwrap();
    let line = r#"{"netns":"/run/netns/a","netns_id":[4,4026532000],"master":"ib0","ipam":"ranges"}"#;
    fs::write(file(&dir), format!("{line}\n")).unwrap();
    assert_eq!(journal.open(&attachment("c1")).unwrap().intent, Some(intent()));
}

#[test]
fn a_second_call_fails_as_busy_at_the_time_limit() {
    let _alone = alone();
    let (_dir, journal) = journal();
    let entry = journal.open(&attachment("c1")).unwrap();
    let started = Instant::now();
    let error = journal.open_within(&attachment("c1"), SHORT).unwrap_err();
    let waited = started.elapsed();
    assert!(waited >= SHORT && waited < LOCK_TIMEOUT, "{waited:?}");
    assert!(
        matches!(&error, Error::Busy(of) if *of == attachment("c1")),
        "{error:?}"
    );
    assert!(matches!(journal.idle(&attachment("c1")), Err(Error::Busy(_))));
    assert!(
        journal.open_within(&attachment("c2"), HANG).is_ok(),
        "another attachment is free"
    );
    drop(entry);
    // The thread of the call that failed may get the lock first.
    assert!(journal.open_within(&attachment("c1"), HANG).is_ok());
}

#[test]
fn a_call_waits_for_the_one_before_it() {
    let _alone = alone();
    let (dir, journal) = journal();
    let mut entry = journal.open(&attachment("c1")).unwrap();
    entry.begin(intent()).unwrap();
    let waiting = thread::spawn({
        let journal = journal.clone();
        move || journal.open(&attachment("c1")).unwrap().done
    });
    wait_until_awaited(&file(&dir));
    entry.finish().unwrap();
    drop(entry);
    assert!(waiting.join().unwrap());
}

#[test]
fn a_file_removed_under_a_waiting_call_is_recreated() {
    let _alone = alone();
    let (dir, journal) = journal();
    let mut entry = journal.open(&attachment("c1")).unwrap();
    entry.begin(intent()).unwrap();
    let waiting = thread::spawn({
        let journal = journal.clone();
        move || {
            let mut entry = journal.open(&attachment("c1")).unwrap();
            assert_eq!(entry.intent, None);
            entry
                .begin(Intent {
                    master: "ib1".to_owned(),
                    ..intent()
                })
                .unwrap();
        }
    });
    wait_until_awaited(&file(&dir));
    entry.remove().unwrap();
    waiting.join().unwrap();
    assert!(fs::read_to_string(file(&dir)).unwrap().contains("ib1"));
}

#[test]
fn concurrent_calls_hold_the_entry_one_after_another() {
    let _alone = alone();
    let (dir, journal) = journal();
    let inside = dir.path().join("inside");
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let mut entry = journal.open(&attachment("c1")).unwrap();
                    let mark = OpenOptions::new().write(true).create_new(true).open(&inside);
                    mark.expect("only one call is inside");
                    entry.begin(intent()).unwrap();
                    fs::remove_file(&inside).unwrap();
                    entry.remove().unwrap();
                }
            });
        }
    });
    assert_eq!(journal.attachments().unwrap(), []);
}

#[test]
fn a_missing_entry_is_not_created_by_reading() {
    let (dir, journal) = journal();
    assert!(journal.idle(&attachment("c1")).unwrap().is_none());
    assert_eq!(journal.attachments().unwrap(), []);
    assert!(!dir.path().join("attachments").exists());
}

#[test]
fn removing_twice_is_no_error() {
    let (dir, journal) = journal();
    let entry = journal.open(&attachment("c1")).unwrap();
    fs::remove_file(file(&dir)).unwrap();
    entry.remove().unwrap();
}

#[test]
fn attachments_are_listed_by_network_without_foreign_files() {
    let (dir, journal) = journal();
    for container in ["c2", "c1"] {
        journal.open(&attachment(container)).unwrap();
    }
    Journal::new(dir.path(), "other").open(&attachment("c3")).unwrap();
    let directory = dir.path().join("attachments/fabric");
    for foreign in ["README", "@net1", "c1@", ".c4@net1.swp", "c 5@net1", "c6@a"] {
        fs::write(directory.join(foreign), "x").unwrap();
    }
    let odd: Vec<String> = journal
        .attachments()
        .unwrap()
        .iter()
        .map(|a| format!("{}@{}", a.container_id, a.ifname))
        .collect();
    assert_eq!(odd, ["c1@net1", "c2@net1", "c6@a"]);
    assert!(directory.join("README").exists());
}

#[test]
fn unusual_names_of_networks_and_interfaces_do_not_collide() {
    let (dir, _) = journal();
    let interfaces = ["net1", "net@1", "@", "ü", "2f", "a-b", "..."];
    let networks = ["a", "a.b", "a..b", "A_-.", "0", &"n".repeat(255)];
    for network in networks {
        let journal = Journal::new(dir.path(), network);
        for interface in interfaces {
            let attachment = Attachment {
                ifname: interface.parse().unwrap(),
                ..attachment("c-1.x_")
            };
            journal.open(&attachment).unwrap().begin(intent()).unwrap();
        }
        let mut found: Vec<String> = journal
            .attachments()
            .unwrap()
            .into_iter()
            .map(|a| a.ifname.to_string())
            .collect();
        found.sort();
        let mut expected = interfaces.map(str::to_owned);
        expected.sort();
        assert_eq!(found, expected, "{network}");
    }
    assert_eq!(
        fs::read_dir(dir.path().join("attachments")).unwrap().count(),
        networks.len()
    );
}

fn refused(journal: &Journal) -> (String, std::io::ErrorKind) {
    match journal.open(&attachment("c1")).unwrap_err() {
        error @ Error::Io { .. } => {
            let text = error.to_string();
            let Error::Io { source, .. } = error else {
                unreachable!()
            };
            (text, source.kind())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_error_names_a_directory_that_cannot_be_created() {
    let (dir, _) = journal();
    let network = "n".repeat(256);
    let (text, kind) = refused(&Journal::new(dir.path(), &network));
    assert_eq!(kind, io::ErrorKind::InvalidFilename);
    assert!(
        text.ends_with("; a network's name becomes a directory: it may have 255 characters"),
        "{text}"
    );

    let plain = dir.path().join("plain");
    fs::write(&plain, "").unwrap();
    let (text, _) = refused(&Journal::new(&plain, "fabric"));
    let directory = plain.join("attachments/fabric");
    let expected = format!(
        "cannot create {}; set RDMANET_STATE to a directory that root can write",
        directory.display()
    );
    assert_eq!(text, expected);
}

#[test]
fn causes_have_their_own_remedies() {
    let text = |kind: io::ErrorKind| io_error("write", Path::new("/run/x"), kind.into()).to_string();
    assert_eq!(
        text(io::ErrorKind::StorageFull),
        "cannot write /run/x; free space on its file system"
    );
    assert_eq!(
        text(io::ErrorKind::ReadOnlyFilesystem),
        "cannot write /run/x; mount it writable, or set RDMANET_STATE to a directory that is"
    );
    assert_eq!(
        text(io::ErrorKind::PermissionDenied),
        "cannot write /run/x; the plugin must run as root"
    );
}

/// `/proc` allows no new file, even for root.
#[test]
fn an_unwritable_directory_is_an_error() {
    let (text, _) = refused(&Journal::new(Path::new("/proc/self"), "fabric"));
    assert!(
        text.starts_with("cannot create /proc/self/attachments/fabric; "),
        "{text}"
    );
}

#[test]
fn an_intent_is_read_without_waiting_for_the_lock() {
    let (dir, journal) = journal();
    assert_eq!(journal.peek(&attachment("c1")), None);
    let mut entry = journal.open(&attachment("c1")).unwrap();
    assert_eq!(journal.peek(&attachment("c1")), None, "not written yet");
    entry.begin(intent()).unwrap();
    assert_eq!(journal.peek(&attachment("c1")), Some(intent()));
    fs::write(file(&dir), "{\"netns\":").unwrap();
    assert_eq!(journal.peek(&attachment("c1")), None);
}

#[test]
fn a_call_waits_for_the_program_of_a_killed_call() {
    let _alone = alone();
    let (_dir, journal) = journal();
    let mut entry = journal.open(&attachment("c1")).unwrap();
    entry.begin(intent()).unwrap();
    let mut program = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    entry.notes().unwrap().running(program.id()).unwrap();
    // The kernel does the same when the lock's holder dies.
    drop(entry);
    for _ in 0..2 {
        let busy = journal.open_within(&attachment("c1"), SHORT);
        assert!(matches!(busy, Err(Error::Busy(_))), "{busy:?}");
    }
    assert_eq!(journal.peek(&attachment("c1")), Some(intent()));
    program.kill().unwrap();
    program.wait().unwrap();
    let mut entry = journal.open_now(&attachment("c1")).unwrap();
    assert_eq!((&entry.intent, entry.done), (&Some(intent()), false));
    entry.finish().unwrap();
    drop(entry);
    assert!(
        journal.open_now(&attachment("c1")).unwrap().done,
        "a comment is not part of the record"
    );
}

#[test]
fn a_call_does_not_wait_for_children_of_a_program() {
    let _alone = alone();
    let (_dir, journal) = journal();
    let entry = journal.open(&attachment("c1")).unwrap();
    let mut program = std::process::Command::new("sh")
        .args(["-c", "setsid sleep 60 >/dev/null 2>&1 & echo $!"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    entry.notes().unwrap().running(program.id()).unwrap();
    let mut left = String::new();
    program.stdout.take().unwrap().read_to_string(&mut left).unwrap();
    program.wait().unwrap();
    drop(entry);
    let entry = journal.open_now(&attachment("c1"));
    let left = nix::unistd::Pid::from_raw(left.trim().parse().unwrap());
    nix::sys::signal::kill(left, nix::sys::signal::Signal::SIGKILL).unwrap();
    entry.unwrap();
}
