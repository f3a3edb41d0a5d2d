// SPDX-License-Identifier: Apache-2.0
use super::super::answer::Answers;
use super::super::error::Error;
use super::{DUMP_ATTEMPTS, whole};
use netlink_packet_route::RouteNetlinkMessage as Message;

/// A reading during which the list changed, or not.
fn reading(interrupted: bool) -> Answers<Message> {
    let mut answers = Answers::to(1, 1);
    answers.interrupted = interrupted;
    answers
}

#[test]
fn a_list_that_changed_is_read_again() {
    let mut readings = 0;
    let answers = whole(|| {
        readings += 1;
        Ok(reading(readings < DUMP_ATTEMPTS))
    });
    assert!(!answers.unwrap().interrupted);
    assert_eq!(readings, DUMP_ATTEMPTS);
}

#[test]
fn a_list_that_never_settles_is_an_error_and_not_a_wrong_list() {
    let mut readings = 0;
    let error = whole(|| {
        readings += 1;
        Ok(reading(true))
    });
    assert!(matches!(error, Err(Error::Interrupted)));
    assert_eq!(readings, DUMP_ATTEMPTS);
    let text = "the kernel's list changed during each of 5 readings; try again";
    assert_eq!(error.unwrap_err().to_string(), text);
}

#[test]
fn a_refusal_is_not_tried_again() {
    let mut readings = 0;
    let error = whole::<Message>(|| {
        readings += 1;
        Err(Error::Decode(String::new()))
    });
    assert!(error.is_err());
    assert_eq!(readings, 1);
}
