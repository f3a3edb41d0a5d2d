// SPDX-License-Identifier: Apache-2.0
//! Requests to the kernel for policy routing.

use super::{Namespaces, Side};
use common::netlink::{Added, Error, Rule};

/// The rules of the pod's namespace.
pub trait PolicyRouting {
    /// The rules that match by source only.
    fn rules(&mut self) -> Result<Vec<Rule>, Error>;
    /// Adds a rule.
    fn add_rule(&mut self, rule: &Rule) -> Result<Added, Error>;
    /// Deletes a rule. Returns `false` if it does not exist.
    fn delete_rule(&mut self, rule: &Rule) -> Result<bool, Error>;
}

impl PolicyRouting for Namespaces<'_> {
    fn rules(&mut self) -> Result<Vec<Rule>, Error> {
        self.on(Side::Pod)?.rules()
    }

    fn add_rule(&mut self, rule: &Rule) -> Result<Added, Error> {
        self.on(Side::Pod)?.add_rule(rule)
    }

    fn delete_rule(&mut self, rule: &Rule) -> Result<bool, Error> {
        self.on(Side::Pod)?.delete_rule(rule)
    }
}
