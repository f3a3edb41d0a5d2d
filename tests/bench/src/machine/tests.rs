// SPDX-License-Identifier: Apache-2.0
use super::*;

#[test]
fn proc_fields_are_matched_by_their_full_name() {
    let text = "model\t\t: 1\nmodel name\t: Some CPU @ 2.0GHz\n";
    assert_eq!(field(text, "model name"), Some("Some CPU @ 2.0GHz"));
    assert_eq!(field(text, "name"), None);
}

#[test]
fn memory_is_reported_in_whole_gibibytes() {
    assert_eq!(gibibytes("MemTotal:       24593428 kB\n"), 24);
}
