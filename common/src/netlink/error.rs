// SPDX-License-Identifier: Apache-2.0
use nix::errno::Errno;
use std::io;

/// How many times a list is read before the request fails. The pauses add up to about two seconds: only a
/// node whose links change all the time changes the list during each read.
pub(super) const DUMP_ATTEMPTS: usize = 12;

/// Why a netlink request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket itself failed.
    #[error("netlink socket")]
    Socket(#[from] io::Error),
    /// The namespace for the socket could not be entered.
    #[error("cannot enter the network namespace")]
    Netns(#[source] io::Error),
    /// The kernel refused the request.
    #[error("the kernel refused: {errno}{}", text.as_ref().map(|t| format!(" ({t})")).unwrap_or_default())]
    Kernel {
        /// Its error number.
        errno: Errno,
        /// The kernel's explanation, if the subsystem sends one (`NLMSGERR_ATTR_MSG`).
        text: Option<String>,
    },
    /// The kernel's answer could not be understood.
    #[error("cannot read the kernel's netlink answer: {0}")]
    Decode(String),
    /// The answer is not of the kind that the request asks for.
    #[error("the kernel gave another netlink answer than asked for: {0}")]
    Unexpected(String),
    /// The list kept changing while it was read.
    #[error("the kernel's list changed during each of {DUMP_ATTEMPTS} readings; try again")]
    Interrupted,
}

impl Error {
    /// The kernel's refusal with `errno`, without a text.
    pub fn kernel(errno: Errno) -> Self {
        Self::Kernel { errno, text: None }
    }

    /// The kernel's error number, if the kernel refused the request.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Kernel { errno, .. } => Some(*errno),
            _ => None,
        }
    }

    /// Whether the kernel refused with `errno`.
    pub fn is(&self, errno: Errno) -> bool {
        self.errno() == Some(errno)
    }
}
