// SPDX-License-Identifier: Apache-2.0
//! The process that reads the result of a call.

use super::error::{Code, Error};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{fstat, makedev};
use std::io::stdout;
use std::os::fd::{AsFd, BorrowedFd};

/// Whether a process reads the result of a call.
///
/// A runtime may kill its plugin while a program that the plugin started has not begun its work. Multus starts
/// cni-ipoib, and dies; the runtime sends DEL at once, and DEL finds nothing yet. An ADD without a reader that
/// began its work then would leave an interface that no DEL follows. So ADD asks under the lock that DEL takes too:
/// the kernel closes the streams of a process before the runtime can know that the process has ended.
#[derive(Clone, Copy, Debug)]
pub struct Reader(pub fn() -> bool);

impl Reader {
    /// The reader of this process' stdout.
    pub const OF_STDOUT: Self = Self(|| is_read(stdout().as_fd()));

    /// A reader that is always there, for a call without a process.
    pub const PRESENT: Self = Self(|| true);

    /// No reader.
    pub const ABSENT: Self = Self(|| false);

    /// Fails if nothing reads the result.
    ///
    /// # Errors
    /// [`Code::IO`].
    pub fn require(self) -> Result<(), Error> {
        if (self.0)() {
            return Ok(());
        }
        Err(Error::new(
            Code::IO,
            "nothing reads stdout: the caller has closed it or has ended, so the result of ADD would be lost; nothing was done",
        ))
    }
}

/// Whether what is written to `stdout` can be read.
fn is_read(stdout: BorrowedFd<'_>) -> bool {
    !was_closed(stdout) && !has_no_reader(stdout)
}

/// Whether `stdout` is a pipe or a socket whose other end is closed: pipe(7), poll(2). Unknown counts as read.
fn has_no_reader(stdout: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(stdout, PollFlags::empty())];
    let found = poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0);
    let closed = PollFlags::POLLERR | PollFlags::POLLHUP;
    found && fds[0].revents().is_some_and(|events| events.intersects(closed))
}

/// Whether this process was started without stdout.
///
/// In that case std opens `/dev/null` for reading and writing (library/std/src/sys/pal/unix,
/// `sanitize_standard_fds`). Shells and Go's os/exec open it for writing only.
fn was_closed(stdout: BorrowedFd<'_>) -> bool {
    let is_null = fstat(stdout).is_ok_and(|file| file.st_rdev == makedev(1, 3));
    let flags = fcntl(stdout, FcntlArg::F_GETFL).map(OFlag::from_bits_truncate);
    is_null && flags.is_ok_and(|flags| flags & OFlag::O_ACCMODE == OFlag::O_RDWR)
}

#[cfg(test)]
mod tests;
