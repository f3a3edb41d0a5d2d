// SPDX-License-Identifier: Apache-2.0
//! The directory of plugins of a node, locked against other installations.
//!
//! Invariant: a plugin's name changes only by rename(2). Files that a killed installation left are removed by the next one.

use super::{Error, Origin, Plugin};
use common::lock::{LockError, Share, flock};
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long to wait for another installation, which takes less than a second.
const WAIT: Duration = Duration::from_secs(30);

/// How long a new program may fail with `ETXTBSY`: a process that another thread forks at the same time has the file open for
/// writing until it calls exec.
const BUSY: Duration = Duration::from_secs(2);

/// A directory of plugins, locked.
#[derive(Debug)]
pub struct Directory {
    /// The path on the node, as it was given.
    place: PathBuf,
    /// The path as this process sees it.
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
    handle: File,
}

/// A plugin that has been compared with the file in its place.
#[derive(Debug)]
pub(super) enum Fitted {
    /// The same file is already installed.
    Same {
        /// Its name.
        name: &'static str,
        /// Its version.
        version: String,
    },
    /// The plugin was written beside its place.
    Written(Written),
}

/// A plugin that was written and tested, and waits for its rename. If it is dropped before that, its file is removed.
#[derive(Debug)]
pub(super) struct Written {
    name: &'static str,
    version: String,
    before: Origin,
    /// Where a program of another origin is kept.
    aside: Option<PathBuf>,
    new: PathBuf,
    path: PathBuf,
}

impl Directory {
    /// Opens and locks `path` of the node whose file system is mounted at `host`.
    ///
    /// # Errors
    /// [`Error::NoDirectory`], [`Error::Busy`].
    pub fn open(host: &Path, path: &Path) -> Result<Self, Error> {
        let opened = Self::unlocked(host, path).map_err(|source| no_directory(host, path, source))?;
        opened.lock()?;
        Ok(opened)
    }

    /// Opens and locks those of `paths` that exist on the node. Two paths may lead to one directory, which is opened once.
    ///
    /// # Errors
    /// [`Error::NoDirectory`] if none exists, [`Error::Busy`].
    pub(super) fn open_each(host: &Path, paths: &[&Path]) -> Result<Vec<Self>, Error> {
        let mut all: Vec<Self> = Vec::new();
        let mut missing = None;
        for path in paths {
            match Self::unlocked(host, path) {
                Ok(found) if all.iter().any(|other| other.identity == found.identity) => {}
                Ok(found) => {
                    found.lock()?;
                    all.push(found);
                }
                Err(source) if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                    missing.get_or_insert(no_directory(host, path, source));
                }
                Err(source) => return Err(no_directory(host, path, source)),
            }
        }
        match missing {
            Some(missing) if all.is_empty() => Err(missing),
            _ => Ok(all),
        }
    }

    fn unlocked(host: &Path, path: &Path) -> io::Result<Self> {
        let handle = open_inside(host, path, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
        let meta = handle.metadata()?;
        Ok(Self {
            place: path.to_owned(),
            // The path after all symbolic links of the node, such as `data/current` of an older k3s.
            path: path_of(&handle)?,
            identity: (meta.dev(), meta.ino()),
            handle,
        })
    }

    /// Locks the directory itself, so that no lock file is left behind.
    fn lock(&self) -> Result<(), Error> {
        flock(&self.handle, Share::Exclusive, WAIT).map_err(|error| match error {
            LockError::Held { waited, .. } => Error::Busy {
                path: self.place.clone(),
                seconds: waited.as_secs(),
            },
            LockError::Io(source) => Error::Read {
                path: self.place.clone(),
                source,
            },
        })
    }

    /// The path on the node.
    pub(super) fn place(&self) -> &Path {
        &self.place
    }

    /// The path of `name`.
    pub(super) fn entry(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The path under which a foreign program `name` is kept while ours has its name.
    pub(super) fn aside(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.foreign"))
    }

    /// The path at which a new `name` is written. Runtimes look for the names in configurations, and none of these begins with a
    /// dot.
    pub(super) fn new_entry(&self, name: &str) -> PathBuf {
        self.path.join(format!(".{name}.new"))
    }

    /// The path under which `name` waits while uninstall checks once more whether a pod needs it.
    pub(super) fn gone_entry(&self, name: &str) -> PathBuf {
        self.path.join(format!(".{name}.gone"))
    }

    /// Restores the name that a removal took away and did not restore, because it was killed.
    ///
    /// # Errors
    /// [`Error::Rename`], [`Error::Write`].
    pub(super) fn restore_gone(&self, name: &str) -> Result<(), Error> {
        let (gone, path) = (self.gone_entry(name), self.entry(name));
        if !gone.exists() {
            return Ok(());
        }
        // Another version was installed meanwhile.
        if path.symlink_metadata().is_ok() {
            return remove_if_there(&gone);
        }
        rename(&gone, &path)
    }

    /// Writes `plugin` beside its place and tests whether it runs there.
    ///
    /// # Errors
    /// [`Error`]: then no file is left.
    pub(super) fn fit(&self, plugin: &Plugin, replace_foreign: bool) -> Result<Fitted, Error> {
        let path = self.entry(plugin.name);
        let new = self.new_entry(plugin.name);
        remove_if_there(&new)?;
        self.restore_gone(plugin.name)?;
        let (before, content) = Origin::of(&path, plugin.program)?;
        if matches!(before, Origin::Ours { .. }) && content == plugin.content {
            // An earlier file may have been installed by hand, with another mode.
            set_mode(&path)?;
            return Ok(Fitted::Same {
                name: plugin.name,
                version: plugin.version.clone(),
            });
        }
        let aside = match &before {
            Origin::Foreign { what } if plugin.name != plugin.program => {
                return Err(Error::ForeignPeer {
                    path,
                    name: plugin.name,
                    what: what.clone(),
                });
            }
            Origin::Foreign { .. } if replace_foreign && !path.is_dir() => Some(self.aside(plugin.name)),
            Origin::Foreign { what } => {
                return Err(Error::Foreign {
                    path,
                    name: plugin.name.to_owned(),
                    what: what.clone(),
                });
            }
            Origin::Nothing | Origin::Ours { .. } => None,
        };
        let written = Written {
            name: plugin.name,
            version: plugin.version.clone(),
            before,
            aside,
            new,
            path,
        };
        written.write(&plugin.content)?;
        written.try_out()?;
        Ok(Fitted::Written(written))
    }

    /// Syncs the names: after this a power loss does not bring an old one back.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub(super) fn sync(&self) -> Result<(), Error> {
        self.handle.sync_all().map_err(|source| Error::Write {
            path: self.path.clone(),
            source,
        })
    }

    /// Whether the directory contains nothing but `names`.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub(super) fn has_nothing_else(&self, names: &[&str]) -> Result<bool, Error> {
        let failed = |source| Error::Read {
            path: self.path.clone(),
            source,
        };
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if !names.iter().any(|known| name == *known) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Written {
    fn write(&self, content: &[u8]) -> Result<(), Error> {
        let written = || {
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o755)
                .open(&self.new)?;
            file.write_all(content)?;
            // The umask must not change the mode.
            file.set_permissions(Permissions::from_mode(0o755))?;
            file.sync_all()
        };
        written().map_err(|source| Error::Write {
            path: self.new.clone(),
            source,
        })
    }

    /// Tests the program with `VERSION`, which changes nothing and needs nothing.
    fn try_out(&self) -> Result<(), Error> {
        let failed = |why: String| Error::DoesNotRun {
            name: self.name,
            path: self.path.parent().unwrap_or(&self.path).to_owned(),
            why,
        };
        let mut command = Command::new(&self.new);
        command
            .env_clear()
            .env("CNI_COMMAND", "VERSION")
            .stdin(Stdio::null());
        let deadline = Instant::now() + BUSY;
        let output = loop {
            match command.output() {
                Err(e) if e.kind() == ErrorKind::ExecutableFileBusy && Instant::now() < deadline => {
                    sleep(Duration::from_millis(5));
                }
                done => break done.map_err(|e| failed(e.to_string()))?,
            }
        };
        let answer: serde_json::Value =
            serde_json::from_slice(&output.stdout).map_err(|_| failed(format!("{}", output.status)))?;
        if answer.get("supportedVersions").is_none() {
            return Err(failed(format!("it answered {answer}")));
        }
        Ok(())
    }

    /// Renames the program to its name.
    ///
    /// # Errors
    /// [`Error::Rename`].
    pub(super) fn put_in_place(self) -> Result<(), Error> {
        if let Some(aside) = &self.aside {
            // A hard link, so that the first name exists at every moment.
            remove_if_there(aside)?;
            fs::hard_link(&self.path, aside).map_err(|source| Error::Rename {
                from: self.path.clone(),
                to: aside.clone(),
                source,
            })?;
        }
        rename(&self.new, &self.path)
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        // After the rename this finds no file.
        let _ = fs::remove_file(&self.new);
    }
}

