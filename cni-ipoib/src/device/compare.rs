// SPDX-License-Identifier: Apache-2.0
//! Compares a whole link in the pod with the journal.

use crate::intent::Snapshot;
use common::netlink::Link;

/// Adds the differences between `link` and the link `was`, which the journal has.
pub(crate) fn compare(was: Option<&Snapshot>, link: &Link, findings: &mut Vec<String>) {
    let Some(was) = was else {
        findings.push("the journal has no record of it, so DEL could not restore it".to_owned());
        return;
    };
    if !was.hardware.is(link) {
        findings.push(format!("it is not {} of the host", was.name));
    }
    if !link.up {
        findings.push("it is down".to_owned());
    }
}

#[cfg(test)]
mod tests;
