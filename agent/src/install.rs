// SPDX-License-Identifier: Apache-2.0
//! Installs both plugins where the container runtime of a node looks for them, and uninstalls them.
//!
//! Invariant: wherever the process is killed, a plugin's name stands for one complete program, the old or the new one. A plugin
//! that is running continues, since a rename changes the name and not the file. A file that is not rdmanet's is neither
//! overwritten nor removed unless the administrator asked for that.
//!
//! Needs no Kubernetes: an init container runs it before the agent starts.

mod directory;
mod distribution;
mod error;
mod in_use;
mod interface;
mod plugin;
mod remove;
mod runtime;

pub use directory::Directory;
pub use distribution::{Choice, Distribution};
pub use error::Error;
pub use in_use::{Paths, users};
pub use interface::InterfaceInUse;
pub use plugin::{Origin, PEERS, PLUGINS, Plugin};
pub use remove::{Uninstall, uninstall};

use directory::{Fitted, resolved};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Why a directory is used that [`Target::bin_dir`] names.
const BY_OPTION: &str = "--bin-dir names it";

/// Where the plugins of a node are.
#[derive(clap::Args, Clone, Debug)]
pub struct Target {
    /// Where the node's file system is mounted: all of it, or the directory of plugins alone at its own path
    #[arg(long, env = "RDMANET_HOST", default_value = "/host")]
    pub host: PathBuf,
    /// auto, kubeadm, k3s, rke2, microk8s, k0s, openshift or talos; auto looks for what they leave on a node
    #[arg(long, env = "RDMANET_DISTRIBUTION", default_value = "auto")]
    pub distribution: Choice,
    /// The directory of plugins on the node, whatever the distribution
    #[arg(long, env = "RDMANET_CNI_BIN_DIR")]
    pub bin_dir: Option<PathBuf>,
}

/// Installs both plugins on a node
#[derive(clap::Args, Clone, Debug)]
pub struct Install {
    /// Where.
    #[command(flatten)]
    pub target: Target,
    /// The directory that has the plugins to install
    #[arg(long, default_value = "/plugins")]
    pub plugins: PathBuf,
    /// Puts a program of another origin that has a plugin's name aside, as NAME.foreign, until uninstall puts it back
    #[arg(long, env = "RDMANET_REPLACE_FOREIGN")]
    pub replace_foreign: bool,
    /// Installs cni-ipoib also under these names, whose plugins' configurations it reads: ipoib, macvlan, host-device. A
    /// plugin of another origin that has such a name is never replaced
    #[arg(
        long,
        env = "RDMANET_PEER_NAMES",
        value_name = "NAMES",
        value_delimiter = ',',
        value_parser = plugin::peer
    )]
    pub peer_names: Vec<&'static str>,
}

impl Target {
    /// The directory where an installation puts the plugins, as a path on the node, and how it was found.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Ambiguous`]: nothing is guessed.
    pub fn find(&self) -> Result<(PathBuf, String), Error> {
        if let Some(dir) = &self.bin_dir {
            return Ok((dir.clone(), BY_OPTION.to_owned()));
        }
        let (distribution, why) = self.distribution()?;
        let mut named = runtime::plugin_dirs(&self.host, distribution).into_iter();
        let is_there = |dir: &Path| resolved(&self.host, dir).is_ok_and(|dir| dir.is_dir());
        Ok(match named.find(|(dir, _)| is_there(dir)) {
            Some((dir, file)) => (dir, format!("{why}, and {file} names this directory")),
            None => (distribution.bin_dir().into(), why),
        })
    }

    /// Each directory where an installation may have put the plugins, as a path on the node, with the reason. An installer that
    /// sees only the directory of plugins uses the default one of the distribution. An installer that sees the whole node uses the
    /// first directory that the container runtime named at that time. A directory may be missing on the node.
    ///
    /// # Errors
    /// Those of [`Self::find`].
    pub fn search(&self) -> Result<Vec<(PathBuf, String)>, Error> {
        if let Some(dir) = &self.bin_dir {
            return Ok(vec![(dir.clone(), BY_OPTION.to_owned())]);
        }
        let (distribution, why) = self.distribution()?;
        let default = PathBuf::from(distribution.bin_dir());
        let mut all = vec![(default.clone(), why)];
        for (dir, file) in runtime::plugin_dirs(&self.host, distribution) {
            if dir != default {
                all.push((dir, format!("{file} names it")));
            }
        }
        Ok(all)
    }

    /// The distribution, and how it was found.
    fn distribution(&self) -> Result<(Distribution, String), Error> {
        match self.distribution {
            Choice(Some(set)) => Ok((set, format!("--distribution is {set}"))),
            Choice(None) => distribution::detect(&self.host),
        }
    }
}

/// Installs both plugins. Writes what was done to `out`, one sentence a line.
///
/// Both are written and tested before the first is renamed, so that a full disk changes nothing.
///
/// # Errors
/// [`Error`]: then no plugin was replaced, unless the very renaming failed.
pub fn install(wanted: &Install, out: &mut dyn Write) -> Result<(), Error> {
    let (path, why) = wanted.target.find()?;
    print_line(out, format_args!("plugins go to {}: {why}", path.display()));
    let directory = Directory::open(&wanted.target.host, &path)?;
    let mut plugins = PLUGINS
        .iter()
        .map(|name| Plugin::read(&wanted.plugins, name))
        .collect::<Result<Vec<_>, _>>()?;
    let peers = peers(&directory, &wanted.peer_names)?;
    let under_peers_names: Vec<Plugin> = plugins
        .iter()
        .filter(|plugin| plugin.serves_peers())
        .flat_map(|plugin| peers.iter().map(|&name| plugin.as_peer(name)))
        .collect();
    plugins.extend(under_peers_names);
    let fitted = plugins
        .iter()
        .map(|plugin| directory.fit(plugin, wanted.replace_foreign))
        .collect::<Result<Vec<_>, _>>()?;
    for fitted in fitted {
        print_line(out, format_args!("{fitted}"));
        if let Fitted::Written(written) = fitted {
            written.put_in_place()?;
        }
    }
    directory.sync()?;
    if directory.has_nothing_else(&[&PLUGINS[..], &PEERS].concat())? {
        print_line(
            out,
            format_args!(
                "warning: {} contains no other plugin. If pods fail with `failed to find plugin`, the container runtime uses \
                 another directory: set --bin-dir",
                path.display()
            ),
        );
    }
    Ok(())
}

/// The names of peers under which cni-ipoib is installed: the requested ones, and those that it already has. A pod whose network
/// names such a type needs the name for DEL. So a name that is no longer requested is still updated, and is removed together with
/// the plugins.
fn peers(directory: &Directory, wanted: &[&'static str]) -> Result<Vec<&'static str>, Error> {
    let mut names = Vec::new();
    for name in PEERS {
        let origin = Origin::of(&directory.entry(name), plugin::program_of(name))?.0;
        if wanted.contains(&name) || matches!(origin, Origin::Ours { .. }) {
            names.push(name);
        }
    }
    Ok(names)
}

/// A failed write to the log must not stop an installation.
fn print_line(out: &mut dyn Write, sentence: std::fmt::Arguments<'_>) {
    let _ = writeln!(out, "{sentence}");
}

/// `path` of the node, as a path of this process.
fn on_host(host: &Path, path: &Path) -> PathBuf {
    host.join(path.strip_prefix("/").unwrap_or(path))
}

#[cfg(test)]
mod tests;
