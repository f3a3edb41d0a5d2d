// SPDX-License-Identifier: Apache-2.0
//! The errors that end a run. Each message contains the remedy.

use std::io;
use std::path::PathBuf;

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// The cause of the end of a run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("not root: namespaces and links can only be made as root; run it with sudo")]
    NotRoot,
    #[error("{program} is missing ({option} names the directory); {remedy}")]
    Missing {
        program: PathBuf,
        option: &'static str,
        remedy: &'static str,
    },
    #[error("{context}: {source}")]
    Io { context: String, source: io::Error },
    #[error("{call} failed with {status}\nstdin:  {stdin}\nstdout: {stdout}\nstderr: {stderr}")]
    CallFailed {
        call: String,
        status: String,
        stdin: String,
        stdout: String,
        stderr: String,
    },
    #[error("{call} answered, but {problem}\nstdout: {stdout}")]
    WrongAnswer {
        call: String,
        problem: String,
        stdout: String,
    },
    #[error("{program} ran for more than {seconds} s and was ended")]
    TimeLimit { program: PathBuf, seconds: u32 },
    #[error("interrupted; nothing is left behind")]
    Interrupted,
}

/// Adds the failed operation to an error of the operating system.
pub(crate) trait IoContext<T> {
    /// Wraps the error with the text that `what` returns.
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> IoContext<T> for std::result::Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::Io {
            context: what(),
            source: error.into(),
        })
    }
}
