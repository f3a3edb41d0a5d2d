// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::intent::Sharing;
use crate::model::attachment;

fn grant(netns: Sharing) -> Grant {
    crate::model::grant(Some("0000:3b:00.1"), netns)
}

#[test]
fn the_record_names_the_device_as_the_pod_sees_it() {
    let moved = grant(Sharing::Exclusive {
        rename: Some("rdma0".to_owned()),
    });
    let expected = json!({
        "version": 1, "network": "roce0", "containerID": "c1", "ifname": "net1",
        "device": "rdma0", "port": 1, "linkLayer": "Ethernet", "netns": "exclusive",
        "hostDevice": "mlx5_1", "nodeGUID": "0000:0000:0000:0007", "pciAddress": "0000:3b:00.1",
        "ncclIbHca": "=rdma0:1",
    });
    assert_eq!(content("roce0", &attachment("c1"), &moved), expected);
    let shared = content("roce0", &attachment("c1"), &grant(Sharing::Shared));
    assert_eq!(
        (&shared["netns"], &shared["ncclIbHca"]),
        (&json!("shared"), &json!("=mlx5_1:1"))
    );
}

#[test]
fn the_record_is_found_by_the_container_id() {
    let path = file(Path::new("/run/rdmanet"), &attachment("c1"));
    assert_eq!(path, Path::new("/run/rdmanet/rdma/c1@net1.json"));
}

#[test]
fn the_record_of_another_network_stays_and_a_damaged_one_is_removed() {
    let state = tempfile::tempdir().unwrap();
    let attachment = attachment("c1");
    let path = file(state.path(), &attachment);
    remove(state.path(), "roce0", &attachment).unwrap();
    let json = content("roce0", &attachment, &grant(Sharing::Shared));
    crate::device_info::write(&path, &json).unwrap();
    remove(state.path(), "roce1", &attachment).unwrap();
    assert!(path.exists());
    remove(state.path(), "roce0", &attachment).unwrap();
    assert!(!path.exists());
    fs::write(&path, "{").unwrap();
    remove(state.path(), "roce1", &attachment).unwrap();
    assert!(!path.exists());
}
