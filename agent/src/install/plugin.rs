// SPDX-License-Identifier: Apache-2.0
//! A plugin as a program: its origin and its version.

use super::Error;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// The plugins. They communicate only through CNI, so an old one works with a new one for the moment between two renames.
pub const PLUGINS: [&str; 2] = ["rdma-ipam", "cni-ipoib"];

/// Names of other projects' plugins. If `cni-ipoib` is called by such a name, it reads the configuration of that plugin.
pub const PEERS: [&str; 3] = ["ipoib", "macvlan", "host-device"];

/// The program that is installed under the peers' names.
const PEER_PROGRAM: &str = PLUGINS[1];

/// The text after name and version in the line that each plugin prints about itself. So the text is in the plugin's file.
const MARK: &[u8] = b" (rdmanet): ";

/// Larger than any plugin of ours. A larger file is foreign.
const LARGEST: u64 = 64 << 20;

/// A plugin that is to be installed.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// The name of its file.
    pub name: &'static str,
    /// The name that the program has for itself.
    pub program: &'static str,
    /// Its version.
    pub version: String,
    /// The program.
    pub content: Vec<u8>,
}

/// The origin of the file that has a plugin's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// There is no file.
    Nothing,
    /// rdmanet.
    Ours {
        /// The version.
        version: String,
    },
    /// Another project.
    Foreign {
        /// A description for the administrator.
        what: String,
    },
}

impl Plugin {
    /// Reads `name` from the directory of an image.
    ///
    /// # Errors
    /// [`Error::NoPlugin`].
    pub fn read(dir: &Path, name: &'static str) -> Result<Self, Error> {
        let path = dir.join(name);
        let failed = |why: String| Error::NoPlugin {
            path: path.clone(),
            why,
        };
        let content = fs::read(&path).map_err(|e| failed(e.to_string()))?;
        let version =
            version_of(&content, name).ok_or_else(|| failed(format!("this is not {name} of rdmanet")))?;
        Ok(Self {
            name,
            program: name,
            version,
            content,
        })
    }

    /// The same program under the name of a peer.
    pub(super) fn as_peer(&self, name: &'static str) -> Self {
        Self { name, ..self.clone() }
    }

    /// Whether the program can have the names of peers.
    pub(super) fn serves_peers(&self) -> bool {
        self.program == PEER_PROGRAM
    }
}

/// The peer of this name.
///
/// # Errors
/// A sentence with the known names.
pub(super) fn peer(name: &str) -> Result<&'static str, String> {
    let known = PEERS.into_iter().find(|known| *known == name);
    known.ok_or_else(|| format!("want any of {}", PEERS.join(", ")))
}

/// The program that a file of this name must be to count as ours.
pub(super) fn program_of(name: &'static str) -> &'static str {
    if PEERS.contains(&name) { PEER_PROGRAM } else { name }
}

impl Origin {
    /// The origin of the file at `path`, and its content if it is ours.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn of(path: &Path, name: &str) -> Result<(Self, Vec<u8>), Error> {
        let failed = |source| Error::Read {
            path: path.to_owned(),
            source,
        };
        let foreign = |what: String| Ok((Self::Foreign { what }, Vec::new()));
        let meta = match path.symlink_metadata() {
            Ok(meta) => meta,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok((Self::Nothing, Vec::new())),
            Err(e) => return Err(failed(e)),
        };
        if meta.is_symlink() {
            let to = fs::read_link(path).map_err(failed)?;
            return foreign(format!("a symbolic link to {}", to.display()));
        }
        if !meta.is_file() {
            return foreign("no file".to_owned());
        }
        if meta.len() > LARGEST {
            return foreign(format!("a file of {} bytes", meta.len()));
        }
        let content = fs::read(path).map_err(failed)?;
        match version_of(&content, name) {
            Some(version) => Ok((Self::Ours { version }, content)),
            None => foreign(format!("a file of {} bytes without rdmanet's mark", meta.len())),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => write!(f, "there was none"),
            Self::Ours { version } => write!(f, "was {version}"),
            Self::Foreign { what } => write!(f, "was {what}"),
        }
    }
}

/// The version of `program`; none if it is not the plugin `name`.
fn version_of(program: &[u8], name: &str) -> Option<String> {
    let is_mark = |at: &usize| program[*at..].starts_with(MARK);
    (0..program.len().saturating_sub(MARK.len()))
        .filter(is_mark)
        .find_map(|at| version_before(&program[..at], name))
}

fn version_before(text: &[u8], name: &str) -> Option<String> {
    let start = text.iter().rposition(|byte| *byte == b' ')? + 1;
    let version = str::from_utf8(&text[start..]).ok()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+');
    let named = text[..start - 1].ends_with(name.as_bytes());
    (named && !version.is_empty() && version.len() < 64 && version.chars().all(plain))
        .then(|| version.to_owned())
}
