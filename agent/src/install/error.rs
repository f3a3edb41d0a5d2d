// SPDX-License-Identifier: Apache-2.0
//! Why plugins could not be installed or removed. Administrators read it in the log of an init container.

use super::interface::InterfaceInUse;
use std::io;
use std::path::PathBuf;

/// Why.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No sign of any distribution.
    #[error(
        "cannot find out what kind of node this is: {} has no sign of kubeadm, k3s, RKE2, MicroK8s, k0s, OpenShift or Talos. \
         Mount the node's root directory there, or set --distribution (RDMANET_DISTRIBUTION) or --bin-dir \
         (RDMANET_CNI_BIN_DIR)",
        .host.display()
    )]
    Unknown {
        /// Where the node's file system is mounted.
        host: PathBuf,
    },
    /// Signs of several.
    #[error(
        "this node looks like {signs}: set --distribution (RDMANET_DISTRIBUTION) to the one that runs, or remove what the \
         other left"
    )]
    Ambiguous {
        /// Which, each with its sign.
        signs: String,
    },
    /// The directory of plugins is not there.
    #[error(
        "there is no directory {} on this node (looked in {}): {source}. If its container runtime has its plugins \
         elsewhere, set --bin-dir (RDMANET_CNI_BIN_DIR)",
        .path.display(), .host.display()
    )]
    NoDirectory {
        /// On the node.
        path: PathBuf,
        /// Where the node's file system is mounted.
        host: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another installation is running.
    #[error("{}: another installation has held the lock for {seconds} s; end it if it hangs", .path.display())]
    Busy {
        /// The directory.
        path: PathBuf,
        /// How long this process waited.
        seconds: u64,
    },
    /// The plugin to install is missing or wrong.
    #[error("{}: {why}; the image was not built by conf/image/Containerfile", .path.display())]
    NoPlugin {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A program of another origin has the name.
    #[error(
        "{} is there already and is not rdmanet's ({what}): it was not changed, and nothing was installed. Move it away, or \
         run with --replace-foreign (RDMANET_REPLACE_FOREIGN), which keeps it as {name}.foreign",
        .path.display()
    )]
    Foreign {
        /// Where.
        path: PathBuf,
        /// Its name.
        name: String,
        /// What is there.
        what: String,
    },
    /// A program of another origin has the name of a peer.
    #[error(
        "{} is there already and is not rdmanet's ({what}): it was not changed, and nothing was installed. Another project's \
         plugin is never replaced under its own name: remove {name} from --peer-names (RDMANET_PEER_NAMES), or remove that \
         plugin first",
        .path.display()
    )]
    ForeignPeer {
        /// Where.
        path: PathBuf,
        /// Its name.
        name: &'static str,
        /// What is there.
        what: String,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}{}; the plugins that were there are still there", .path.display(), hint(.source))]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The written plugin does not run.
    #[error(
        "{name} was written to {} but does not run there: {why}; the plugins that were there are still there. Is the file \
         system mounted noexec?",
        .path.display()
    )]
    DoesNotRun {
        /// The plugin.
        name: &'static str,
        /// The directory.
        path: PathBuf,
        /// What happened.
        why: String,
    },
    /// A file could not be renamed. The other plugin may already have been renamed.
    #[error("cannot rename {} to {}: {source}; repeat the command", .from.display(), .to.display())]
    Rename {
        /// From.
        from: PathBuf,
        /// To.
        to: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Pods need the plugins.
    #[error("{}", in_use(.0))]
    InUse(Vec<InterfaceInUse>),
    /// Whether pods need the plugins is unknown.
    #[error("cannot find out which pods use rdmanet: {what}. Nothing was removed")]
    Unseen {
        /// What cannot be read, and why.
        what: String,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            ". The directory is mounted read-only: on a node with a read-only system, the plugins are in another directory (--bin-dir)"
        }
        io::ErrorKind::StorageFull => ". Free some space on the node: both plugins need 7 MB",
        io::ErrorKind::QuotaExceeded => ". Raise the quota of the directory: both plugins need 7 MB",
        io::ErrorKind::PermissionDenied => {
            ". The init container must run as user 0; under SELinux its type must be spc_t, as in conf/overlays/openshift"
        }
        _ => "",
    }
}

fn in_use(users: &[InterfaceInUse]) -> String {
    let lines = users
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n  ");
    format!(
        "pods of this node use rdmanet, and nothing was removed:\n  {lines}\nDelete these pods and repeat the command. With --force \
         the plugins are removed anyway; these pods keep their interfaces, and cannot be deleted until a plugin is back"
    )
}
