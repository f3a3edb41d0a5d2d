// SPDX-License-Identifier: Apache-2.0
//! The pools of which the API server may not know all addresses that pods of this node have. `/readyz` reports them.
//!
//! Invariant: while a pool has an entry, the agent is not ready. So after a restore of etcd a person knows when nodes may
//! allocate again (docs/operate.md).

use ipam::pool::PoolName;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The problem of each pool; a pool without a problem has no entry.
#[derive(Debug, Default)]
pub(crate) struct Unreconciled(Mutex<BTreeMap<PoolName, String>>);

impl Unreconciled {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PoolName, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the problem of `pool`: a sentence without the name of the pool.
    pub(crate) fn set(&self, pool: &PoolName, problem: Option<String>) {
        match problem {
            Some(problem) => self.lock().insert(pool.clone(), problem),
            None => self.lock().remove(pool),
        };
    }

    /// One sentence for each pool with a problem.
    pub(crate) fn problems(&self) -> Vec<String> {
        let sentence = |(pool, problem): (&PoolName, &String)| format!("pool {pool}: {problem}");
        self.lock().iter().map(sentence).collect()
    }
}

#[cfg(test)]
mod tests;
