// SPDX-License-Identifier: Apache-2.0
//! A node for tests: two namespaces behind [`Kernel`](crate::kernel::Kernel), a sysfs, an IPAM plugin and a pod.
//!
//! The kernel has links, addresses and routes. It counts its requests and can fail any one of them: before it
//! takes effect, after, or that one and every later one.

mod bond;
mod create;
mod device;
mod fixture;
mod function;
mod ipam;
mod kernel;
mod log;
mod node;
mod pod;
mod policy;
mod rdma;
mod recording;
mod start;

pub(crate) use bond::{active_backup, bonded, port_of};
pub(crate) use device::saved;
pub(crate) use fixture::Fixture;
pub(crate) use function::Virtual;
pub(crate) use ipam::{Ipam, alone};
pub(crate) use kernel::{Fault, ModelKernel, State};
pub(crate) use log::warnings_of;
pub(crate) use node::Node;
pub(crate) use pod::Pod;
pub(crate) use rdma::{Subsystem, grant};
pub(crate) use recording::recorded;
pub(crate) use start::{attachment, bond, call, call_with, ethernet, ipoib, link, of_kind};
