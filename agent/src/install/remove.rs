// SPDX-License-Identifier: Apache-2.0
//! Uninstalls the plugins from a node whose pods do not need them.
//!
//! Invariant: a pod that was attached before the uninstallation still finds the plugins, unless `--force` was given.

use super::directory::{remove_if_there, rename};
use super::plugin::program_of;
use super::{Directory, Error, Origin, PEERS, PLUGINS, Paths, Target, print_line, users};
use std::io::Write;
use std::path::Path;
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

/// A plugin whose name was taken away: its directory, its name and its version.
type Gone<'d> = (&'d Directory, &'static str, String);

/// Removes both plugins from each directory where an installation may have put them. Writes what was done to `out`, one sentence
/// a line. A file that is not rdmanet's stays. A foreign program that was put aside gets its name back.
///
/// # Errors
/// [`Error::InUse`], and the others; then both plugins are where they were.
pub fn uninstall(wanted: &Uninstall, out: &mut dyn Write) -> Result<(), Error> {
    uninstall_after(|| sleep(GRACE), wanted, out)
}

/// As [`uninstall`]. `wait` returns once each ADD that was running has its first record on disk.
pub(super) fn uninstall_after(
    wait: impl FnOnce(),
    wanted: &Uninstall,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let places = wanted.target.search()?;
    for (path, why) in &places {
        print_line(
            out,
            format_args!("looks for plugins in {}: {why}", path.display()),
        );
    }
    let paths: Vec<&Path> = places.iter().map(|(path, _)| path.as_path()).collect();
    let directories = Directory::open_each(&wanted.target.host, &paths)?;
    restore(&directories)?;
    unless_in_use(wanted, out)?;
    let gone = match take_names(&directories, out) {
        Ok(gone) => gone,
        Err(error) => {
            restore(&directories)?;
            return Err(error);
        }
    };
    // From here on no new ADD finds the plugins. An ADD that was running is found now.
    if !gone.is_empty() && !wanted.force {
        wait();
        if let Err(error) = unless_in_use(wanted, out) {
            restore(&directories)?;
            return Err(error);
        }
    }
    for (directory, name, version) in gone {
        remove_if_there(&directory.gone_entry(name))?;
        remove_if_there(&directory.new_entry(name))?;
        let place = directory.place().display();
        print_line(out, format_args!("{name} {version} removed from {place}"));
        restore_foreign(directory, name, out)?;
    }
    directories.iter().try_for_each(Directory::sync)
}

/// Takes the names of our plugins away in each directory.
fn take_names<'d>(directories: &'d [Directory], out: &mut dyn Write) -> Result<Vec<Gone<'d>>, Error> {
    let mut gone = Vec::new();
    for name in names() {
        let mut found = false;
        for directory in directories {
            let path = directory.entry(name);
            match Origin::of(&path, program_of(name))?.0 {
                Origin::Ours { version } => {
                    rename(&path, &directory.gone_entry(name))?;
                    gone.push((directory, name, version));
                    found = true;
                }
                Origin::Foreign { what } if !PEERS.contains(&name) => {
                    let place = directory.place().display();
                    print_line(
                        out,
                        format_args!("{name} is not rdmanet's and stays in {place}: {what}"),
                    );
                    found = true;
                }
                Origin::Nothing | Origin::Foreign { .. } => {}
            }
        }
        if !found && !PEERS.contains(&name) {
            print_line(out, format_args!("{name} is not there"));
        }
    }
    Ok(gone)
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
                print_line(out, format_args!("warning: in use by {one}"));
            }
            Ok(())
        }
        Err(error) if wanted.force => {
            print_line(out, format_args!("warning: {error}"));
            Ok(())
        }
        Ok(users) => Err(Error::InUse(users)),
        Err(error) => Err(error),
    }
}

/// Restores the names that this removal, or an earlier one that was killed, took away.
fn restore(directories: &[Directory]) -> Result<(), Error> {
    directories
        .iter()
        .try_for_each(|directory| names().try_for_each(|name| directory.restore_gone(name)))
}

/// Restores the foreign program that had the name before a plugin of ours.
fn restore_foreign(directory: &Directory, name: &str, out: &mut dyn Write) -> Result<(), Error> {
    let aside = directory.aside(name);
    if aside.symlink_metadata().is_ok() {
        rename(&aside, &directory.entry(name))?;
        print_line(out, format_args!("restored the earlier {name}"));
    }
    Ok(())
}
