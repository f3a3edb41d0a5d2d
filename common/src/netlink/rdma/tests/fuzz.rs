// SPDX-License-Identifier: Apache-2.0
//! Random changes of the kernel's answers: the parser returns objects or an error for any bytes.

use super::super::super::answer::Answers;
use super::super::super::garbled::{PORT, SEQUENCE, attribute, datagram, message};
use super::super::device::{RdmaDevice, RdmaPort};
use super::super::message::Message as RdmaMessage;
use super::super::queue_pair::QueuePair;
use crate::mutate;

/// Answers of RDMA netlink: devices, ports and queue pairs.
fn devices() -> Vec<Vec<u8>> {
    let client = 5 << 10;
    let attributes: Vec<Vec<u8>> = (1..=100_u16)
        .flat_map(|kind| [4_usize, 1, 8].map(|length| attribute(kind, &vec![1; length])))
        .collect();
    let name = attribute(2, b"mlx5_0\0");
    let of = |command: u16, length: usize| {
        let fitting = attributes.iter().skip(length).step_by(3).cloned();
        let all: Vec<Vec<u8>> = [attribute(1, &[0; 4]), name.clone()]
            .into_iter()
            .chain(fitting)
            .collect();
        message(client | command, &[], &all)
    };
    vec![
        message(
            client | 1,
            &[],
            &[
                attribute(1, &[0; 4]),
                name.clone(),
                attribute(8, &[1; 8]),
                attribute(7, &[1; 8]),
            ],
        ),
        message(
            client | 5,
            &[],
            &[
                attribute(1, &[0; 4]),
                attribute(3, &[1; 4]),
                attribute(13, &[4]),
                attribute(14, &[5]),
            ],
        ),
        of(1, 0),
        of(5, 1),
        queue_pairs(client | 0xa),
    ]
}

/// An answer with a queue pair of a program and one of a kernel module.
fn queue_pairs(kind: u16) -> Vec<u8> {
    let of_program = [
        attribute(3, &[1; 4]),
        attribute(28, &[1; 4]),
        attribute(52, &[1; 8]),
    ];
    let of_module = [attribute(21, &[1; 4]), attribute(29, b"ib_core\0")];
    let rows = [of_program.concat(), of_module.concat()].map(|row| attribute(20, &row));
    message(kind, &[], &[attribute(1, &[0; 4]), attribute(19, &rows.concat())])
}

#[test]
fn any_rdma_netlink_answer_is_read_or_refused() {
    let answers = devices();
    let (mut devices, mut pairs, mut refused) = (0, 0, 0);
    mutate::cases("RDMA netlink", 20_000, |_, random| {
        let mut read = Answers::<RdmaMessage>::to(SEQUENCE, PORT);
        refused += usize::from(read.read(&datagram(random, &answers)).is_err());
        for object in read.objects {
            devices += usize::from(RdmaDevice::decode(object.clone()).is_ok());
            pairs += QueuePair::decode(object.clone()).map_or(0, |list| list.len());
            // An answer about a device is rarely a valid port.
            let _ = RdmaPort::decode(object);
        }
    });
    assert!(
        devices > 0 && pairs > 0 && refused > 0,
        "{devices} devices and {pairs} queue pairs were read, {refused} datagrams refused"
    );
}
