// SPDX-License-Identifier: Apache-2.0
//! Uninstalls the plugins from a node whose pods do not need them.
//!
//! Invariant: a pod that was attached before the uninstallation still finds the plugins, unless `--force` was given.

use super::directory::{remove_if_there, rename};
use super::plugin::program_of;
use super::{Directory, Error, Origin, PEERS, PLUGINS, Paths, Target, say, users};
use std::io::Write;
use std::thread::sleep;
use std::time::Duration;

/// The time between the start of an ADD and its first record on disk. It takes some milliseconds.
const GRACE: Duration = Duration::from_secs(1);

/// Removes both plugins from a node, unless its pods need them
#[derive(clap::Args, Clone, Debug)]
pub struct Uninstall {
    /// Where from.
    #[command(flatten)]
    pub target: Target,
    /// Where to look for pods that need them.
    #[command(flatten)]
    pub paths: Paths,
    /// Removes them though pods need them
    #[arg(long, env = "RDMANET_FORCE")]
    pub force: bool,
    /// Waits for SIGTERM when it is done, so that a `DaemonSet` of it becomes ready node by node
    #[arg(long)]
    pub stay: bool,
}

/// Removes both plugins. Writes what was done to `out`, one sentence a line. A file that is not rdmanet's stays. A foreign
/// program that was put aside gets its name back.
///
/// # Errors
/// [`Error::InUse`], and the others; then both plugins are where they were.
pub fn uninstall(wanted: &Uninstall, out: &mut dyn Write) -> Result<(), Error> {
    let (path, why) = wanted.target.find()?;
    say(out, format_args!("plugins are in {}: {why}", path.display()));
    let directory = Directory::open(&wanted.target.host, &path)?;
    restore(&directory)?;
    unless_in_use(wanted, out)?;
    let mut gone = Vec::new();
    for name in names() {
        match Origin::of(&directory.entry(name), program_of(name))?.0 {
            Origin::Ours { version } => {
                rename(&directory.entry(name), &directory.gone_entry(name))?;
                gone.push((name, version));
            }
            Origin::Nothing | Origin::Foreign { .. } if PEERS.contains(&name) => {}
            Origin::Nothing => say(out, format_args!("{name} is not there")),
            Origin::Foreign { what } => say(out, format_args!("{name} is not rdmanet's and stays: {what}")),
        }
    }
    // From here on no new ADD finds the plugins. An ADD that was running is found now.
    if !gone.is_empty() && !wanted.force {
        sleep(GRACE);
        if let Err(error) = unless_in_use(wanted, out) {
            restore(&directory)?;
            return Err(error);
        }
    }
    for (name, version) in gone {
        remove_if_there(&directory.gone_entry(name))?;
        remove_if_there(&directory.new_entry(name))?;
        say(out, format_args!("{name} {version} removed"));
        restore_foreign(&directory, name, out)?;
    }
    directory.sync()
}

/// All names under which a program of ours may be installed.
fn names() -> impl Iterator<Item = &'static str> {
    PLUGINS.into_iter().chain(PEERS)
}

fn unless_in_use(wanted: &Uninstall, out: &mut dyn Write) -> Result<(), Error> {
    match users(&wanted.target.host, &wanted.paths) {
        Ok(users) if users.is_empty() => Ok(()),
        Ok(users) if wanted.force => {
            for one in users {
                say(out, format_args!("warning: in use by {one}"));
            }
            Ok(())
        }
        Err(error) if wanted.force => {
            say(out, format_args!("warning: {error}"));
            Ok(())
        }
        Ok(users) => Err(Error::InUse(users)),
        Err(error) => Err(error),
    }
}

/// Restores the names that this removal, or an earlier one that was killed, took away.
fn restore(directory: &Directory) -> Result<(), Error> {
    for name in names() {
        let (gone, path) = (directory.gone_entry(name), directory.entry(name));
        if !gone.exists() {
            continue;
        }
        // Another version was installed meanwhile.
        if path.symlink_metadata().is_ok() {
            remove_if_there(&gone)?;
        } else {
            rename(&gone, &path)?;
        }
    }
    Ok(())
}

/// Restores the foreign program that had the name before a plugin of ours.
fn restore_foreign(directory: &Directory, name: &str, out: &mut dyn Write) -> Result<(), Error> {
    let aside = directory.aside(name);
    if aside.symlink_metadata().is_ok() {
        rename(&aside, &directory.entry(name))?;
        say(out, format_args!("restored the earlier {name}"));
    }
    Ok(())
}
