// SPDX-License-Identifier: Apache-2.0
//! Network namespaces.
//!
//! Invariant: no existing thread changes its namespace. `setns(2)` moves a thread for good, so [`Netns::run`]
//! starts a thread for it, and a netlink socket stays in the namespace where it was opened.

mod fate;

pub use fate::Fate;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::Mode;
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

/// `NS_GET_NSTYPE` of `include/uapi/linux/nsfs.h`, `_IO(0xb7, 0x3)`.
const NS_GET_NSTYPE: libc::Ioctl = 0xb703;

/// An open network namespace. The kernel keeps it at least as long as this value exists.
#[derive(Debug)]
pub struct Netns {
    file: File,
    id: (u64, u64),
}

/// Why a path cannot be used as a network namespace.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path does not exist: the pod is gone or was never made.
    #[error("network namespace {} does not exist", path.display())]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// The path is not a network namespace.
    #[error("{} is not a network namespace", path.display())]
    NotANamespace {
        /// The path.
        path: PathBuf,
    },
    /// The path cannot be opened or examined.
    #[error("cannot open the network namespace {}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
}

impl Netns {
    /// Opens the namespace at `path`, e.g. the value of `CNI_NETNS`.
    ///
    /// # Errors
    /// [`Error::Missing`] also if a component of the path is not a directory.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let failed = |source: io::Error| Error::Io {
            path: path.to_owned(),
            source,
        };
        // O_PATH opens only a handle: opening a pipe waits for its peer, and opening a device can have side
        // effects. (std's OpenOptions cannot: with musl, libc reads O_PATH as an access mode and drops it.)
        let handle = match open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()) {
            Ok(handle) => handle,
            Err(Errno::ENOENT | Errno::ENOTDIR) => {
                return Err(Error::Missing {
                    path: path.to_owned(),
                });
            }
            Err(e) => return Err(failed(e.into())),
        };
        let system = fstatfs(&handle).map_err(|e| failed(e.into()))?;
        if system.filesystem_type() != NSFS_MAGIC {
            return Err(Error::NotANamespace {
                path: path.to_owned(),
            });
        }
        let file = File::open(format!("/proc/self/fd/{}", handle.as_raw_fd())).map_err(failed)?;
        if !is_network(&file).map_err(failed)? {
            return Err(Error::NotANamespace {
                path: path.to_owned(),
            });
        }
        let meta = file.metadata().map_err(failed)?;
        Ok(Self {
            file,
            id: (meta.dev(), meta.ino()),
        })
    }

    /// Opens the namespace of the calling thread.
    pub fn current() -> Result<Self, Error> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// Device and inode number, which identify a namespace as long as it exists (`namespaces(7)`).
    pub fn id(&self) -> (u64, u64) {
        self.id
    }

    /// Whether both are the same namespace, whatever their paths.
    pub fn is_same(&self, other: &Self) -> bool {
        self.id == other.id
    }

    /// Runs `work` inside the namespace, on a thread that ends with `work`.
    ///
    /// # Errors
    /// No thread could be started, or `setns(2)` was refused (`CAP_SYS_ADMIN` is missing).
    ///
    /// # Panics
    /// Passes on the panic of `work`.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that enters a namespace, on a thread that ends here"
    )]
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        thread::scope(|scope| {
            let thread = thread::Builder::new()
                .name("netns".to_owned())
                .spawn_scoped(scope, || {
                    setns(&self.file, CloneFlags::CLONE_NEWNET)?;
                    Ok(work())
                })?;
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Whether a file of nsfs is a network namespace.
#[expect(unsafe_code, reason = "neither std nor nix can ask a namespace for its kind")]
fn is_network(file: &File) -> io::Result<bool> {
    // SAFETY: NS_GET_NSTYPE takes no argument and writes no memory; the descriptor is open as long as `file` is borrowed.
    let kind = unsafe { libc::ioctl(file.as_raw_fd(), NS_GET_NSTYPE) };
    Ok(Errno::result(kind)? == libc::CLONE_NEWNET)
}

#[cfg(test)]
pub(crate) mod tests;
