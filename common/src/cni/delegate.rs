// SPDX-License-Identifier: Apache-2.0
//! Delegation: a plugin calls another plugin, as the runtime called it (spec § Section 4).
//!
//! Invariant: a delegate gets the configuration unchanged except for the members that its caller adds. It
//! ends before this call returns. It can neither flood nor block its caller.

mod process;

use super::dispatch::Call;
use super::error::{Code, Error};
use super::id::Attachment;
use super::result::CniResult;
use super::version::Version;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A plugin to call, found in `CNI_PATH`.
#[derive(Clone, Debug)]
pub struct Delegate<'c> {
    plugin: String,
    call: &'c Call,
    timeout: Duration,
    started: Option<Started<'c>>,
    added: Map<String, Value>,
}

/// Called with the process id of each process that is started.
#[derive(Clone, Copy)]
struct Started<'c>(&'c dyn Fn(u32) -> io::Result<()>);

impl fmt::Debug for Started<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Started")
    }
}

/// The error document of a delegate (spec § Error).
#[derive(Deserialize)]
struct ErrorDocument {
    code: u32,
    #[serde(default)]
    msg: String,
    #[serde(default)]
    details: String,
}

impl<'c> Delegate<'c> {
    /// A delegate of type `plugin`. It is killed unless it ends within `timeout`.
    ///
    /// # Errors
    /// [`Code::INVALID_CONFIG`] if `plugin` is not a plain file name.
    pub fn new(plugin: &str, call: &'c Call, timeout: Duration) -> Result<Self, Error> {
        if plugin.is_empty() || plugin.contains('/') || plugin == "." || plugin == ".." {
            return Err(Error::new(
                Code::INVALID_CONFIG,
                format!("ipam.type {plugin:?} is not a plugin's name: want the name of a file in CNI_PATH"),
            ));
        }
        Ok(Self {
            plugin: plugin.to_owned(),
            call,
            timeout,
            started: None,
            added: Map::new(),
        })
    }

    /// The same delegate with `key` added to its configuration.
    #[must_use]
    pub fn with(mut self, key: &str, value: Value) -> Self {
        self.added.insert(key.to_owned(), value);
        self
    }

    fn conf(&self) -> Map<String, Value> {
        let mut conf = self.call.conf.object.clone();
        conf.extend(self.added.clone());
        conf
    }

    /// The same delegate, which calls `started` with the id of each process before the process gets its
    /// configuration. If `started` fails, the process is killed and the call fails.
    #[must_use]
    pub fn notifying(self, started: &'c dyn Fn(u32) -> io::Result<()>) -> Self {
        Self {
            started: Some(Started(started)),
            ..self
        }
    }

    /// The plugin's type.
    pub fn plugin(&self) -> &str {
        &self.plugin
    }

    /// ADD.
    ///
    /// # Errors
    /// The delegate's own error, prefixed with its name, or [`Code::DELEGATE`]. A code that has a meaning in the
    /// delegate only becomes [`Code::DELEGATE`], and the message has the code.
    pub fn add(&self, attachment: &Attachment, netns: &Path) -> Result<CniResult, Error> {
        let stdout = self.run("ADD", Some(attachment), Some(netns), None)?;
        let document: Value =
            serde_json::from_slice(&stdout).map_err(|e| self.garbage(&stdout, &e.to_string()))?;
        CniResult::from_json(&document).map_err(|e| self.garbage(&stdout, &e.msg))
    }

    /// DEL.
    pub fn del(&self, attachment: &Attachment, netns: Option<&Path>) -> Result<(), Error> {
        self.run("DEL", Some(attachment), netns, None).map(|_| ())
    }

    /// CHECK, for versions that have it.
    pub fn check(&self, attachment: &Attachment, netns: &Path) -> Result<(), Error> {
        self.run("CHECK", Some(attachment), Some(netns), None).map(|_| ())
    }

    /// GC; `valid` replaces the list of attachments to keep.
    pub fn gc(&self, valid: &[Attachment]) -> Result<(), Error> {
        let mut conf = self.conf();
        conf.insert("cni.dev/valid-attachments".to_owned(), json!(valid));
        self.run("GC", None, None, Some(&Value::Object(conf))).map(|_| ())
    }

