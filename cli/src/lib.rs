// SPDX-License-Identifier: Apache-2.0
//! `rdmanet`: what a node and a cluster have of RDMA and of addresses, for the person who has to know.
//!
//! Holds always: a command prints one document, a table or JSON, whose data are the same; looking changes nothing.

pub mod answer;
pub mod args;
pub mod leases;
pub mod node;
pub mod table;

pub use answer::{Answer, Failure, Outcome};
use args::{Args, Command};
use clap::CommandFactory;

/// Does what the command line says.
///
/// # Errors
/// A sentence for a person, with its remedy.
pub fn run(args: &Args) -> Result<Answer, Failure> {
    match &args.command {
        Command::Node(options) => node::run(options),
        Command::Completion { shell } => Ok(completion(*shell)),
    }
}

fn completion(shell: clap_complete::Shell) -> Answer {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "rdmanet", &mut script);
    let text = String::from_utf8_lossy(&script).into_owned();
    Answer {
        json: serde_json::json!({ "script": text }),
        text,
        outcome: Outcome::Fine,
    }
}
