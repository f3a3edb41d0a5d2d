// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn columns_are_as_wide_as_their_widest_cell() {
    let mut table = Table::new(&["A", "LONG", "B"]);
    table.row(["wide".into(), String::new(), "x".into()]);
    assert_eq!(table.render(), "A     LONG  B\nwide  -     x\n");
}

#[test]
fn text_is_broken_between_words() {
    assert_eq!(wrapped("one two three", 2, 9), "one two\n  three");
    assert_eq!(wrapped("much-too-long a", 0, 5), "much-too-long\na");
}
