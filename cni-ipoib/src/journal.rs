// SPDX-License-Identifier: Apache-2.0
//! One file per attachment, written before the first effect, so that DEL and GC find everything after a kill
//! or a crash.
//!
//! Invariant: a link or an address of an attachment exists only while its file does. One process at a time
//! works on an attachment, since each locks its file. A half-written file is still a file. The next call
//! waits until an IPAM plugin that a killed ADD started has ended ([`Notes`]).
//!
//! The files are on a volatile file system by default. They describe kernel objects, which do not survive a
//! reboot either.

mod content;
mod entry;
mod gate;
mod load;
mod marker;
mod node_lock;
mod notes;

use crate::directories;
use crate::error::Error;
pub use crate::intent::Intent;
use crate::mark::Mark;
use crate::netns::pod_if_there;
use common::cni::{Attachment, IfName};
use common::lock::{LockError, Share, current, flock};
use common::netlink::Link;
use content::Content;
pub use entry::{Entry, Progress};
pub(crate) use gate::Gate;
use load::Counted;
pub use load::Load;
pub(crate) use load::{loads, on_parent};
use marker::Markers;
pub(crate) use marker::{Taken, takers};
pub(crate) use node_lock::NodeLock;
pub use notes::Notes;
use notes::Running;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a call waits for another call on the same attachment, such as an ADD that a runtime gave up on.
const LOCK_TIMEOUT: Duration = Duration::from_secs(20);

/// The pause between two looks at a program that a killed call started.
const POLL: Duration = Duration::from_millis(5);

/// The journal entry of one attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The network.
    pub network: String,
    /// The attachment.
    pub attachment: Attachment,
    /// Its intent.
    pub intent: Intent,
}

/// Network and attachment.
impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.attachment)
    }
}

impl Written {
    /// The mark of its links.
    pub(crate) fn mark(&self) -> Mark {
        Mark::new(&self.network, &self.attachment)
    }

    /// Whether the namespace that ADD used exists. If that cannot be checked, it counts as existing.
    pub fn lives(&self) -> bool {
        let found = pod_if_there(&self.intent.netns, Some(self.intent.netns_id));
        found.map_or(true, |netns| netns.is_some())
    }

    /// Whether it has `link` whole, or its ADD is about to move it.
    pub(crate) fn owns(&self, link: &Link) -> bool {
        let device = self.intent.device.as_ref();
        device.is_some_and(|device| device.hardware.is(link))
    }

    /// Whether `link`, read in the namespace `netns`, is a link of this attachment: recorded, or in creation.
    pub(crate) fn has_in(&self, netns: (u64, u64), link: &Link) -> bool {
        let intent = &self.intent;
        let is_made = intent.netns_id == netns && intent.made.iter().any(|made| made.is(link));
        is_made || self.is_creating(link)
    }

    /// Whether `link` is a child that the ADD of this attachment is creating, and has not recorded yet.
    pub(crate) fn is_creating(&self, link: &Link) -> bool {
        let intent = &self.intent;
        let has_link = intent.device.is_some() || intent.restored || !intent.made.is_empty();
        !has_link && self.mark().is_on(link) && self.lives()
    }
}

/// The journal entries of every attachment but `attachment` to `network`.
pub(crate) fn others(state: &Path, network: &str, attachment: &Attachment) -> Result<Vec<Written>, Error> {
    Ok(Attachments::read(state)?.without(network, attachment).written)
}

/// The journal entries of every network. Takes no locks, so an attachment may be in the middle of ADD or DEL.
pub fn written(state: &Path) -> Result<Vec<Written>, Error> {
    Ok(Attachments::read(state)?.written)
}

/// The attachments of every network.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attachments {
    /// Those with an intent.
    pub(crate) written: Vec<Written>,
    /// The network, and the attachment, of each damaged file.
    damaged: Vec<(String, Attachment)>,
}

