// SPDX-License-Identifier: Apache-2.0
//! Counts the operations of a run.

/// The operations on a machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) adds: u64,
    pub(crate) refused: u64,
    pub(crate) kept: u64,
    pub(crate) probed: u64,
    pub(crate) killed: u64,
    pub(crate) dels: u64,
    pub(crate) forgotten: u64,
    pub(crate) agents_killed: u64,
    pub(crate) cuts: u64,
    pub(crate) deaths: u64,
    pub(crate) removals: u64,
}

impl std::ops::Add for Tally {
    type Output = Self;

    fn add(self, o: Self) -> Self {
        Self {
            adds: self.adds + o.adds,
            refused: self.refused + o.refused,
            kept: self.kept + o.kept,
            probed: self.probed + o.probed,
            killed: self.killed + o.killed,
            dels: self.dels + o.dels,
            forgotten: self.forgotten + o.forgotten,
            agents_killed: self.agents_killed + o.agents_killed,
            cuts: self.cuts + o.cuts,
            deaths: self.deaths + o.deaths,
            removals: self.removals + o.removals,
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} pods with addresses, {} of them replicas, {} addresses to probe, {} ADDs refused, {} killed, {} DELs, {} forgotten; {} agents killed, {} machines cut off, {} dead, {} of them removed from the cluster",
            self.adds,
            self.kept,
            self.probed,
            self.refused,
            self.killed,
            self.dels,
            self.forgotten,
            self.agents_killed,
            self.cuts,
            self.deaths,
            self.removals
        )
    }
}