    /// STATUS.
    pub fn status(&self) -> Result<(), Error> {
        self.run("STATUS", None, None, None).map(|_| ())
    }

    fn run(
        &self,
        command: &str,
        attachment: Option<&Attachment>,
        netns: Option<&Path>,
        conf: Option<&Value>,
    ) -> Result<Vec<u8>, Error> {
        let program = self.program()?;
        let mut process = std::process::Command::new(&program);
        for stale in ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS"] {
            process.env_remove(stale);
        }
        process.env("CNI_COMMAND", command);
        process.env(
            "CNI_PATH",
            std::env::join_paths(&self.call.path).unwrap_or_default(),
        );
        if let Some(attachment) = attachment {
            process.env("CNI_CONTAINERID", attachment.container_id.as_str());
            process.env("CNI_IFNAME", attachment.ifname.as_str());
            process.env("CNI_NETNS", netns.unwrap_or(Path::new("")));
            process.env("CNI_ARGS", &self.call.args_text);
        }
        let stdin = match conf {
            Some(conf) => conf.to_string(),
            None => Value::Object(self.conf()).to_string(),
        };
        let started = |pid| self.started.map_or(Ok(()), |Started(notify)| notify(pid));
        let output = process::run(process, stdin.as_bytes(), self.timeout, started).map_err(|e| {
            Error::new(
                Code::DELEGATE,
                format!("ipam plugin {}: {command}: {e}", program.display()),
            )
        })?;
        if output.success {
            return Ok(output.stdout);
        }
        Err(self.failure(command, &output))
    }

    /// The plugin's file.
    ///
    /// # Errors
    /// [`Code::DELEGATE`] if no directory of `CNI_PATH` has it.
    pub fn program(&self) -> Result<PathBuf, Error> {
        let candidates = self.call.path.iter().map(|dir| dir.join(&self.plugin));
        candidates.into_iter().find(|file| file.is_file()).ok_or_else(|| {
            let path = self
                .call
                .path
                .iter()
                .map(|p| p.display().to_string())
                .collect::<Vec<_>>()
                .join(":");
            Error::new(
                Code::DELEGATE,
                format!(
                    "ipam plugin {:?} is not in CNI_PATH ({path}); install it there or correct ipam.type",
                    self.plugin
                ),
            )
        })
    }

    fn failure(&self, command: &str, output: &process::Output) -> Error {
        match serde_json::from_slice::<ErrorDocument>(&output.stdout) {
            Ok(failure) => self.error(failure),
            Err(_) => Error::new(
                Code::DELEGATE,
                format!(
                    "ipam plugin {} failed at {command} ({}) without a CNI error",
                    self.plugin, output.status
                ),
            )
            .with_details(excerpt(&output.stdout)),
        }
    }

    /// A plugin of this product marks its errors, so the meaning of its code is known. `skel` of libcni gives each plain
    /// error of a Go plugin the code 999, which in this product is a bug.
    fn error(&self, failure: ErrorDocument) -> Error {
        let code = Code(failure.code);
        let is_known = code.is_of_specification() || failure.details.ends_with(&code.mark());
        let msg = format!("{}: {}", self.plugin, failure.msg);
        let error = if is_known {
            Error::new(code, msg)
        } else {
            Error::new(
                Code::DELEGATE,
                format!("{msg} (code {} of {})", code.0, self.plugin),
            )
        };
        error.with_details(failure.details)
    }

    fn garbage(&self, stdout: &[u8], reason: &str) -> Error {
        Error::new(
            Code::DELEGATE,
            format!(
                "ipam plugin {} answered ADD with something that is no CNI result of {} or older: {reason}",
                self.plugin,
                Version::LATEST
            ),
        )
        .with_details(excerpt(stdout))
    }
}

/// The first 200 characters of `bytes`, for an error's details.
fn excerpt(bytes: &[u8]) -> String {
    format!(
        "stdout: {:?}",
        String::from_utf8_lossy(bytes)
            .chars()
            .take(200)
            .collect::<String>()
    )
}

#[cfg(test)]
mod tests;
