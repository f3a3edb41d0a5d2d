// SPDX-License-Identifier: Apache-2.0
//! The wire form: a command and a flat list of attributes, numbers in host byte order.

use super::super::text::{bytes, escape};
use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable, Nla,
    NlaBuffer, NlasIterator, Parseable, emit_i32, emit_u32, emit_u64, parse_i32, parse_string, parse_u8,
    parse_u32, parse_u64,
};

/// `RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, 0)`: the client in the upper 6 bits, the command in the lower 10.
const NLDEV: u16 = 5 << 10;

/// The part of `enum rdma_nldev_command` that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Get = 1,
    Set = 2,
    PortGet = 5,
    SystemGet = 6,
    SystemSet = 7,
    QueuePairGet = 10,
}

/// One request or answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    kind: u16,
    pub(super) attributes: Vec<Attribute>,
}

impl Message {
    pub(super) fn new(command: Command, attributes: impl Into<Vec<Attribute>>) -> Self {
        Self {
            kind: NLDEV | command as u16,
            attributes: attributes.into(),
        }
    }
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        self.attributes.as_slice().buffer_len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        self.attributes.as_slice().emit(buffer);
    }
}

impl NetlinkDeserializable for Message {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        Ok(Self {
            kind: header.message_type,
            attributes: Attribute::list(payload)?,
        })
    }
}

/// Defines the attributes with their numbers and value types, and their encoding.
macro_rules! attributes {
    ($($name:ident($kind:tt) = $number:literal as $kernel:literal,)*) => {
        /// `enum rdma_nldev_attr`, as far as it is used; anything else is kept as it is.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(super) enum Attribute {
            $(#[doc = concat!("`", $kernel, "`")] $name(attributes!(@type $kind)),)*
            Other(DefaultNla),
        }

        impl Nla for Attribute {
            fn kind(&self) -> u16 {
                match self {
                    $(Self::$name(_) => $number,)*
                    Self::Other(nla) => nla.kind(),
                }
            }

            fn value_len(&self) -> usize {
                match self {
                    $(Self::$name(value) => attributes!(@len $kind value),)*
                    Self::Other(nla) => nla.value_len(),
                }
            }

            fn emit_value(&self, buffer: &mut [u8]) {
                match self {
                    $(Self::$name(value) => attributes!(@emit $kind buffer value),)*
                    Self::Other(nla) => nla.emit_value(buffer),
                }
            }
        }

        impl Attribute {
            /// The attributes of a message or of a table. The attributes of a table inside stay bytes.
            pub(super) fn list(bytes: &[u8]) -> Result<Vec<Self>, DecodeError> {
                NlasIterator::new(bytes).map(|nla| Self::parse(&nla?)).collect()
            }

            fn parse(nla: &NlaBuffer<&[u8]>) -> Result<Self, DecodeError> {
                let value = nla.value();
                Ok(match nla.kind() {
                    $($number => {
                        let parsed = attributes!(@parse $kind value);
                        Self::$name(parsed.map_err(|e| DecodeError::from(format!("{}: {e}", $kernel)))?)
                    })*
                    _ => Self::Other(DefaultNla::parse(nla)?),
                })
            }
        }
    };
    (@type string) => { String };
    (@type table) => { Vec<u8> };
    (@type $int:tt) => { $int };
    (@len string $value:ident) => { bytes($value).len() + 1 };
    (@len table $value:ident) => { $value.len() };
    (@len $int:tt $value:ident) => { { let _ = $value; size_of::<$int>() } };
    (@emit string $buffer:ident $value:ident) => { emit_string($buffer, $value) };
    (@emit table $buffer:ident $value:ident) => { $buffer.copy_from_slice($value) };
    // The buffer has the length that `value_len` returned, so none of these can fail.
    (@emit u8 $buffer:ident $value:ident) => { $buffer[0] = *$value };
    (@emit u32 $buffer:ident $value:ident) => { emit_u32($buffer, *$value).unwrap_or_default() };
    (@emit u64 $buffer:ident $value:ident) => { emit_u64($buffer, *$value).unwrap_or_default() };
    (@emit i32 $buffer:ident $value:ident) => { emit_i32($buffer, *$value).unwrap_or_default() };
    (@parse string $value:ident) => { parse_string(&escape($value)) };
    (@parse table $value:ident) => { Ok::<_, DecodeError>($value.to_vec()) };
    (@parse u8 $value:ident) => { parse_u8($value) };
    (@parse u32 $value:ident) => { parse_u32($value) };
    (@parse u64 $value:ident) => { parse_u64($value) };
    (@parse i32 $value:ident) => { parse_i32($value) };
}

attributes! {
    DeviceIndex(u32) = 1 as "RDMA_NLDEV_ATTR_DEV_INDEX",
    DeviceName(string) = 2 as "RDMA_NLDEV_ATTR_DEV_NAME",
    PortIndex(u32) = 3 as "RDMA_NLDEV_ATTR_PORT_INDEX",
    NodeGuid(u64) = 6 as "RDMA_NLDEV_ATTR_NODE_GUID",
    SystemImageGuid(u64) = 7 as "RDMA_NLDEV_ATTR_SYS_IMAGE_GUID",
    SubnetPrefix(u64) = 8 as "RDMA_NLDEV_ATTR_SUBNET_PREFIX",
    Lid(u32) = 9 as "RDMA_NLDEV_ATTR_LID",
    SmLid(u32) = 10 as "RDMA_NLDEV_ATTR_SM_LID",
    PortState(u8) = 12 as "RDMA_NLDEV_ATTR_PORT_STATE",
    PhysState(u8) = 13 as "RDMA_NLDEV_ATTR_PORT_PHYS_STATE",
    QueuePairs(table) = 19 as "RDMA_NLDEV_ATTR_RES_QP",
    QueuePair(table) = 20 as "RDMA_NLDEV_ATTR_RES_QP_ENTRY",
    ThreadId(u32) = 28 as "RDMA_NLDEV_ATTR_RES_PID",
    ModuleName(string) = 29 as "RDMA_NLDEV_ATTR_RES_KERN_NAME",
    NetdevIndex(u32) = 50 as "RDMA_NLDEV_ATTR_NDEV_INDEX",
    NetdevName(string) = 51 as "RDMA_NLDEV_ATTR_NDEV_NAME",
    NetnsMode(u8) = 66 as "RDMA_NLDEV_SYS_ATTR_NETNS_MODE",
    Protocol(string) = 67 as "RDMA_NLDEV_ATTR_DEV_PROTOCOL",
    NetnsFd(i32) = 68 as "RDMA_NLDEV_NET_NS_FD",
    DriverDetails(u8) = 97 as "RDMA_NLDEV_ATTR_DRIVER_DETAILS",
    DeviceType(u8) = 99 as "RDMA_NLDEV_ATTR_DEV_TYPE",
}

fn emit_string(buffer: &mut [u8], text: &str) {
    let text = bytes(text);
    buffer[..text.len()].copy_from_slice(&text);
    buffer[text.len()] = 0;
}
