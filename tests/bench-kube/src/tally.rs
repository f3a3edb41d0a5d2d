// SPDX-License-Identifier: Apache-2.0
//! Counts addresses of two living sandboxes, records of addresses that no living sandbox has, and addresses without a
//! record on a machine that may still run.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The addresses of the sandboxes of one side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The address of each living sandbox.
    living: BTreeMap<String, IpAddr>,
    /// The addresses of sandboxes on lost nodes.
    lost: BTreeSet<IpAddr>,
    /// The leaks that were counted before.
    counted: BTreeSet<IpAddr>,
    duplicates: usize,
}

impl Tally {
    /// A sandbox got an address. It is a duplicate if another living sandbox has the address.
    pub fn start(&mut self, sandbox: &str, address: IpAddr) {
        let mut others = self.living.iter().filter(|(living, _)| *living != sandbox);
        let in_use = others.any(|(_, of)| *of == address);
        self.duplicates += usize::from(in_use);
        self.living.insert(sandbox.to_owned(), address);
        // The address was free again, so the next leak of it is a new one.
        self.counted.remove(&address);
    }

    /// The containers of a sandbox have ended: another pod may get its address.
    pub fn end(&mut self, sandbox: &str) {
        self.living.remove(sandbox);
    }

    /// The node of a sandbox does not answer any more. If its machine is off, a record of its address is a leak. If its
    /// machine runs, its address is still in use. Neither plugin can know which.
    pub fn lose(&mut self, sandbox: &str) {
        self.lost.extend(self.living.remove(sandbox));
    }

    /// The addresses of `recorded` that no living sandbox has, without those of [`Self::count`].
    pub fn leaks(&self, recorded: &BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
        let living: BTreeSet<IpAddr> = self.living.values().copied().collect();
        let unused = recorded.difference(&living);
        unused
            .filter(|address| !self.counted.contains(address))
            .copied()
            .collect()
    }

    /// Counts these leaks never again, unless a sandbox gets the address in between.
    pub fn count(&mut self, leaks: BTreeSet<IpAddr>) {
        self.counted.extend(leaks);
    }

    /// The number of addresses of sandboxes on lost nodes that `recorded` does not contain, so that a pod may get them. After
    /// this call the machines of these nodes are off.
    pub fn take_exposed(&mut self, recorded: &BTreeSet<IpAddr>) -> usize {
        std::mem::take(&mut self.lost).difference(recorded).count()
    }

    /// The number of duplicates since the last call.
    pub fn take_duplicates(&mut self) -> usize {
        std::mem::take(&mut self.duplicates)
    }
}

#[cfg(test)]
mod tests;
