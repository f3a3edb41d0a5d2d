// SPDX-License-Identifier: Apache-2.0
//! Which block a node tries to claim next.
//!
//! Every node goes through the blocks in an order of its own, so that nodes that start together rarely meet: with a share
//! `a` of the blocks taken, a claim needs 1/(1-a) tries. Only when tries have missed, or would cost more, are the names of all
//! blocks read, page by page.

/// Misses before the blocks are listed, where a list costs little.
pub const TRIES: u32 = 8;

/// Misses before the blocks are listed, however much that costs: a plugin may be waiting.
const MOST: u128 = 256;

/// Names that may be read for what one try costs the API server, about: 23 ms of processor time for 500 of them, 12 ms for a
/// CREATE that finds the name taken and the GET after it (`docs/benchmarks.md`).
const NAMES: u128 = 256;

/// How many blocks are tried before all are listed, where so many of a pool's `blocks` are `claimed`, and `all` of all pools.
/// What is known of that may be old: it is a matter of cost only.
pub fn tries(blocks: u128, claimed: u128, all: u128) -> u128 {
    let few = u128::from(TRIES);
    let free = blocks.saturating_sub(claimed);
    // One of so many is free; of thrice as many one is so in nineteen cases of twenty.
    let enough = blocks.checked_div(free).map(|one| one.saturating_mul(3));
    let costs_less = |tries: &u128| *tries <= all / NAMES;
    enough.filter(costs_less).unwrap_or_default().clamp(few, MOST)
}

/// The numbers below `size` in an order that only `seed` decides, each once.
///
/// A Feistel network permutes the numbers of the next power of four; those that are too large are sent through again
/// until they are not (cycle walking; Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002).
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

    /// The number at `position`; none if there are not so many.
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

/// The seed of a node's order in a pool. Another `attempt` gives another order, so that a node does not try the same taken
/// blocks again each time.
pub fn seed(node_uid: &str, pool: &str, attempt: u64) -> u64 {
    let text = node_uid.bytes().chain([0]).chain(pool.bytes());
    text.fold(attempt.wrapping_mul(GOLDEN), |sum, byte| {
        mix(sum.wrapping_add(u64::from(byte)).wrapping_add(GOLDEN))
    })
}
