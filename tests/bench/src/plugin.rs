// SPDX-License-Identifier: Apache-2.0
//! Calls a CNI plugin as a container runtime does, and checks every result.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::arena::{Arena, MASTER, Pod};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::order::Order;
use crate::process::{self, Cost, Finished, Running};
use crate::sides::{Pair, Side};

#[cfg(test)]
mod tests;

/// The name of an attachment's link in the pod.
pub(crate) const IFNAME: &str = "net1";
const CNI_VERSION: &str = "1.1.0";
/// A subnet with room for every level of leases, a burst, and addresses in cooldown.
const SUBNET: &str = "10.0.0.0/16";

/// The programs of one side.
#[derive(Debug, PartialEq)]
pub(crate) struct Programs {
    /// The plugin that creates the link.
    pub(crate) link: PathBuf,
    /// The IPAM plugin.
    pub(crate) ipam: PathBuf,
}

/// One side's plugin with its configuration and its allocated addresses.
pub(crate) struct Plugin {
    program: PathBuf,
    cni_path: PathBuf,
    state_dir: PathBuf,
    config: Value,
    live: HashSet<IpAddr>,
}

/// One container's link.
pub(crate) struct Attachment<'a> {
    pub(crate) container: String,
    pub(crate) pod: &'a Pod,
}

/// The result of an ADD.
#[derive(Debug)]
pub(crate) struct Added {
    pub(crate) address: IpAddr,
    pub(crate) cost: Cost,
    result: Value,
}

/// An operation of the CNI specification.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verb {
    Add,
    Del,
    Check,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
        }
    }
}

/// Finds the four programs. The error names a missing one.
pub(crate) fn find(options: &Options) -> Result<Pair<Programs>> {
    const BUILD_OURS: &str = "build it with: cargo build --release --target x86_64-unknown-linux-musl";
    const BUILD_PEERS: &str = "build it with: tests/go/build macvlan host-local";
    let ours = |name| program(&options.bin, name, "--bin", BUILD_OURS);
    let peer = |name| program(&options.peers, name, "--peers", BUILD_PEERS);
    Ok(Pair {
        ours: Programs {
            link: ours("cni-ipoib")?,
            ipam: ours("rdma-ipam")?,
        },
        reference: Programs {
            link: peer("macvlan")?,
            ipam: peer("host-local")?,
        },
    })
}

fn program(dir: &Path, name: &str, option: &'static str, remedy: &'static str) -> Result<PathBuf> {
    let program = dir.join(name);
    // A full path: the plugin starts with an empty environment, and the report names a path that a reader can run.
    program
        .canonicalize()
        .ok()
        .filter(|found| found.is_file())
        .ok_or(Error::Missing {
            program,
            option,
            remedy,
        })
}

impl Programs {
    /// The plugin that creates a macvlan link and delegates to its IPAM plugin.
    pub(crate) fn macvlan(&self, side: Side, arena: &Arena) -> Plugin {
        Plugin::new(
            &self.link,
            &arena.state_dir(),
            config(side, &arena.data_dir(&format!("macvlan-{side:?}"))),
        )
    }

    /// The IPAM plugin alone, with its own store for this level of leases.
    pub(crate) fn ipam(&self, side: Side, leases: usize, arena: &Arena) -> Plugin {
        Plugin::new(
            &self.ipam,
            &arena.state_dir(),
            config(side, &arena.data_dir(&format!("ipam-{side:?}-{leases}"))),
        )
    }
}

/// The network's configuration. The delegating plugin passes the whole of it to the IPAM plugin.
fn config(side: Side, data_dir: &Path) -> Value {
    let ipam = |kind: &str| json!({"type": kind, "ranges": [[{"subnet": SUBNET}]], "dataDir": data_dir});
    match side {
        Side::Ours => json!({
            "cniVersion": CNI_VERSION, "name": "bench", "type": "cni-ipoib",
            "mode": "macvlan", "master": MASTER, "ipam": ipam("rdma-ipam"),
        }),
        Side::Reference => json!({
            "cniVersion": CNI_VERSION, "name": "bench", "type": "macvlan",
            "mode": "bridge", "master": MASTER, "ipam": ipam("host-local"),
        }),
    }
}

impl<'a> Attachment<'a> {
    /// A new container in `pod`.
    pub(crate) fn new(pod: &'a Pod, order: &mut Order) -> Self {
        Self {
            container: order.container_id(),
            pod,
        }
    }
}

impl Plugin {
    fn new(program: &Path, state_dir: &Path, config: Value) -> Self {
        let cni_path = program.parent().unwrap_or(Path::new("/")).to_path_buf();
        Self {
            program: program.to_path_buf(),
            cni_path,
            state_dir: state_dir.to_path_buf(),
            config,
            live: HashSet::new(),
        }
    }

