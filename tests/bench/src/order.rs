// SPDX-License-Identifier: Apache-2.0
//! The random order of a run, repeatable from its seed.

#[cfg(test)]
mod tests;

/// A sequence of numbers fixed by its seed: `SplitMix64` (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", OOPSLA 2014). It decides orders and names only, never an address.
pub(crate) struct Order(u64);

impl Order {
    /// The sequence that belongs to `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// `count` of each of `kinds`, in random order.
    pub(crate) fn interleave<T: Copy>(&mut self, kinds: &[T], count: usize) -> Vec<T> {
        let mut trials = kinds.repeat(count);
        for last in (1..trials.len()).rev() {
            let other = usize::try_from(self.next() % (last as u64 + 1)).unwrap_or(last);
            trials.swap(last, other);
        }
        trials
    }

    /// A container id as containerd and CRI-O make them: 64 hexadecimal digits.
    pub(crate) fn container_id(&mut self) -> String {
        format!(
            "{:016x}{:016x}{:016x}{:016x}",
            self.next(),
            self.next(),
            self.next(),
            self.next()
        )
    }
}
