// SPDX-License-Identifier: Apache-2.0
//! Which block a node tries to claim next.
//!
//! Every node tries the blocks in an order of its own, so nodes that start together rarely try the same one. With a share `a` of
//! the blocks taken, a claim needs 1/(1-a) tries on average. Only if these tries fail, or would cost more, the names of all
//! blocks are listed, page by page.

/// The number of failed tries before the blocks are listed, if a list is cheap.
pub const TRIES: u32 = 8;

/// The maximum number of failed tries before the blocks are listed, even if the list is expensive: a plugin may be waiting.
const MAX_TRIES: u128 = 256;

/// The approximate number of names that cost the API server as much as one try: 23 ms of processor time for 500 names, 12 ms for
/// a CREATE that finds the name taken and the GET after it (`docs/benchmarks.md`).
const NAMES: u128 = 256;

/// The number of blocks that are tried before all are listed. `claimed`: the number of claimed blocks among the pool's `blocks`.
/// `all`: the number of blocks of all pools. These numbers may be old; they affect only the cost.
pub fn tries(blocks: u128, claimed: u128, all: u128) -> u128 {
    let few = u128::from(TRIES);
    let free = blocks.saturating_sub(claimed);
    // On average one of this many blocks is free. Among three times as many, one is free in nineteen of twenty cases.
    let enough = blocks.checked_div(free).map(|one| one.saturating_mul(3));
    let costs_less = |tries: &u128| *tries <= all / NAMES;
    enough
        .filter(costs_less)
        .unwrap_or_default()
        .clamp(few, MAX_TRIES)
}

/// The numbers below `size`, each once, in an order that depends only on `seed`.
///
/// A Feistel network permutes the numbers below the next power of four. A result that is too large is permuted again until it is
/// small enough (cycle walking; Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    size: u128,
    half: u32,
    seed: u64,
}

impl Order {
    /// The order of `seed`.
    pub fn new(size: u128, seed: u64) -> Self {
        let bits = size
            .checked_sub(1)
            .and_then(u128::checked_ilog2)
            .map_or(0, |top| top + 1);
        Self {
            size,
            half: bits.div_ceil(2).max(1),
            seed,
        }
    }

    /// The number at `position`; none if `position` is not below `size`.
    pub fn at(&self, position: u128) -> Option<u128> {
        if position >= self.size {
            return None;
        }
        let mut number = self.permute(position);
        while number >= self.size {
            number = self.permute(number);
        }
        Some(number)
    }

    fn permute(&self, number: u128) -> u128 {
        let mask = u128::MAX >> (128 - self.half);
        let (mut left, mut right) = (number >> self.half, number & mask);
        for round in 0..4_u64 {
            let mixed = mix(self.seed ^ round.wrapping_mul(GOLDEN) ^ mix(fold(right)));
            (left, right) = (right, left ^ (u128::from(mixed) & mask));
        }
        (left << self.half) | right
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of `SplitMix64` (Steele, Lea and Flood, 2014).
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn fold(number: u128) -> u64 {
    let bytes = number.to_le_bytes();
    let half = |range: std::ops::Range<usize>| {
        bytes[range]
            .iter()
            .rev()
            .fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte))
    };
    half(0..8) ^ half(8..16).rotate_left(32)
}

/// The seed of a node's order in a pool. Another `attempt` gives another order, so that a node does not try the same taken blocks
/// each time.
pub fn seed(node_uid: &str, pool: &str, attempt: u64) -> u64 {
    let text = node_uid.bytes().chain([0]).chain(pool.bytes());
    text.fold(attempt.wrapping_mul(GOLDEN), |sum, byte| {
        mix(sum.wrapping_add(u64::from(byte)).wrapping_add(GOLDEN))
    })
}
