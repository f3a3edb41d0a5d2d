// SPDX-License-Identifier: Apache-2.0
use super::*;

#[test]
fn processor_time_of_other_programs_excludes_idle_time_and_our_own() {
    let before = Ticks::parse("cpu  100 0 50 800 50 0 0 0 100 0\ncpu0 1 1\n");
    let after = Ticks::parse("cpu  180 0 80 1230 60 5 5 0 180 0\n");
    assert_eq!((before.all, before.idle), (1000, 850));
    assert_eq!(
        after.busy_percent_without(60, &before),
        10,
        "120 of 560 ticks were busy, 60 of them ours"
    );
    assert_eq!(after.busy_percent_without(500, &before), 0);
    assert_eq!(before.busy_percent_without(0, &before), 0);
}
