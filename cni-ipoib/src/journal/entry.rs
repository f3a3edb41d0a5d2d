// SPDX-License-Identifier: Apache-2.0
//! The locked file of one attachment.
//!
//! Invariant: the intent is complete before the first effect, and the markers name at least what it takes.

use super::content::{Content, DONE, line_of};
use super::io_error;
use super::load::Counted;
use super::marker::Markers;
use super::notes::{Notes, Running};
use crate::error::Error;
use crate::intent::{Intent, Made};
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// One attachment's file, locked.
#[derive(Debug)]
pub struct Entry {
    path: PathBuf,
    /// The network, and the name of the file.
    place: PathBuf,
    file: File,
    /// The intent, if it is complete.
    pub intent: Option<Intent>,
    /// Whether ADD is complete.
    pub done: bool,
    /// The last recorded program.
    pub(super) running: Option<Running>,
    /// Whether the file had lines, and none of them was an intent.
    damaged: bool,
    /// The files, beside the journal, that list what the attachment took from the host.
    markers: Markers,
    /// The file, beside the journal, that counts the attachment on its parent.
    counted: Counted,
}

impl Entry {
    /// Reads the locked file at `path`, which is `place` below the directory of attachments.
    pub(super) fn read(
        (path, place): (&Path, &Path),
        mut file: File,
        markers: Markers,
        counted: Counted,
    ) -> Result<Self, Error> {
        #[cfg(test)]
        super::tests::count_read();
        let mut content = Vec::new();
        file.rewind()
            .and_then(|()| file.read_to_end(&mut content))
            .map_err(|e| io_error("read", path, e))?;
        let Content {
            intent,
            done,
            running,
            damaged,
        } = Content::parse(place, &content);
        Ok(Self {
            path: path.to_owned(),
            place: place.to_owned(),
            file,
            intent,
            done,
            running,
            damaged,
            markers,
            counted,
        })
    }

    /// The recorder of programs that this call starts.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn notes(&self) -> Result<Notes, Error> {
        Notes::of(&self.file).map_err(|e| io_error("open", &self.path, e))
    }

    /// Empties the entry and removes its markers, once what an earlier ADD left is removed.
    pub fn forget(&mut self) -> Result<(), Error> {
        self.markers.unset_others(None)?;
        self.clear()
    }

    fn clear(&mut self) -> Result<(), Error> {
        self.counted.unset();
        self.file
            .set_len(0)
            .map_err(|e| io_error("write", &self.path, e))?;
        self.intent = None;
        self.done = false;
        self.damaged = false;
        Ok(())
    }

    /// Writes the intent.
    pub fn begin(&mut self, intent: Intent) -> Result<(), Error> {
        let line = self.line_of(&intent)?;
        self.markers.set(&intent)?;
        // Truncates what a killed process left. The line itself is one write.
        self.clear()?;
        self.counted.set(&intent.master);
        if let Some(parent) = &intent.parent {
            self.counted.set(parent);
        }
        self.write(&line)?;
        self.intent = Some(intent);
        self.markers.unset_others(self.intent.as_ref())
    }

    /// Replaces the intent. The previous line is valid until this one is complete.
    pub fn amend(&mut self, intent: Intent) -> Result<(), Error> {
        let line = self.line_of(&intent)?;
        self.markers.set(&intent)?;
        self.write(&line)?;
        self.intent = Some(intent);
        Ok(())
    }

    /// Replaces the intent by a part of it. The previous line is valid until the new one is complete. A complete
    /// attachment stays complete.
    pub fn reduce(&mut self, part: Intent) -> Result<(), Error> {
        // A killed call may have left a part of a line. One write: an attachment without its second line counts as interrupted.
        let done = if self.done {
            format!("{DONE}\n")
        } else {
            String::new()
        };
        let lines = format!("\n{}{done}", self.line_of(&part)?);
        self.markers.set(&part)?;
        self.write(&lines)?;
        self.intent = Some(part);
        self.markers.unset_others(self.intent.as_ref())
    }

    fn write(&mut self, lines: &str) -> Result<(), Error> {
        let written = self.file.write_all(lines.as_bytes());
        written.map_err(|e| io_error("write", &self.path, e))
    }

    fn line_of(&self, intent: &Intent) -> Result<String, Error> {
        line_of(&self.place, intent).map_err(|e| io_error("write", &self.path, e.into()))
    }

    /// Records that ADD is complete.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.write(&format!("{DONE}\n"))?;
        self.done = true;
        Ok(())
    }

    /// Whether the file has lines, and none of them is an intent.
    pub fn is_damaged(&self) -> bool {
        self.damaged
    }

    /// Removes the entry.
    pub fn remove(self) -> Result<(), Error> {
        if self.intent.is_none() {
            self.log_loss();
        }
        self.counted.unset();
        // Once the file is gone, another ADD of the attachment may set markers of its own.
        self.markers.unset_others(None)?;
        match fs::remove_file(&self.path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io_error("remove", &self.path, e)),
            _ => Ok(()),
        }
    }

    /// Logs what nothing restores, because the file does not describe it. A killed ADD may have left a marker and have taken
    /// nothing.
    fn log_loss(&self) {
        let file = self.path.display();
        if self.damaged {
            tracing::warn!(%file, "the attachment's file is incomplete or damaged; its content is not used");
        }
        for taken in self.markers.present() {
            tracing::warn!(%file, %taken, "ADD may have taken this from the host, and the attachment's file does not describe it; if it is not there under its name, the kernel returns it when the pod's namespace ends: restore its name and settings then, or reboot");
        }
    }
}

/// Records the progress of an ADD.
pub trait Progress {
    /// Records the links, which exist and have no address yet.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn made(&mut self, links: &[Made]) -> Result<(), Error>;

    /// Records that ADD is complete.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn finish(&mut self) -> Result<(), Error>;
}

impl Progress for Entry {
    fn made(&mut self, links: &[Made]) -> Result<(), Error> {
        match self.intent.clone() {
            Some(intent) => self.amend(Intent {
                made: links.to_vec(),
                ..intent
            }),
            None => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<(), Error> {
        Self::finish(self)
    }
}
