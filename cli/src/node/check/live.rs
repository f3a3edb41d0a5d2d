// SPDX-License-Identifier: Apache-2.0
//! Finds what only the live node shows: files, modules, limits, plugins and namespaces.

use crate::node::facts::LiveFacts;
use crate::node::namespaces::EmptyNamespace;
use crate::output::{Finding, Severity};

/// All findings about `live`.
pub(super) fn findings(live: &LiveFacts) -> Vec<Finding> {
    let mut all = Vec::new();
    for file in &live.missing_files {
        let level = if file.contains("uverbs") {
            Severity::Fail
        } else {
            Severity::Warn
        };
        all.push(Finding::new(
            level,
            file,
            "is missing on the host, so containers cannot have it",
            "modprobe -a ib_uverbs rdma_ucm; udevadm trigger",
        ));
    }
    all.extend(missing_for_some(live));
    if let Some((runtime, bytes)) = &live.memlock {
        all.push(Finding::new(
            Severity::Info,
            runtime,
            format!("containers may lock {} KiB of memory; RDMA locks all registered memory, and fails beyond that (ib_write_bw: \"Couldn't allocate MR\", NCCL: \"Call to ibv_reg_mr…\")", bytes / 1024),
            "give pods the capability IPC_LOCK and root, or set LimitMEMLOCK=infinity in the runtime's unit",
        ));
    }
    for plugin in &live.missing_plugins {
        all.push(Finding::new(
            Severity::Info,
            *plugin,
            "is not in /opt/cni/bin",
            "make install; ignore this if the runtime uses another directory",
        ));
    }
    if live.agent_is_missing {
        all.push(Finding::new(
            Severity::Warn,
            "rdmanet-agent",
            format!("no process listens on its socket {}: pods get addresses only from the blocks that this node already has", ipam::agent::SOCKET),
            "kubectl -n rdmanet-system get pods -o wide; kubectl -n rdmanet-system logs POD",
        ));
    }
    for damaged in &live.damaged {
        all.push(Finding::new(
            Severity::Warn,
            "rdma-ipam",
            damaged,
            "DEL of that attachment repairs it",
        ));
    }
    all.extend(live.empty_namespaces.iter().map(empty_namespace));
    all
}

/// Finds what only nodes with the RDMA shared device plugin, or with GPUs, need.
fn missing_for_some(live: &LiveFacts) -> Vec<Finding> {
    let mut all = Vec::new();
    if live.has_no_umad {
        all.push(Finding::new(
            Severity::Info,
            "/dev/infiniband/umad*",
            "is missing on the host; the RDMA shared device plugin offers no device without it",
            "with that device plugin: modprobe ib_umad; echo ib_umad >>/etc/modules-load.d/rdma.conf",
        ));
    }
    if live.has_no_peermem {
        all.push(Finding::new(
            Severity::Info,
            "nvidia_peermem",
            "this kernel module is not loaded; without it NCCL uses GPUDirect RDMA only if the GPU driver exports DMA-BUF",
            "modprobe nvidia-peermem; in the pod, NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=NET shows whether GPUDirect RDMA is enabled",
        ));
    }
    all
}

/// CRI-O loses a sandbox if it is killed after ADD, and its restart calls no DEL.
fn empty_namespace(namespace: &EmptyNamespace) -> Finding {
    let EmptyNamespace {
        path,
        container_id: id,
        ..
    } = namespace;
    let pod = namespace.pod.as_deref().unwrap_or("unknown");
    let delete = match path.parent() {
        Some(parent) if parent.ends_with("run/netns") => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            format!("ip netns delete {name}")
        }
        _ => format!("umount {}", path.display()),
    };
    Finding::new(
        Severity::Warn,
        path.display().to_string(),
        format!(
            "no process is in this network namespace, which has {} of pod {pod}, sandbox {id}",
            namespace.addresses.join(" and ")
        ),
        format!(
            "nothing if the runtime knows the sandbox (crictl pods --id {id}); otherwise {delete}, and the agent collects the attachment"
        ),
    )
}
