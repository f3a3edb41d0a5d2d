// SPDX-License-Identifier: Apache-2.0
//! The environment of a call, as a value that a test can build by hand.

use super::error::{Code, Error};
use super::id::Attachment;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

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
        Ok(Attachment {
            container_id: self.parse("CNI_CONTAINERID")?,
            ifname: self.parse("CNI_IFNAME")?,
        })
    }

    fn parse<T: FromStr<Err = Error>>(&self, variable: &str) -> Result<T, Error> {
        let text = self.get(variable)?.unwrap_or_default();
        text.parse().map_err(|e: Error| e.within(variable))
    }

    /// The directories of `CNI_PATH`.
    pub fn path(&self) -> Vec<PathBuf> {
        self.0
            .get("CNI_PATH")
            .map(|path| std::env::split_paths(path).collect())
            .unwrap_or_default()
    }
}

impl<K: Into<String>, V: Into<OsString>> FromIterator<(K, V)> for Env {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect())
    }
}