impl Attachments {
    /// Reads each file once. Takes no locks, as [`written`].
    pub(crate) fn read(state: &Path) -> Result<Self, Error> {
        let networks = state.join("attachments");
        let mut all = Self::default();
        for network in names(&networks)?.iter().filter_map(|name| name.to_str()) {
            let journal = Journal::new(state, network);
            for attachment in journal.attachments()? {
                let network = network.to_owned();
                match journal.content(&attachment).unwrap_or_default() {
                    Content {
                        intent: Some(intent), ..
                    } => all.written.push(Written {
                        network,
                        attachment,
                        intent,
                    }),
                    Content { damaged: true, .. } => all.damaged.push((network, attachment)),
                    _ => {}
                }
            }
        }
        Ok(all)
    }

    /// All but `attachment` to `network`.
    pub(crate) fn without(mut self, network: &str, attachment: &Attachment) -> Self {
        let is_other = |its: &str, of: &Attachment| its != network || of != attachment;
        self.written.retain(|of| is_other(&of.network, &of.attachment));
        self.damaged.retain(|(its, of)| is_other(its, of));
        self
    }

    /// The attachments with a child of `parent` whose file is damaged, so that it does not name the parent any more.
    pub(crate) fn damaged_on(&self, state: &Path, parent: &str) -> Vec<String> {
        let is_child = |(network, attachment): &&(String, Attachment)| {
            let place = Path::new(network).join(file_name(attachment));
            load::is_counted(state, parent, &place) && !Markers::of(state, &place).has(Taken::Link)
        };
        let children = self.damaged.iter().filter(is_child);
        children
            .map(|(network, attachment)| format!("{network}/{attachment}"))
            .collect()
    }
}

/// The attachments of one network.
#[derive(Clone, Debug)]
pub struct Journal {
    dir: PathBuf,
    state: PathBuf,
}

impl Journal {
    /// The journal of `network` below the state directory.
    pub fn new(state: &Path, network: &str) -> Self {
        Self {
            dir: state.join("attachments").join(network),
            state: state.to_owned(),
        }
    }

    /// Opens and locks the entry of `attachment`; a new one is empty.
    ///
    /// # Errors
    /// [`Error::Busy`] when another process works on it for longer than twenty seconds, [`Error::Io`].
    pub fn open(&self, attachment: &Attachment) -> Result<Entry, Error> {
        self.open_within(attachment, LOCK_TIMEOUT)
    }

    /// As [`Journal::open`], for ADD, which also waits while the IPAM plugin collects for GC: GC would
    /// release the addresses of an attachment that is not in the journal by then.
    ///
    /// # Errors
    /// As [`Journal::open`], and [`Error::Locked`].
    pub fn admit(&self, attachment: &Attachment) -> Result<Entry, Error> {
        self.create()?;
        self.opened(attachment, LOCK_TIMEOUT, || {
            Gate::pass(&self.dir, LOCK_TIMEOUT).map(Some)
        })
    }

