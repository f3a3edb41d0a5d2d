// SPDX-License-Identifier: Apache-2.0
use super::super::super::answer::Answers;
use super::super::super::socket::request;
use super::super::device::{RdmaDevice, RdmaPort};
use super::super::message::{Attribute, Command, Message};
use super::super::queue_pair::{Creator, QueuePair};
use crate::rdma::{Guid, PortState};

const ACK: u16 = 4;

/// Checks that `message` encodes as `bytes` and that `bytes` decode as `message`.
fn same(message: &Message, bytes: &[u8]) {
    assert_eq!(request(message.clone(), ACK, 2), bytes);
    assert_eq!(read(bytes), *message);
}

fn read(bytes: &[u8]) -> Message {
    let mut answers = Answers::<Message>::to(2, 0);
    answers.read(bytes).unwrap();
    assert_eq!(answers.undecoded, Vec::<String>::new());
    answers.objects.remove(0)
}

#[test]
#[rustfmt::skip]
fn a_move_request_holds_the_index_and_the_descriptor() {
    same(&Message::new(Command::Set, [Attribute::DeviceIndex(1), Attribute::NetnsFd(3)]), &[
        0x20, 0, 0, 0,  0x02, 0x14,  0x05, 0,  2, 0, 0, 0,  0, 0, 0, 0,  // RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_SET)
        0x08, 0, 0x01, 0,  1, 0, 0, 0,                                   // RDMA_NLDEV_ATTR_DEV_INDEX
        0x08, 0, 0x44, 0,  3, 0, 0, 0,                                   // RDMA_NLDEV_NET_NS_FD
    ]);
}

#[test]
#[rustfmt::skip]
fn a_new_name_ends_in_a_zero() {
    same(&Message::new(Command::Set, [Attribute::DeviceIndex(1), Attribute::DeviceName("rail0".to_owned())]), &[
        0x24, 0, 0, 0,  0x02, 0x14,  0x05, 0,  2, 0, 0, 0,  0, 0, 0, 0,
        0x08, 0, 0x01, 0,  1, 0, 0, 0,
        0x0a, 0, 0x02, 0,  b'r', b'a', b'i', b'l', b'0', 0, 0, 0,        // RDMA_NLDEV_ATTR_DEV_NAME
    ]);
}

#[test]
#[rustfmt::skip]
fn the_mode_is_one_byte() {
    same(&Message::new(Command::SystemSet, [Attribute::NetnsMode(0)]), &[
        0x18, 0, 0, 0,  0x07, 0x14,  0x05, 0,  2, 0, 0, 0,  0, 0, 0, 0,
        0x05, 0, 0x42, 0,  0, 0, 0, 0,                                   // RDMA_NLDEV_SYS_ATTR_NETNS_MODE
    ]);
}

#[test]
#[rustfmt::skip]
fn a_device_is_read_from_the_kernels_layout() {
    let message = read(&[
        0x6c, 0, 0, 0,  0x01, 0x14,  0x02, 0,  2, 0, 0, 0,  0, 0, 0, 0,
        0x08, 0, 0x01, 0,  4, 0, 0, 0,
        0x0b, 0, 0x02, 0,  b'm', b'l', b'x', b'5', b'_', b'0', 0, 0,
        0x08, 0, 0x03, 0,  2, 0, 0, 0,                                   // number of ports
        0x0c, 0, 0x04, 0,  0, 0, 0, 0, 0, 0, 0, 0,                       // RDMA_NLDEV_ATTR_CAP_FLAGS, not used
        0x04, 0, 0x00, 0,                                                // RDMA_NLDEV_ATTR_PAD
        0x0c, 0, 0x06, 0,  0x5e, 0x0c, 0xb4, 0x00, 0x03, 0x07, 0x8a, 0x24,
        0x0c, 0, 0x07, 0,  0x5f, 0x0c, 0xb4, 0x00, 0x03, 0x07, 0x8a, 0x24,
        0x05, 0, 0x0e, 0,  1, 0, 0, 0,                                   // RDMA_NLDEV_ATTR_DEV_NODE_TYPE, not used
        0x07, 0, 0x43, 0,  b'i', b'b', 0, 0,                             // RDMA_NLDEV_ATTR_DEV_PROTOCOL
        0x05, 0, 0x63, 0,  1, 0, 0, 0,                                   // RDMA_NLDEV_ATTR_DEV_TYPE
    ]);
    let expected = RdmaDevice {
        index: 4,
        name: "mlx5_0".to_owned(),
        node_guid: Guid(0x248a_0703_00b4_0c5e),
        sys_image_guid: Guid(0x248a_0703_00b4_0c5f),
        ports: 2,
        protocol: Some("ib".to_owned()),
        smi: true,
    };
    assert_eq!(RdmaDevice::decode(message).unwrap(), expected);
}

