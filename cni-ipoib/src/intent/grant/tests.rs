// SPDX-License-Identifier: Apache-2.0
use super::*;
use std::path::Path;

pub(crate) fn identity() -> Identity {
    Identity {
        name: "mlx5_1".to_owned(),
        index: 2,
        node_guid: Guid(7),
        pci: "0000:3b:00.1".parse().ok(),
        path: Some("/sys/devices/pci0000:3a/0000:3b:00.1".into()),
    }
}

fn device(index: u32, name: &str, guid: u64) -> RdmaDevice {
    RdmaDevice {
        index,
        name: name.to_owned(),
        node_guid: Guid(guid),
        sys_image_guid: Guid(guid),
        ports: 1,
        protocol: None,
        smi: false,
    }
}

fn grant(netns: Sharing) -> Grant {
    Grant {
        device: identity(),
        port: 1,
        link_layer: "Ethernet".to_owned(),
        netns,
    }
}

#[test]
fn a_grant_survives_writing_and_reading() {
    let exclusive = grant(Sharing::Exclusive {
        rename: Some("rdma0".to_owned()),
    });
    let text = serde_json::to_string(&exclusive).unwrap();
    let expected = r#"{"device":{"name":"mlx5_1","index":2,"node_guid":"0000:0000:0000:0007","pci":"0000:3b:00.1","path":"/sys/devices/pci0000:3a/0000:3b:00.1"},"port":1,"link_layer":"Ethernet","netns":{"exclusive":{"rename":"rdma0"}}}"#;
    assert_eq!(text, expected);
    assert_eq!(serde_json::from_str::<Grant>(&text).unwrap(), exclusive);
    assert!(
        serde_json::to_string(&grant(Sharing::Shared))
            .unwrap()
            .ends_with(r#""netns":"shared"}"#)
    );
}

#[test]
fn the_pod_sees_the_new_name_of_a_renamed_device() {
    let renamed = Sharing::Exclusive {
        rename: Some("rdma0".to_owned()),
    };
    assert_eq!(grant(renamed).name_in_pod(), "rdma0");
    assert_eq!(grant(Sharing::Exclusive { rename: None }).name_in_pod(), "mlx5_1");
    assert_eq!(grant(Sharing::Shared).name_in_pod(), "mlx5_1");
    assert_eq!(grant(Sharing::Shared).moved(), None);
}

#[test]
fn a_device_is_recognized_whatever_its_name() {
    let at = |pci: &'static str| move |_: &str| Some(Path::new("/sys/devices/pci0000:3a").join(pci));
    let unknown = |_: &str| None;
    let all = [device(1, "mlx5_0", 6), device(2, "stolen", 7)];
    assert_eq!(identity().among(&all, unknown).unwrap().name, "stolen");
    // The driver of the device was reloaded.
    let again = [device(2, "mlx5_0", 6), device(9, "mlx5_4", 7)];
    assert_eq!(identity().among(&again, unknown).unwrap().index, 9);
    // The GUID of the device has changed.
    let other = [device(9, "mlx5_1", 99)];
    assert_eq!(identity().among(&other, unknown), None);
    assert_eq!(identity().among(&other, at("0000:3b:00.1")).unwrap().index, 9);
    // The same GUID on another function is another device.
    assert_eq!(identity().among(&all, at("0000:af:00.0")), None);
    assert_eq!(identity().among(&[], unknown), None);
}

#[test]
fn a_device_is_not_recognized_by_name_alone() {
    assert_eq!(identity().among(&[device(9, "mlx5_1", 99)], |_| None), None);
    assert_eq!(identity().among(&[device(2, "mlx5_1", 99)], |_| None), None);
}

#[test]
fn a_function_without_guid_is_recognized_by_its_index() {
    let bare = Identity {
        node_guid: Guid(0),
        ..identity()
    };
    assert_eq!(bare.among(&[device(3, "mlx5_7", 0)], |_| None), None);
    assert_eq!(
        bare.among(&[device(2, "mlx5_7", 0)], |_| None).unwrap().name,
        "mlx5_7"
    );
}

#[test]
fn a_management_device_is_not_recognized_as_the_device() {
    let smi = RdmaDevice {
        smi: true,
        ..device(3, "smi1", 7)
    };
    assert_eq!(identity().among(&[smi], |_| identity().path), None);
}

#[test]
fn two_grants_of_one_device_are_recognized() {
    let here = identity();
    let again = Identity {
        index: 9,
        name: "mlx5_4".to_owned(),
        ..identity()
    };
    assert!(here.is_same(&again));
    let twin = Identity {
        pci: "0000:af:00.0".parse().ok(),
        ..identity()
    };
    assert!(!here.is_same(&twin));
    let subfunction = |number: u32| Identity {
        index: number,
        node_guid: Guid(0),
        path: Some(format!("/sys/devices/pci0000:3a/0000:3b:00.1/mlx5_core.sf.{number}").into()),
        ..identity()
    };
    assert!(subfunction(4).is_same(&subfunction(4)) && !subfunction(4).is_same(&subfunction(5)));
    let software = |index| Identity {
        index,
        node_guid: Guid(0),
        pci: None,
        ..identity()
    };
    assert!(software(3).is_same(&software(3)) && !software(3).is_same(&software(4)));
}
