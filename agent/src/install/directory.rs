// SPDX-License-Identifier: Apache-2.0
//! The directory of plugins of a node, while nobody else installs into it.
//!
//! Holds always: a plugin's name changes hands by rename(2) only; what a killed installation left is gone after the next.

use super::{Error, Origin, Plugin};
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long to wait for another installation, which takes less than a second.
const WAIT: Duration = Duration::from_secs(30);

/// How long what was written may seem to be written still: a program that another thread starts at the same time has the file
/// open until it is another program.
const BUSY: Duration = Duration::from_secs(2);

/// A directory of plugins, locked.
#[derive(Debug)]
pub struct Directory {
    /// As this process reaches it.
    path: PathBuf,
    handle: File,
}

/// A plugin that has been looked into its place.
#[derive(Debug)]
pub(super) enum Fitted {
    /// It is there already, byte by byte.
    Same {
        /// Its name.
        name: &'static str,
        /// Its version.
        version: String,
    },
    /// It lies beside its place.
    Written(Written),
}

/// A plugin that was written, tried, and waits for its name. Dropped before it got it, it is removed.
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
        let failed = |source: io::Error| Error::NoDirectory {
            path: path.to_owned(),
            host: host.to_owned(),
            source,
        };
        let handle = open_inside(host, path).map_err(failed)?;
        // Where the node's links lead, such as `data/current` of an older k3s.
        let real = fs::read_link(format!("/proc/self/fd/{}", handle.as_raw_fd())).map_err(failed)?;
        let opened = Self { path: real, handle };
        opened.lock(path)?;
        Ok(opened)
    }

    /// The lock is the directory's own, so that none is left behind.
    fn lock(&self, shown: &Path) -> Result<(), Error> {
        let deadline = Instant::now() + WAIT;
        loop {
            match self.handle.try_lock() {
                Ok(()) => return Ok(()),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    sleep(Duration::from_millis(100));
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(Error::Busy {
                        path: shown.to_owned(),
                        seconds: WAIT.as_secs(),
                    });
                }
                Err(TryLockError::Error(source)) => {
                    return Err(Error::Read {
                        path: shown.to_owned(),
                        source,
                    });
                }
            }
        }
    }

    /// Where `name` lies.
    pub(super) fn entry(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Where `name` is kept while one of ours has its name.
    pub(super) fn aside(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.foreign"))
    }

    /// Where the next `name` is written. Runtimes look for names that configurations have, and none begins with a dot.
    pub(super) fn new_entry(&self, name: &str) -> PathBuf {
        self.path.join(format!(".{name}.new"))
    }

    /// Where `name` waits while it is looked once more whether a pod needs it.
    pub(super) fn gone_entry(&self, name: &str) -> PathBuf {
        self.path.join(format!(".{name}.gone"))
    }

    /// Writes `plugin` beside its place and sees whether it runs there.
    ///
    /// # Errors
    /// [`Error`]; nothing is left then.
    pub(super) fn fit(&self, plugin: &Plugin, replace_foreign: bool) -> Result<Fitted, Error> {
        let path = self.entry(plugin.name);
        let new = self.new_entry(plugin.name);
        remove_if_there(&new)?;
        remove_if_there(&self.gone_entry(plugin.name))?;
        let (before, content) = Origin::of(&path, plugin.program)?;
        if matches!(before, Origin::Ours { .. }) && content == plugin.content {
            // An earlier one may have been made so by hand.
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

    /// Makes the names last: after this a power loss brings no old one back.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub(super) fn sync(&self) -> Result<(), Error> {
        self.handle.sync_all().map_err(|source| Error::Write {
            path: self.path.clone(),
            source,
        })
    }

    /// Whether nothing but `names` is in it.
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
            // Whatever the umask is.
            file.set_permissions(Permissions::from_mode(0o755))?;
            file.sync_all()
        };
        written().map_err(|source| Error::Write {
            path: self.new.clone(),
            source,
        })
    }

    /// `VERSION` touches nothing and needs nothing.
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

    /// Gives it its name.
    ///
    /// # Errors
    /// [`Error::Rename`].
    pub(super) fn put_in_place(self) -> Result<(), Error> {
        if let Some(aside) = &self.aside {
            // A second name, so that there is no moment without the first.
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
        // Once it has its name this finds nothing.
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

/// Opens a directory whose path begins at `host`, and whose symbolic links do as well.
fn open_inside(host: &Path, path: &Path) -> io::Result<File> {
    let host_dir = File::open(host)?;
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT);
    match openat2(&host_dir, path, how) {
        Ok(handle) => Ok(handle.into()),
        // A kernel before 5.6, or a seccomp profile that does not know the call. There only links that are relative work.
        Err(Errno::ENOSYS | Errno::EPERM) => {
            let dir = super::on_host(host, path);
            if dir.is_dir() {
                File::open(dir)
            } else {
                Err(ErrorKind::NotADirectory.into())
            }
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
