// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn each_part_of_a_round_runs_first_in_turn() {
    let mut firsts = Vec::new();
    let mut first = Part::Blocks;
    for _ in 0..4 {
        firsts.push(first);
        let all: Vec<Part> = first.and_others().collect();
        assert!(
            all[0] == first && Part::ALL.iter().all(|part| all.contains(part)),
            "{all:?}"
        );
        first = first.next();
    }
    assert!(Part::ALL.iter().all(|part| firsts.contains(part)), "{firsts:?}");
}