impl fmt::Display for Fitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same { name, version } => write!(f, "{name} {version} is there already"),
            Self::Written(Written {
                name,
                version,
                before,
                aside,
                ..
            }) => {
                write!(f, "{name} {version} installed ({before})")?;
                match aside {
                    Some(aside) => write!(f, "; that is kept as {}", aside.display()),
                    None => Ok(()),
                }
            }
        }
    }
}

fn no_directory(host: &Path, path: &Path, source: io::Error) -> Error {
    Error::NoDirectory {
        path: path.to_owned(),
        host: host.to_owned(),
        source,
    }
}

/// The path of the node's `path` for this process, after all symbolic links of the node.
///
/// # Errors
/// There is no such file or directory.
pub(super) fn resolved(host: &Path, path: &Path) -> io::Result<PathBuf> {
    path_of(&open_inside(host, path, OFlag::O_PATH)?)
}

fn path_of(handle: &File) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

/// Opens `path` with `host` as root directory, also for symbolic links.
fn open_inside(host: &Path, path: &Path, flags: OFlag) -> io::Result<File> {
    let host_dir = File::open(host)?;
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT);
    match openat2(&host_dir, path, how) {
        Ok(handle) => Ok(handle.into()),
        // A kernel before 5.6, or a seccomp profile that does not know the call. Then only relative links work.
        Err(Errno::ENOSYS | Errno::EPERM) => {
            let path = super::on_host(host, path);
            if flags.contains(OFlag::O_DIRECTORY) && !path.is_dir() {
                return Err(ErrorKind::NotADirectory.into());
            }
            File::open(path)
        }
        Err(e) => Err(e.into()),
    }
}

pub(super) fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    fs::rename(from, to).map_err(|source| Error::Rename {
        from: from.to_owned(),
        to: to.to_owned(),
        source,
    })
}

pub(super) fn remove_if_there(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != ErrorKind::NotFound => Err(Error::Write {
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

fn set_mode(path: &Path) -> Result<(), Error> {
    let failed = |source| Error::Write {
        path: path.to_owned(),
        source,
    };
    let mode = path.symlink_metadata().map_err(failed)?.permissions().mode();
    if mode & 0o7777 == 0o755 {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(failed)
}
