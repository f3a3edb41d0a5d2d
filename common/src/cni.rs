// SPDX-License-Identifier: Apache-2.0
//! The Container Network Interface, specification 0.1.0 to 1.1.0, from a plugin's side.
//!
//! [`dispatch::dispatch`] turns environment and stdin into a call of a [`Plugin`], and the plugin's answer
//! into exactly one JSON document on stdout. This module never touches the network.
//!
//! Specification: <https://www.cni.dev/docs/spec/>.

pub mod args;
pub mod conf;
pub mod delegate;
pub mod dispatch;
pub mod env;
pub mod error;
pub mod id;
pub mod keys;
pub mod plain;
pub mod process;
pub mod reader;
pub mod result;
pub mod version;

pub use args::Args;
pub use conf::{Conf, GcConf};
pub use delegate::Delegate;
pub use dispatch::{Plugin, Streams, dispatch};
pub use env::Env;
pub use error::{Code, Error};
pub use id::{Attachment, ContainerId, IfName};
pub use process::run_process;
pub use reader::Reader;
pub use result::{CniResult, Dns, Interface, IpConfig, PROBES, Route, UNFINISHED};
pub use version::Version;
