// SPDX-License-Identifier: Apache-2.0
use super::super::error::Error;
use super::{Answers, Progress};
use netlink_packet_route::RouteNetlinkMessage;
use nix::errno::Errno;

const SEQUENCE: u32 = 7;
const PORT: u32 = 4242;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const MULTI: u16 = 2;
const DUMP_INTR: u16 = 16;
const ACK_TLVS: u16 = 0x200;
const CAPPED: u16 = 0x100;

/// One message as the kernel writes it.
fn message(kind: u16, flags: u16, sequence: u32, port: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(16 + payload.len()).unwrap().to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(port.to_ne_bytes());
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn link(index: u8) -> Vec<u8> {
    vec![0, 0, 1, 0, index, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

fn answers() -> Answers<RouteNetlinkMessage> {
    Answers::to(SEQUENCE, PORT)
}

#[test]
fn a_list_comes_in_several_datagrams() {
    let mut answers = answers();
    let one = message(RTM_NEWLINK, MULTI, SEQUENCE, PORT, &link(1));
    let two = message(RTM_NEWLINK, MULTI, SEQUENCE, PORT, &link(2));
    assert_eq!(
        answers.read(&[one, two.clone()].concat()).unwrap(),
        Progress::Partial
    );
    let done = message(NLMSG_DONE, MULTI, SEQUENCE, PORT, &[0; 4]);
    assert_eq!(answers.read(&[two, done].concat()).unwrap(), Progress::Complete);
    assert_eq!(answers.objects.len(), 3);
    assert!(!answers.interrupted);
}

#[test]
fn a_list_that_changed_is_marked_wherever_the_flag_stands() {
    for interrupted in [0, 1] {
        let mut answers = answers();
        let flags = |i| {
            if i == interrupted {
                MULTI | DUMP_INTR
            } else {
                MULTI
            }
        };
        let bytes = [
            message(RTM_NEWLINK, flags(0), SEQUENCE, PORT, &link(1)),
            message(NLMSG_DONE, flags(1), SEQUENCE, PORT, &[0; 4]),
        ];
        assert_eq!(answers.read(&bytes.concat()).unwrap(), Progress::Complete);
        assert!(answers.interrupted, "flag in message {interrupted}");
    }
}

#[test]
fn answers_to_other_requests_are_ignored() {
    let mut answers = answers();
    let late = message(NLMSG_DONE, MULTI, SEQUENCE - 1, PORT, &[0; 4]);
    let notification = message(RTM_NEWLINK, DUMP_INTR, SEQUENCE, PORT + 1, &link(9));
    assert_eq!(
        answers.read(&[late, notification].concat()).unwrap(),
        Progress::Partial
    );
    assert!(answers.objects.is_empty());
    assert!(!answers.interrupted);
}

#[test]
fn an_error_carries_the_kernels_text() {
    // RTM_SETLINK with an MTU of 70000 on a veth, as answered by Linux 6.1 with NETLINK_CAP_ACK and NETLINK_EXT_ACK.
    let mut payload = (-22_i32).to_ne_bytes().to_vec();
    payload.extend(message(19, 5, SEQUENCE, PORT, &[]));
    let words = b"mtu greater than device maximum\0";
    payload.extend(u16::try_from(4 + words.len()).unwrap().to_ne_bytes());
    payload.extend(1_u16.to_ne_bytes());
    payload.extend(words);
    let bytes = message(NLMSG_ERROR, CAPPED | ACK_TLVS, SEQUENCE, PORT, &payload);
    match answers().read(&bytes).unwrap_err() {
        Error::Kernel { errno, text } => {
            assert_eq!(
                (errno, text.as_deref()),
                (Errno::EINVAL, Some("mtu greater than device maximum"))
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_list_can_end_in_an_error() {
    let bytes = message(NLMSG_DONE, MULTI, SEQUENCE, PORT, &(-19_i32).to_ne_bytes());
    let error = answers().read(&bytes).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::ENODEV));
    assert_eq!(error.to_string(), "the kernel refused: ENODEV: No such device");
}

#[test]
fn an_acknowledgement_completes_a_change() {
    let payload = [&[0; 4][..], &message(16, 5, SEQUENCE, PORT, &[])].concat();
    let bytes = message(NLMSG_ERROR, CAPPED, SEQUENCE, PORT, &payload);
    assert_eq!(answers().read(&bytes).unwrap(), Progress::Complete);
}

#[test]
fn an_unreadable_object_does_not_hide_the_others() {
    let mut answers = answers();
    let broken = message(RTM_NEWADDR, MULTI, SEQUENCE, PORT, &[2, 24]);
    let good = message(RTM_NEWLINK, MULTI, SEQUENCE, PORT, &link(1));
    answers.read(&[broken, good].concat()).unwrap();
    assert_eq!(answers.objects.len(), 1);
    assert_eq!(answers.undecoded.len(), 1);
}

#[test]
fn no_bytes_make_the_reader_panic_or_loop() {
    let whole = message(RTM_NEWLINK, MULTI, SEQUENCE, PORT, &link(1));
    for length in 1..whole.len() {
        answers().read(&whole[..length]).unwrap_err();
    }
    let mut zero_length = whole;
    zero_length[..4].fill(0);
    answers().read(&zero_length).unwrap_err();
}
