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

#[test]
fn a_cell_and_a_word_with_control_characters_begin_no_row() {
    let mut table = Table::new(&["POD", "INTERFACE"]);
    table.row(["ml/p".into(), "net1\u{1b}[2J\nforged".into()]);
    let text = table.render();
    assert_eq!(text.lines().nth(1), Some(r"ml/p  net1\u{1b}[2J\nforged"));
    assert_eq!(text.lines().count(), 2, "{text}");
    assert_eq!(
        wrapped("(net1\u{1b}[2J\nforged)", 2, 80),
        r"(net1\u{1b}[2J forged)"
    );
}