#[test]
#[rustfmt::skip]
fn a_port_is_read_from_the_kernels_layout() {
    let message = read(&[
        0x60, 0, 0, 0,  0x05, 0x14,  0x02, 0,  2, 0, 0, 0,  0, 0, 0, 0,
        0x08, 0, 0x01, 0,  4, 0, 0, 0,
        0x08, 0, 0x03, 0,  1, 0, 0, 0,
        0x0c, 0, 0x08, 0,  0, 0, 0, 0, 0, 0, 0x80, 0xfe,
        0x08, 0, 0x09, 0,  0x11, 0, 0, 0,
        0x08, 0, 0x0a, 0,  0x01, 0, 0, 0,
        0x05, 0, 0x0c, 0,  4, 0, 0, 0,
        0x05, 0, 0x0d, 0,  5, 0, 0, 0,
        0x08, 0, 0x32, 0,  7, 0, 0, 0,
        0x09, 0, 0x33, 0,  b'e', b't', b'h', b'1', 0, 0, 0, 0,
    ]);
    let expected = RdmaPort {
        device: 4,
        number: 1,
        state: PortState::Active,
        phys_state: "LinkUp",
        lid: Some(17),
        sm_lid: Some(1),
        subnet_prefix: Some(0xfe80 << 48),
        netdev: Some((7, "eth1".to_owned())),
    };
    assert_eq!(RdmaPort::decode(message).unwrap(), expected);
}

#[test]
#[rustfmt::skip]
fn a_request_for_queue_pairs_includes_those_of_the_drivers_own_types() {
    same(&Message::new(Command::QueuePairGet, [Attribute::DeviceIndex(4), Attribute::DriverDetails(1)]), &[
        0x20, 0, 0, 0,  0x0a, 0x14,  0x05, 0,  2, 0, 0, 0,  0, 0, 0, 0,  // RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_RES_QP_GET)
        0x08, 0, 0x01, 0,  4, 0, 0, 0,                                   // RDMA_NLDEV_ATTR_DEV_INDEX
        0x05, 0, 0x61, 0,  1, 0, 0, 0,                                   // RDMA_NLDEV_ATTR_DRIVER_DETAILS
    ]);
}

