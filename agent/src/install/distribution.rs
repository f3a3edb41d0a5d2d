// SPDX-License-Identifier: Apache-2.0
//! Where distributions of Kubernetes keep their CNI plugins, and how to detect the distribution of a node.

use super::directory::resolved;
use super::{Error, on_host};
use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

/// A distribution, or another tool that sets up nodes in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// kubeadm, and everything that keeps to the defaults of containerd and CRI-O: kubespray, EKS, AKS.
    Kubeadm,
    /// k3s.
    K3s,
    /// RKE2.
    Rke2,
    /// `MicroK8s`.
    Microk8s,
    /// k0s.
    K0s,
    /// `OpenShift` and OKD.
    OpenShift,
    /// Talos.
    Talos,
}

/// The chosen distribution. None: detect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice(pub Option<Distribution>);

/// A sign of a distribution on a node.
enum Sign {
    /// A file or directory.
    Path(&'static str),
    /// A key of `/etc/os-release`, with its value where that matters.
    Os(&'static str, Option<&'static str>),
}

impl Distribution {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Kubeadm,
        Self::K3s,
        Self::Rke2,
        Self::Microk8s,
        Self::K0s,
        Self::OpenShift,
        Self::Talos,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kubeadm => "kubeadm",
            Self::K3s => "k3s",
            Self::Rke2 => "rke2",
            Self::Microk8s => "microk8s",
            Self::K0s => "k0s",
            Self::OpenShift => "openshift",
            Self::Talos => "talos",
        }
    }

    /// Where its container runtime looks for plugins, unless configured otherwise.
    ///
    /// - containerd `bin_dir` and CRI-O `plugin_dirs` default to `/opt/cni/bin`; k0s keeps its plugins there too
    ///   (k0sproject/k0s#648), as do RKE2 (rancher/rke2#3500) and Talos (siderolabs/talos discussion 7583).
    /// - k3s since its releases of October 2024 (k3s-io/k3s#10868).
    /// - `MicroK8s`: `containerd-template.toml` in canonical/microk8s.
    /// - `OpenShift`: `CNIBinDir` of openshift/cluster-network-operator.
    pub fn bin_dir(self) -> &'static str {
        match self {
            Self::Kubeadm | Self::Rke2 | Self::K0s | Self::Talos => "/opt/cni/bin",
            Self::K3s => "/var/lib/rancher/k3s/data/cni",
            Self::Microk8s => "/var/snap/microk8s/current/opt/cni/bin",
            Self::OpenShift => "/var/lib/cni/bin",
        }
    }

    /// The configuration of its containerd. None on `OpenShift`, where an operator decides the directory, and on Talos, which
    /// generates its configuration.
    pub(super) fn containerd_config(self) -> Option<&'static str> {
        match self {
            Self::Kubeadm => Some("/etc/containerd/config.toml"),
            Self::K3s => Some("/var/lib/rancher/k3s/agent/etc/containerd/config.toml"),
            Self::Rke2 => Some("/var/lib/rancher/rke2/agent/etc/containerd/config.toml"),
            Self::Microk8s => Some("/var/snap/microk8s/current/args/containerd.toml"),
            Self::K0s => Some("/etc/k0s/containerd.toml"),
            Self::OpenShift | Self::Talos => None,
        }
    }

    /// Whether its nodes may run CRI-O with a configuration that an administrator wrote.
    pub(super) fn may_run_crio(self) -> bool {
        self == Self::Kubeadm
    }

    fn signs(self) -> &'static [Sign] {
        match self {
            Self::Kubeadm => &[Sign::Path("/var/lib/kubelet/kubeadm-flags.env")],
            Self::K3s => &[Sign::Path("/var/lib/rancher/k3s/agent")],
            Self::Rke2 => &[Sign::Path("/var/lib/rancher/rke2/agent")],
            Self::Microk8s => &[Sign::Path("/var/snap/microk8s/current/args")],
            Self::K0s => &[Sign::Path("/var/lib/k0s")],
            Self::OpenShift => &[
                Sign::Os("OPENSHIFT_VERSION", None),
                Sign::Path("/etc/machine-config-daemon"),
            ],
            Self::Talos => &[Sign::Os("ID", Some("talos"))],
        }
    }

    /// The first sign of the distribution on the node below `host`, in words.
    fn seen(self, host: &Path, os: &str) -> Option<String> {
        self.signs().iter().find_map(|sign| match sign {
            Sign::Path(path) => {
                // The installer may not see the target of a link.
                let link = || on_host(host, Path::new(path)).symlink_metadata().is_ok();
                let is_there = resolved(host, Path::new(path)).is_ok() || link();
                is_there.then(|| (*path).to_owned())
            }
            Sign::Os(key, wanted) => {
                let value = os_value(os, key)?;
                wanted
                    .is_none_or(|wanted| wanted == value)
                    .then(|| format!("{key}={value} in /etc/os-release"))
            }
        })
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self(None));
        }
        let known = Distribution::ALL.iter().find(|known| known.name() == text);
        known.map(|known| Self(Some(*known))).ok_or_else(|| {
            let names = Distribution::ALL.map(Distribution::name).join(", ");
            format!("one of auto, {names}; for any other, use kubeadm or --bin-dir")
        })
    }
}

/// The value of `key` in an os-release file (os-release(5)), without its quotes.
fn os_value<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.lines()
        .filter_map(|line| line.split_once('='))
        .find(|(name, _)| *name == key)
        .map(|(_, value)| value.trim().trim_matches(['"', '\'']))
}

/// Detects the distribution of the node below `host`. Returns it with its sign.
///
/// # Errors
/// [`Error::Unknown`] without a sign, [`Error::Ambiguous`] with signs of several, such as one that was not wholly removed.
pub(super) fn detect(host: &Path) -> Result<(Distribution, String), Error> {
    // The file is a link on most systems, and an absolute one leads out of `host`.
    let read = |path: &str| fs::read_to_string(on_host(host, Path::new(path)));
    let os = read("/etc/os-release")
        .or_else(|_| read("/usr/lib/os-release"))
        .unwrap_or_default();
    let mut seen = Distribution::ALL
        .into_iter()
        .filter_map(|one| Some((one, one.seen(host, &os)?)))
        .collect::<Vec<_>>();
    if seen.len() > 1 {
        return Err(Error::Ambiguous {
            signs: seen
                .iter()
                .map(|(one, sign)| format!("{one} ({sign})"))
                .collect::<Vec<_>>()
                .join(" and "),
        });
    }
    let (one, sign) = seen.pop().ok_or_else(|| Error::Unknown {
        host: host.to_owned(),
    })?;
    Ok((one, format!("this node is {one} ({sign})")))
}
