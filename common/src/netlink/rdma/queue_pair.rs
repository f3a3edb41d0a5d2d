// SPDX-License-Identifier: Apache-2.0
//! The queue pairs in an answer of RDMA netlink.

use super::super::error::Error;
use super::message::{Attribute, Message};

/// A queue pair of an RDMA device, as netlink reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePair {
    /// Number of its port; `None` until its creator has chosen one.
    pub port: Option<u32>,
    /// What created it.
    pub creator: Creator,
}

/// What created a queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Creator {
    /// A kernel module. Linux 6.1 reports `rdma_cm` for every module that connects through it; Linux 5.10 reports the
    /// module itself.
    Module(String),
    /// A program, by its thread that created the queue pair, in the PID namespace of the caller. `None` if that namespace
    /// does not have the thread, or if the thread has ended.
    Program(Option<u32>),
}

impl QueuePair {
    /// The queue pairs of one message of a list.
    ///
    /// Source: `res_get_common_dumpit` and `fill_res_qp_entry` of `drivers/infiniband/core/nldev.c`.
    pub(super) fn decode(message: Message) -> Result<Vec<Self>, Error> {
        let mut pairs = Vec::new();
        for attribute in message.attributes {
            let Attribute::QueuePairs(table) = attribute else {
                continue;
            };
            for row in attributes(&table)? {
                if let Attribute::QueuePair(row) = row {
                    pairs.push(Self::of(attributes(&row)?));
                }
            }
        }
        Ok(pairs)
    }

    fn of(attributes: Vec<Attribute>) -> Self {
        let mut pair = Self {
            port: None,
            creator: Creator::Program(None),
        };
        for attribute in attributes {
            match attribute {
                Attribute::PortIndex(number) => pair.port = (number != 0).then_some(number),
                Attribute::ThreadId(id) => pair.creator = Creator::Program((id != 0).then_some(id)),
                Attribute::ModuleName(name) => pair.creator = Creator::Module(name),
                _ => {}
            }
        }
        pair
    }
}

fn attributes(bytes: &[u8]) -> Result<Vec<Attribute>, Error> {
    Attribute::list(bytes).map_err(|e| Error::Decode(e.to_string()))
}
