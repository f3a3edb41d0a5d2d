// SPDX-License-Identifier: Apache-2.0
use super::*;

#[test]
fn control_characters_and_controls_of_text_direction_are_escaped() {
    let odd = "net1\u{1b}]52;c;QQ==\u{7}\r\n\u{9b}2J\u{202e}x\u{2066}\u{200e}\u{61c}\u{2028}";
    let safe = r"net1\u{1b}]52;c;QQ==\u{7}\r\n\u{9b}2J\u{202e}x\u{2066}\u{200e}\u{61c}\u{2028}";
    assert_eq!(line(odd), safe);
    assert_eq!(line(safe), safe);
    assert_eq!(lines("a\u{8}\nb\n"), "a\\u{8}\nb\n");
    assert_eq!(line("Zürich 10.1.0.1"), "Zürich 10.1.0.1");
}