    /// Keeps ADDs from beginning until the gate is dropped; running ADDs are in the journal already. `None`
    /// if the directory cannot be created, since no ADD can begin there.
    ///
    /// # Errors
    /// [`Error::Locked`] when another process holds the gate for longer than twenty seconds, [`Error::Io`].
    pub(crate) fn shut(&self) -> Result<Option<Gate>, Error> {
        match self.create() {
            Ok(()) => Gate::shut(&self.dir, LOCK_TIMEOUT).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// As [`Journal::open`], without waiting.
    pub fn open_now(&self, attachment: &Attachment) -> Result<Entry, Error> {
        self.open_within(attachment, Duration::ZERO)
    }

    fn create(&self) -> Result<(), Error> {
        let made = directories::attachments(&self.state).and_then(|_| directories::private(&self.dir));
        made.map_err(|e| io_error("create", &self.dir, e))
    }

    fn open_within(&self, attachment: &Attachment, wait: Duration) -> Result<Entry, Error> {
        self.create()?;
        self.opened(attachment, wait, || Ok(None))
    }

    /// Opens and locks. `pass` is held while the file is created.
    fn opened(
        &self,
        attachment: &Attachment,
        wait: Duration,
        pass: impl Fn() -> Result<Option<Gate>, Error>,
    ) -> Result<Entry, Error> {
        let path = self.path(attachment);
        let deadline = Instant::now() + wait;
        loop {
            let passage = pass()?;
            let file = OpenOptions::new()
                .read(true)
                .append(true)
                .create(true)
                .mode(0o600)
                .open(&path)
                .map_err(|e| io_error("open", &path, e))?;
            drop(passage);
            let left = deadline.saturating_duration_since(Instant::now());
            // The last owner may have removed the file while this call waited.
            let Some(entry) = self.locked(attachment, file, left)? else {
                continue;
            };
            if !entry.running.is_some_and(Running::is_alive) {
                return Ok(entry);
            }
            // The call was killed, and the program it started is still running.
            if Instant::now() >= deadline {
                return Err(Error::Busy(attachment.clone()));
            }
            drop(entry);
            sleep(POLL);
        }
    }

    /// Locks the file of `attachment` within `wait` and reads it. `None` if it is not the attachment's file any more.
    fn locked(&self, attachment: &Attachment, file: File, wait: Duration) -> Result<Option<Entry>, Error> {
        let path = self.path(attachment);
        match flock(&file, Share::Exclusive, wait) {
            Ok(()) => {}
            Err(LockError::Held { .. }) => return Err(Error::Busy(attachment.clone())),
            Err(LockError::Io(e)) => return Err(io_error("lock", &path, e)),
        }
        match current(&file, &path) {
            Ok(Some(_)) => self.read(&path, file).map(Some),
            _ => Ok(None),
        }
    }

    /// Reads the file at `path`, which is locked.
    fn read(&self, path: &Path, file: File) -> Result<Entry, Error> {
        let place = self.place(path);
        let markers = Markers::of(&self.state, place);
        let counted = Counted::of(&self.state, place);
        Entry::read((path, place), file, markers, counted)
    }

    /// The file `path` below the directory of attachments.
    fn place<'p>(&self, path: &'p Path) -> &'p Path {
        path.strip_prefix(self.state.join("attachments")).unwrap_or(path)
    }

