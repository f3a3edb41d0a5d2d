// SPDX-License-Identifier: Apache-2.0
//! The environment of a call, as a value that a test can build by hand.

use super::error::{Code, Error};
use super::id::{Attachment, ContainerId, IfName};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// Environment variables by name.
#[derive(Clone, Debug, Default)]
pub struct Env(BTreeMap<String, OsString>);

impl Env {
    /// The environment of this process.
    pub fn of_process() -> Self {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .collect()
    }

    /// The value of `name`. An empty value counts as unset. A value that is not UTF-8 is refused.
    pub fn get(&self, name: &str) -> Result<Option<&str>, Error> {
        match self.0.get(name) {
            None => Ok(None),
            Some(value) if value.is_empty() => Ok(None),
            Some(value) => value.to_str().map(Some).ok_or_else(|| {
                Error::new(
                    Code::INVALID_ENVIRONMENT,
                    format!("{name} is not UTF-8: {}", value.display()),
                )
            }),
        }
    }

    /// Fails if any of `names` is unset. The error names all of them.
    pub fn require(&self, names: &[&str]) -> Result<(), Error> {
        let mut missing = Vec::new();
        for name in names {
            if self.get(name)?.is_none() {
                missing.push(*name);
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(Error::new(
            Code::INVALID_ENVIRONMENT,
            format!(
                "required environment variables are not set: {}",
                missing.join(", ")
            ),
        ))
    }

    /// The attachment named by `CNI_CONTAINERID` and `CNI_IFNAME`.
    pub fn attachment(&self) -> Result<Attachment, Error> {
        let container_id = self.get("CNI_CONTAINERID")?.unwrap_or_default();
        Ok(Attachment {
            container_id: ContainerId::try_from(container_id.to_owned())
                .map_err(|e| of("CNI_CONTAINERID", e))?,
            ifname: IfName::try_from(self.get("CNI_IFNAME")?.unwrap_or_default().to_owned())
                .map_err(|e| of("CNI_IFNAME", e))?,
        })
    }

    /// The directories of `CNI_PATH`.
    pub fn path(&self) -> Vec<PathBuf> {
        self.0
            .get("CNI_PATH")
            .map(|path| std::env::split_paths(path).collect())
            .unwrap_or_default()
    }
}

/// The same error, prefixed with the variable that holds the value.
fn of(variable: &str, e: Error) -> Error {
    Error {
        msg: format!("{variable}: {}", e.msg),
        ..e
    }
}

impl<K: Into<String>, V: Into<OsString>> FromIterator<(K, V)> for Env {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect())
    }
}
