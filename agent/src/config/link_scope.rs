// SPDX-License-Identifier: Apache-2.0
//! Which links the condition is about.

use common::netlink::Link;
use glob::Pattern;
use std::fmt;
use std::str::FromStr;

/// Which links the condition is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkScope {
    /// Links that carry RDMA and have had carrier on this node before, unless an administrator has set them down.
    Rdma,
    /// Links whose names match, of any kind.
    Named(Vec<Pattern>),
    /// No link: there is no condition.
    Nothing,
}

/// Why a text cannot be parsed as a [`LinkScope`].
#[derive(Debug, thiserror::Error)]
pub enum LinkScopeError {
    /// A name is not a valid pattern.
    #[error("{name:?} is no name or pattern of links such as ib* or bond[01]: {why}")]
    Pattern {
        /// The name as written.
        name: String,
        /// What is wrong with it.
        why: String,
    },
}

impl LinkScope {
    /// Whether the scope has a pattern for the name or for an altname of the link.
    pub fn names(&self, link: &Link) -> bool {
        let Self::Named(patterns) = self else {
            return false;
        };
        let mut names = std::iter::once(&link.name).chain(&link.altnames);
        names.any(|name| patterns.iter().any(|pattern| pattern.matches(name)))
    }
}

impl FromStr for LinkScope {
    type Err = LinkScopeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let pattern = |name: &str| {
            let wrong = |why: String| LinkScopeError::Pattern {
                name: name.to_owned(),
                why,
            };
            // The kernel has no such names (dev_valid_name of net/core/dev.c).
            if name.is_empty() || name.contains(['/', ':', ' ']) {
                return Err(wrong("a name is one word without / and :".to_owned()));
            }
            Pattern::new(name).map_err(|e| wrong(e.to_string()))
        };
        match text.trim() {
            "rdma" => Ok(Self::Rdma),
            "none" => Ok(Self::Nothing),
            names => names
                .split(',')
                .map(|name| pattern(name.trim()))
                .collect::<Result<_, _>>()
                .map(Self::Named),
        }
    }
}

impl fmt::Display for LinkScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rdma => f.write_str("rdma"),
            Self::Nothing => f.write_str("none"),
            Self::Named(patterns) => {
                let names: Vec<&str> = patterns.iter().map(Pattern::as_str).collect();
                f.write_str(&names.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests;
