// SPDX-License-Identifier: Apache-2.0
//! The two sides of the comparison, and one value for each.

use std::ops::{Index, IndexMut};

/// The side whose plugin is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Ours,
    Reference,
}

/// Both sides.
pub(crate) const SIDES: [Side; 2] = [Side::Ours, Side::Reference];

/// One `T` for each side.
#[derive(Debug, Default)]
pub(crate) struct Pair<T> {
    pub(crate) ours: T,
    pub(crate) reference: T,
}

impl<T> Pair<T> {
    /// Calls `make` for each side.
    pub(crate) fn of(mut make: impl FnMut(Side) -> T) -> Self {
        Self {
            ours: make(Side::Ours),
            reference: make(Side::Reference),
        }
    }

    /// Converts the value of each side.
    pub(crate) fn map<U>(&self, mut turn: impl FnMut(&T) -> U) -> Pair<U> {
        Pair {
            ours: turn(&self.ours),
            reference: turn(&self.reference),
        }
    }
}

impl<T> Index<Side> for Pair<T> {
    type Output = T;

    fn index(&self, side: Side) -> &T {
        match side {
            Side::Ours => &self.ours,
            Side::Reference => &self.reference,
        }
    }
}

impl<T> IndexMut<Side> for Pair<T> {
    fn index_mut(&mut self, side: Side) -> &mut T {
        match side {
            Side::Ours => &mut self.ours,
            Side::Reference => &mut self.reference,
        }
    }
}