    /// The program's file name.
    pub(crate) fn name(&self) -> String {
        self.program
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }

    /// The number of allocated addresses.
    pub(crate) fn live(&self) -> usize {
        self.live.len()
    }

    /// Adds `attachment` and checks that its address is unique.
    pub(crate) fn add(&mut self, attachment: &Attachment) -> Result<Added> {
        let finished = self.start_add(attachment)?.finish()?;
        self.added(&finished)
    }

    /// Starts an ADD; [`Plugin::added`] checks its result.
    pub(crate) fn start_add(&self, attachment: &Attachment) -> Result<Running> {
        self.start(Verb::Add, attachment, None)
    }

    /// Checks the result of an ADD and records its address.
    pub(crate) fn added(&mut self, finished: &Finished) -> Result<Added> {
        let (address, result) = self.succeeded(Verb::Add, finished).and_then(|()| {
            address_in(&finished.stdout).map_err(|problem| self.wrong(Verb::Add, problem, &finished.stdout))
        })?;
        if !self.live.insert(address) {
            let problem = format!("{address} belongs to another container");
            return Err(self.wrong(Verb::Add, problem, &finished.stdout));
        }
        Ok(Added {
            address,
            cost: finished.cost,
            result,
        })
    }

    /// Deletes `attachment`.
    pub(crate) fn del(&mut self, attachment: &Attachment, added: &Added) -> Result<Cost> {
        let finished = self.start_del(attachment, added)?.finish()?;
        self.deleted(&finished, added)
    }

    /// Starts a DEL; [`Plugin::deleted`] checks its result.
    pub(crate) fn start_del(&self, attachment: &Attachment, added: &Added) -> Result<Running> {
        self.start(Verb::Del, attachment, Some(&added.result))
    }

    /// Checks the result of a DEL and removes the recorded address.
    pub(crate) fn deleted(&mut self, finished: &Finished, added: &Added) -> Result<Cost> {
        self.succeeded(Verb::Del, finished)?;
        self.live.remove(&added.address);
        Ok(finished.cost)
    }

    /// Whether CHECK confirms the state of `attachment` after `added`.
    pub(crate) fn check(&self, attachment: &Attachment, added: &Added) -> Result<bool> {
        let finished = self
            .start(Verb::Check, attachment, Some(&added.result))?
            .finish()?;
        Ok(finished.status.success())
    }

    fn start(&self, verb: Verb, attachment: &Attachment, previous: Option<&Value>) -> Result<Running> {
        let mut config = self.config.clone();
        if let Some(previous) = previous {
            config["prevResult"] = previous.clone();
        }
        let env = [
            ("CNI_COMMAND", verb.name().as_ref()),
            ("CNI_CONTAINERID", attachment.container.as_ref()),
            ("CNI_NETNS", attachment.pod.netns.as_os_str()),
            ("CNI_IFNAME", IFNAME.as_ref()),
            ("CNI_PATH", self.cni_path.as_os_str()),
            // The state directory of rdmanet's plugins. The reference plugins have none outside dataDir.
            ("RDMANET_STATE", self.state_dir.as_os_str()),
            ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin".as_ref()),
        ];
        process::start(&self.program, &[], &env, config.to_string().as_bytes())
    }

    fn succeeded(&self, verb: Verb, finished: &Finished) -> Result<()> {
        if finished.status.success() {
            return Ok(());
        }
        Err(Error::CallFailed {
            call: self.call(verb),
            status: finished.status.to_string(),
            stdin: self.config.to_string(),
            stdout: text(&finished.stdout),
            stderr: text(&finished.stderr),
        })
    }

    /// The error for a wrong result, or for one that violates the specification.
    pub(crate) fn wrong(&self, verb: Verb, problem: String, stdout: &[u8]) -> Error {
        Error::WrongAnswer {
            call: self.call(verb),
            problem,
            stdout: text(stdout),
        }
    }

    fn call(&self, verb: Verb) -> String {
        format!("{} of {}", verb.name(), self.program.display())
    }
}

/// The only address in the result of an ADD, and the result; or the description of its error.
fn address_in(stdout: &[u8]) -> std::result::Result<(IpAddr, Value), String> {
    let result: Value =
        serde_json::from_slice(stdout).map_err(|error| format!("its output is not JSON ({error})"))?;
    let addresses = result["ips"].as_array().map_or(&[][..], Vec::as_slice);
    let [only] = addresses else {
        return Err(format!(
            "it has {} addresses where the configuration asks for one",
            addresses.len()
        ));
    };
    let address = only["address"].as_str().unwrap_or_default();
    let parsed = address
        .strip_suffix("/16")
        .and_then(|address| address.parse().ok());
    let parsed = parsed.ok_or_else(|| format!("ips[0].address '{address}' is not an address of {SUBNET}"))?;
    Ok((parsed, result))
}

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).trim().to_owned()
}
