// SPDX-License-Identifier: Apache-2.0
//! `CNI_ARGS`: `KEY=value;KEY=value`.

use super::error::{Code, Error};

/// Keys that Kubernetes runtimes always send; every plugin accepts them.
const ALWAYS_KNOWN: [&str; 5] = [
    "IgnoreUnknown",
    "K8S_POD_NAMESPACE",
    "K8S_POD_NAME",
    "K8S_POD_INFRA_CONTAINER_ID",
    "K8S_POD_UID",
];

/// The extra arguments of a call, in the order of `CNI_ARGS`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Args(Vec<(String, String)>);

impl Args {
    /// Reads the text of `CNI_ARGS`.
    ///
    /// # Errors
    /// [`Code::INVALID_ENVIRONMENT`] for a pair without `=`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let pairs = text.split(';').filter(|pair| !pair.is_empty()).map(|pair| {
            pair.split_once('=')
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .ok_or_else(|| {
                    Error::new(
                        Code::INVALID_ENVIRONMENT,
                        format!("CNI_ARGS holds {pair:?}, which is not KEY=value"),
                    )
                })
        });
        Ok(Self(pairs.collect::<Result<_, _>>()?))
    }

    /// The last value given for `key`, unless it is empty.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .rev()
            .find(|(k, _)| k == key)
            .map(|(_, v)| v.as_str())
            .filter(|v| !v.is_empty())
    }

    /// Fails on a key outside `known`, unless the caller sent `IgnoreUnknown=1`
    /// (cni `types/args.go`; Multus and containerd always send it).
    pub fn require_known(&self, known: &[&str]) -> Result<(), Error> {
        let ignore = self
            .get("IgnoreUnknown")
            .is_some_and(|v| v == "1" || v.eq_ignore_ascii_case("true"));
        let unknown = |key: &&str| !known.contains(key) && !ALWAYS_KNOWN.contains(key);
        match self.0.iter().map(|(k, _)| k.as_str()).find(unknown) {
            Some(key) if !ignore => Err(Error::new(
                Code::INVALID_ENVIRONMENT,
                format!("CNI_ARGS holds the unknown key {key:?}; remove it or add IgnoreUnknown=1"),
            )),
            _ => Ok(()),
        }
    }
}
