// SPDX-License-Identifier: Apache-2.0
use super::super::answer::{Answers, Progress};
use super::super::error::DUMP_ATTEMPTS;
use super::super::error::Error;
use super::whole;
use netlink_packet_core::{NLM_F_DUMP_INTR, NLM_F_MULTIPART};
use netlink_packet_route::RouteNetlinkMessage as Message;

/// A read of a list, with or without a change in between.
fn reading(interrupted: bool) -> Answers<Message> {
    let mut answers = Answers::to(1, 1);
    answers.interrupted = interrupted;
    answers
}

#[test]
fn a_list_that_changed_is_read_again() {
    let mut readings = 0;
    let answers = whole(
        |_| {},
        || {
            readings += 1;
            Ok(reading(readings < DUMP_ATTEMPTS))
        },
    );
    assert!(!answers.unwrap().interrupted);
    assert_eq!(readings, DUMP_ATTEMPTS);
}

#[test]
fn a_list_that_keeps_changing_is_an_error() {
    let mut readings = 0;
    let error = whole(
        |_| {},
        || {
            readings += 1;
            Ok(reading(true))
        },
    );
    assert!(matches!(error, Err(Error::Interrupted)));
    assert_eq!(readings, DUMP_ATTEMPTS);
    let text = "the kernel's list changed during each of 12 readings; try again";
    assert_eq!(error.unwrap_err().to_string(), text);
}

#[test]
fn a_request_that_the_kernel_refused_is_not_retried() {
    let mut readings = 0;
    let error = whole::<Message>(
        |_| {},
        || {
            readings += 1;
            Err(Error::Decode(String::new()))
        },
    );
    assert!(error.is_err());
    assert_eq!(readings, 1);
}

/// A list in the kernel's format, of one link and the end. Its last message has these flags.
fn datagram(index: u8, flags: u16) -> Vec<u8> {
    let head = |size: u32, kind: u16, flags: u16| {
        let numbers = [1_u32.to_ne_bytes(), 1_u32.to_ne_bytes()].concat();
        [
            &size.to_ne_bytes()[..],
            &kind.to_ne_bytes(),
            &flags.to_ne_bytes(),
            &numbers,
        ]
        .concat()
    };
    let mut link = [0; 16];
    (link[2], link[4]) = (1, index);
    [
        head(32, 16, NLM_F_MULTIPART),
        link.to_vec(),
        head(20, 3, flags),
        vec![0; 4],
    ]
    .concat()
}

#[test]
fn a_list_with_the_interrupted_flag_is_read_again() {
    let mut datagrams = [
        datagram(7, NLM_F_MULTIPART | NLM_F_DUMP_INTR),
        datagram(8, NLM_F_MULTIPART),
    ]
    .into_iter();
    let answers = whole(
        |_| {},
        || {
            let mut answers = Answers::<Message>::to(1, 1);
            assert_eq!(answers.read(&datagrams.next().unwrap())?, Progress::Complete);
            Ok(answers)
        },
    );
    let objects = answers.unwrap().objects;
    let [Message::NewLink(link)] = objects.as_slice() else {
        panic!("{objects:?}");
    };
    assert_eq!(link.header.index, 8);
    assert_eq!(datagrams.next(), None);
}

#[test]
fn pauses_between_reads_grow_up_to_a_limit() {
    let mut pauses = Vec::new();
    whole(|pause| pauses.push(pause), || Ok(reading(true))).unwrap_err();
    assert_eq!(pauses.len(), DUMP_ATTEMPTS - 1);
    assert_eq!(pauses[0], super::FIRST_PAUSE);
    assert!(
        pauses
            .windows(2)
            .all(|two| two[0] <= two[1] && two[1] <= super::LONGEST_PAUSE)
    );
    let sum: std::time::Duration = pauses.iter().sum();
    assert!(
        sum > std::time::Duration::from_secs(1),
        "the wait survives a burst of changes: {sum:?}"
    );
}
