// SPDX-License-Identifier: Apache-2.0
//! The frame of all benchmarks: figures of many samples, the machine, and tables.

pub mod figures;
pub mod machine;
pub mod table;
