// SPDX-License-Identifier: Apache-2.0
//! The files of a kubelet and of device plugins on a node, as Multus reads them.

mod socket;

pub use socket::Kubelet;

use crate::multus::PodIdentity;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// kubelet's checkpoint of its allocations (`pkg/kubelet/cm/devicemanager`). Multus reads it if there is no socket.
const CHECKPOINT: &str = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint";

/// The directory in which device plugins describe their devices (device-info-spec 1.1.0).
const DEVICE_INFO: &str = "/var/run/k8s.cni.cncf.io/devinfo/dp";

/// Devices of one resource, allocated to one pod.
#[derive(Clone, Debug)]
pub struct Allocation<'a> {
    /// The pod.
    pub pod: &'a PodIdentity,
    /// The resource, such as `nvidia.com/hostdev`.
    pub resource: &'a str,
    /// The devices' IDs: PCI addresses, or the device plugin's own IDs.
    pub devices: &'a [&'a str],
}

impl<'a> Allocation<'a> {
    /// `devices` of `resource`, for `pod`.
    pub fn new(pod: &'a PodIdentity, resource: &'a str, devices: &'a [&'a str]) -> Self {
        Self {
            pod,
            resource,
            devices,
        }
    }
}

/// Writes the checkpoint with kubelet's allocations on this node.
pub fn allocated(allocations: &[Allocation]) {
    let entry = |allocation: &Allocation| {
        json!({
            "PodUID": allocation.pod.uid, "ContainerName": "main", "ResourceName": allocation.resource,
            "DeviceIDs": { "-1": allocation.devices }, "AllocResp": null,
        })
    };
    let entries: Vec<Value> = allocations.iter().map(entry).collect();
    let data = json!({ "PodDeviceEntries": entries, "RegisteredDevices": {} });
    write(Path::new(CHECKPOINT), &json!({ "Data": data, "Checksum": 0 }));
}

/// Writes the description of a device, as a device plugin does.
pub fn device_info(resource: &str, device: &str, info: &Value) {
    let name = format!("{}-{device}-device.json", resource.replace('/', "-"));
    write(&Path::new(DEVICE_INFO).join(name), info);
}

fn write(file: &Path, content: &Value) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, content.to_string()).unwrap();
}
