// SPDX-License-Identifier: Apache-2.0
//! The command line of `rdmanet-agent`: the flags of the daemon, or a command that needs no Kubernetes.

use crate::config::Config;
use crate::install::{Install, Uninstall};
use clap::{Args, Command, FromArgMatches, Subcommand};
use std::ffi::OsString;

/// What the program is called for.
#[derive(Debug)]
pub enum CommandLine {
    /// To run as the daemon of a node.
    Daemon(Box<Config>),
    /// To change the plugins of a node.
    Plugins(PluginCommand),
}

/// A command that changes the plugins of a node.
#[derive(Subcommand, Debug)]
pub enum PluginCommand {
    /// Installs them.
    Install(Install),
    /// Uninstalls them.
    Uninstall(Uninstall),
}

impl CommandLine {
    /// Parses `words`, the first of which is the program. A flag that is missing comes from its environment variable.
    ///
    /// # Errors
    /// The words are wrong, or ask for the help or the version.
    pub fn parse<W: Into<OsString> + Clone>(words: impl IntoIterator<Item = W>) -> Result<Self, clap::Error> {
        let matches = command().try_get_matches_from(words)?;
        match matches.subcommand_name() {
            Some(_) => PluginCommand::from_arg_matches(&matches).map(Self::Plugins),
            None => Config::from_arg_matches(&matches).map(|config| Self::Daemon(Box::new(config))),
        }
    }
}

/// The flags of the daemon, and the subcommands.
///
/// No type derives both: clap treats an optional group of flags as absent if another group is part of it, as [`Config`] has one
/// (`clap_derive` 4, `derives/args.rs`).
fn command() -> Command {
    let daemon = Config::augment_args(Command::new("rdmanet-agent"));
    PluginCommand::augment_subcommands(daemon)
        .about("Claims blocks of addresses for this node, or runs a command")
        .version(env!("CARGO_PKG_VERSION"))
        .args_conflicts_with_subcommands(true)
        .subcommand_negates_reqs(true)
}

#[cfg(test)]
mod tests;
