// SPDX-License-Identifier: Apache-2.0
//! The parts of a round, and their order.

/// A part of a round. If a plugin waits, the requests of one part may use up the time of the whole round. So the next round
/// begins with the next part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Takes the next steps of each block and updates the file.
    Blocks,
    /// Claims blocks ahead of need.
    Claim,
    /// Frees addresses of pods that are gone.
    Collect,
    /// Reports the use of blocks and the generation of the pool that this node observes.
    Report,
}

impl Part {
    const ALL: [Self; 4] = [Self::Blocks, Self::Claim, Self::Collect, Self::Report];

    /// The next part.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Blocks => Self::Claim,
            Self::Claim => Self::Collect,
            Self::Collect => Self::Report,
            Self::Report => Self::Blocks,
        }
    }

    /// All parts, beginning with this one.
    pub(super) fn and_others(self) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self), |part| Some(part.next())).take(Self::ALL.len())
    }
}

#[cfg(test)]
mod tests;