/// Four queue pairs: of a program, of a kernel module, without a port, and of a thread that the kernel does not name.
#[rustfmt::skip]
const QUEUE_PAIRS: [u8; 212] = [
    0xd4, 0, 0, 0,  0x0a, 0x14,  0x02, 0,  2, 0, 0, 0,  0, 0, 0, 0,
    0x08, 0, 0x01, 0,  4, 0, 0, 0,
    0x0b, 0, 0x02, 0,  b'm', b'l', b'x', b'5', b'_', b'0', 0, 0,
    0xb0, 0, 0x13, 0,                                                // RDMA_NLDEV_ATTR_RES_QP
    0x44, 0, 0x14, 0,                                                // RDMA_NLDEV_ATTR_RES_QP_ENTRY
    0x08, 0, 0x03, 0,  2, 0, 0, 0,                                   // RDMA_NLDEV_ATTR_PORT_INDEX
    0x08, 0, 0x15, 0,  0x2a, 0, 0, 0,                                // RDMA_NLDEV_ATTR_RES_LQPN, not used
    0x08, 0, 0x3c, 0,  9, 0, 0, 0,                                   // RDMA_NLDEV_ATTR_RES_PDN, not used
    0x08, 0, 0x1c, 0,  0x67, 0x12, 0, 0,                             // RDMA_NLDEV_ATTR_RES_PID
    0x08, 0, 0x16, 0,  0x2b, 0, 0, 0,                                // RDMA_NLDEV_ATTR_RES_RQPN, not used
    0x08, 0, 0x18, 0,  0, 0, 0, 0,                                   // RDMA_NLDEV_ATTR_RES_SQ_PSN, not used
    0x05, 0, 0x1a, 0,  2, 0, 0, 0,                                   // RDMA_NLDEV_ATTR_RES_TYPE, not used
    0x05, 0, 0x1b, 0,  3, 0, 0, 0,                                   // RDMA_NLDEV_ATTR_RES_STATE, not used
    0x28, 0, 0x14, 0,
    0x08, 0, 0x03, 0,  1, 0, 0, 0,
    0x08, 0, 0x15, 0,  1, 0, 0, 0,
    0x0c, 0, 0x1d, 0,  b'i', b'b', b'_', b'c', b'o', b'r', b'e', 0,  // RDMA_NLDEV_ATTR_RES_KERN_NAME
    0x08, 0, 0x18, 0,  0, 0, 0, 0,
    0x14, 0, 0x14, 0,
    0x08, 0, 0x15, 0,  0x2c, 0, 0, 0,
    0x08, 0, 0x1c, 0,  0x68, 0x12, 0, 0,
    0x2c, 0, 0x14, 0,
    0x08, 0, 0x03, 0,  1, 0, 0, 0,
    0x08, 0, 0x15, 0,  0x2d, 0, 0, 0,
    0x18, 0, 0x34, 0x80,                                             // RDMA_NLDEV_ATTR_DRIVER with NLA_F_NESTED, not used
    0x0c, 0, 0x36, 0,  b's', b'q', b'_', b's', b'i', b'z', b'e', 0,
    0x08, 0, 0x39, 0,  0x80, 0, 0, 0,
];

#[test]
fn queue_pairs_are_read_from_the_kernels_layout() {
    let expected = [
        (Some(2), Creator::Program(Some(4711))),
        (Some(1), Creator::Module("ib_core".to_owned())),
        (None, Creator::Program(Some(4712))),
        (Some(1), Creator::Program(None)),
    ];
    let expected = expected.map(|(port, creator)| QueuePair { port, creator });
    assert_eq!(QueuePair::decode(read(&QUEUE_PAIRS)).unwrap(), expected);
}

#[test]
fn a_queue_pair_that_cannot_be_read_is_not_left_out_of_the_list() {
    let mut bytes = QUEUE_PAIRS;
    // The length of the first thread id.
    bytes[68] = 6;
    let error = QueuePair::decode(read(&bytes)).unwrap_err().to_string();
    assert!(error.contains("RDMA_NLDEV_ATTR_RES_PID"), "{error}");
}

/// `rdma dev set` and `ip link set` accept any bytes as a name.
#[test]
fn a_name_that_is_not_utf8_does_not_hide_a_device() {
    #[rustfmt::skip]
    let message = read(&[
        0x28, 0, 0, 0,  0x01, 0x14,  0x02, 0,  2, 0, 0, 0,  0, 0, 0, 0,
        0x08, 0, 0x01, 0,  4, 0, 0, 0,
        0x08, 0, 0x03, 0,  1, 0, 0, 0,
        0x07, 0, 0x02, 0,  b'm', 0xff, 0, 0,
    ]);
    assert_eq!(RdmaDevice::decode(message).unwrap().name, "m\u{f7ff}");
}

#[test]
fn an_answer_without_index_and_name_is_refused() {
    let nameless = Message::new(Command::Get, [Attribute::DeviceIndex(1)]);
    assert!(RdmaDevice::decode(nameless).is_err());
    let numberless = Message::new(Command::PortGet, [Attribute::DeviceIndex(1)]);
    assert!(RdmaPort::decode(numberless).is_err());
}

#[test]
fn the_error_for_a_wrong_attribute_size_names_the_attribute() {
    let mut answers = Answers::<Message>::to(2, 0);
    let bytes = [
        0x18, 0, 0, 0, 0x01, 0x14, 2, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0x06, 0, 0x01, 0, 1, 0, 0, 0,
    ];
    answers.read(&bytes).unwrap();
    assert!(
        answers.undecoded[0].contains("RDMA_NLDEV_ATTR_DEV_INDEX"),
        "{:?}",
        answers.undecoded
    );
}