    /// Opens and locks the entry of `attachment` if it exists, without waiting. Creates none: its DEL may be removing it.
    ///
    /// # Errors
    /// [`Error::Busy`] if another process works on it now, [`Error::Io`].
    pub fn idle(&self, attachment: &Attachment) -> Result<Option<Entry>, Error> {
        let path = self.path(attachment);
        let file = match OpenOptions::new().read(true).append(true).open(&path) {
            Err(e) if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&e.kind()) => {
                return Ok(None);
            }
            opened => opened.map_err(|e| io_error("open", &path, e))?,
        };
        let entry = self.locked(attachment, file, Duration::ZERO)?;
        match entry {
            // The call was killed, and the program it started is still running.
            Some(entry) if entry.running.is_some_and(Running::is_alive) => {
                Err(Error::Busy(attachment.clone()))
            }
            entry => Ok(entry),
        }
    }

    /// The intent of `attachment`, without waiting; `None` if there is no complete one.
    pub fn peek(&self, attachment: &Attachment) -> Option<Intent> {
        self.content(attachment)?.intent
    }

    fn content(&self, attachment: &Attachment) -> Option<Content> {
        #[cfg(test)]
        tests::count_read();
        let path = self.path(attachment);
        Some(Content::parse(self.place(&path), &fs::read(&path).ok()?))
    }

    /// The attachments that have an entry.
    pub fn attachments(&self) -> Result<Vec<Attachment>, Error> {
        let mut found = Vec::new();
        for name in names(&self.dir)? {
            match name.to_str().and_then(attachment_of) {
                Some(attachment) => found.push(attachment),
                None => {
                    tracing::warn!(dir = %self.dir.display(), ?name, "file in the journal is not an attachment's; ignored");
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// Corrects the [`loads`], once a release has removed attachments that does not keep them.
    pub(crate) fn forget_removed(&self) {
        if let Some(network) = self.dir.file_name() {
            load::forget_removed(&self.state, Path::new(network), &self.dir);
        }
    }

    fn path(&self, attachment: &Attachment) -> PathBuf {
        self.dir.join(file_name(attachment))
    }
}

/// The name of the attachment's file. A container id cannot contain `@`, so the name is unambiguous.
fn file_name(attachment: &Attachment) -> String {
    format!("{}@{}", attachment.container_id, attachment.ifname)
}

/// The names in a directory, sorted; empty if it does not exist.
fn names(dir: &Path) -> Result<Vec<OsString>, Error> {
    let mut names = each_name(dir).collect::<Result<Vec<_>, Error>>()?;
    names.sort();
    Ok(names)
}

/// The names in a directory, in the order of the file system; none if it does not exist. A caller that needs only the first
/// ones does not wait for the others.
fn each_name(dir: &Path) -> impl Iterator<Item = Result<OsString, Error>> + use<> {
    let dir = dir.to_owned();
    let (files, failure) = match fs::read_dir(&dir) {
        Ok(files) => (Some(files), None),
        Err(e) if e.kind() == io::ErrorKind::NotFound => (None, None),
        Err(e) => (None, Some(Err(io_error("list", &dir, e)))),
    };
    let name = move |file: io::Result<fs::DirEntry>| {
        #[cfg(test)]
        tests::count_name();
        Ok(file.map_err(|e| io_error("list", &dir, e))?.file_name())
    };
    failure.into_iter().chain(files.into_iter().flatten().map(name))
}

/// The journal entries of the attachments that have a file `NETWORK/CONTAINER@IFNAME` below `root`, in the order of the
/// file system. Each step of the iterator reads one file.
fn named_below<'s>(
    state: &'s Path,
    root: &Path,
) -> Result<impl Iterator<Item = Result<Written, Error>> + use<'s>, Error> {
    let root = root.to_owned();
    let networks = names(&root)?
        .into_iter()
        .filter_map(|name| name.into_string().ok());
    Ok(networks.flat_map(move |network| {
        each_name(&root.join(&network)).filter_map(move |name| match name {
            Ok(name) => Some(Ok(written_of(state, &network, attachment_of(name.to_str()?)?)?)),
            Err(e) => Some(Err(e)),
        })
    }))
}

/// The journal entry of `attachment`, if it has an intent.
fn written_of(state: &Path, network: &str, attachment: Attachment) -> Option<Written> {
    let intent = Journal::new(state, network).peek(&attachment)?;
    Some(Written {
        network: network.to_owned(),
        attachment,
        intent,
    })
}

/// Creates the empty file at `place` below `root`, with its directories.
fn make_empty(root: &Path, place: &Path) -> Result<(), Error> {
    let file = root.join(place);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let created = match options.open(&file) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            make_directories(root, place).and_then(|()| options.open(&file))
        }
        other => other,
    };
    created.map(drop).map_err(|e| io_error("write", &file, e))
}

/// Creates `root` and the directories of `place` below it, for root alone.
fn make_directories(root: &Path, place: &Path) -> io::Result<()> {
    let mut directory = root.to_owned();
    directories::private(&directory)?;
    for part in place.parent().into_iter().flat_map(Path::components) {
        directory.push(part);
        directories::private(&directory)?;
    }
    Ok(())
}

fn attachment_of(file: &str) -> Option<Attachment> {
    let (container_id, ifname) = file.split_once('@')?;
    let ifname: IfName = ifname.parse().ok()?;
    Some(Attachment {
        container_id: container_id.parse().ok()?,
        ifname,
    })
}

fn io_error(what: &'static str, path: &Path, source: io::Error) -> Error {
    let remedy = match source.kind() {
        io::ErrorKind::StorageFull => "free space on its file system",
        io::ErrorKind::ReadOnlyFilesystem => "mount it writable, or set RDMANET_STATE to a directory that is",
        io::ErrorKind::PermissionDenied => "the plugin must run as root",
        io::ErrorKind::InvalidFilename => "a network's name becomes a directory: it may have 255 characters",
        _ => "set RDMANET_STATE to a directory that root can write",
    };
    Error::Io {
        what,
        path: path.to_owned(),
        remedy,
        source,
    }
}

#[cfg(test)]
pub(crate) mod tests;
