// SPDX-License-Identifier: Apache-2.0
//! The random order of a run, repeatable from its seed.

#[cfg(test)]
mod tests;

/// Random numbers from a seed. They determine only orders and names, never an address.
pub(crate) struct Order(fastrand::Rng);

impl Order {
    /// The sequence of `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// `count` of each of `kinds`, in random order.
    pub(crate) fn interleave<T: Copy>(&mut self, kinds: &[T], count: usize) -> Vec<T> {
        let mut trials = kinds.repeat(count);
        self.0.shuffle(&mut trials);
        trials
    }

    /// A container ID in the format of containerd and CRI-O: 64 hexadecimal digits.
    pub(crate) fn container_id(&mut self) -> String {
        format!("{:032x}{:032x}", self.0.u128(..), self.0.u128(..))
    }
}
