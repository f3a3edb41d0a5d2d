// SPDX-License-Identifier: Apache-2.0
use super::*;

#[test]
fn every_error_names_the_thing_the_cause_and_the_remedy() {
    let table = [
        (
            RdmaError::Mode {
                asked: NetnsMode::Exclusive,
                is: NetnsMode::Shared,
            },
            7,
            "rdma.netns is exclusive, but this node's RDMA subsystem is in shared mode; set rdma.netns to shared or auto, or change the node: 'options ib_core netns_mode=0' in /etc/modprobe.d, and a restart, since the kernel changes it only while there is no pod",
        ),
        (
            RdmaError::Missing {
                link: "eth0".to_owned(),
                reason: "the node has no RDMA device for it".to_owned(),
            },
            7,
            "cannot choose the RDMA device of eth0: the node has no RDMA device for it; if rdma.required is false, the pod gets no RDMA device",
        ),
        (
            RdmaError::Kept {
                device: "mlx5_0".to_owned(),
                reason: "eth0 is a port of bond0, which would lose it".to_owned(),
                remedy: "name another master",
            },
            7,
            "RDMA device mlx5_0 is not moved into the pod: eth0 is a port of bond0, which would lose it; name another master",
        ),
        (
            RdmaError::Held {
                device: "mlx5_0".to_owned(),
                by: "net1 of container c2 (network net-b)".to_owned(),
            },
            11,
            "RDMA device mlx5_0 is not moved into the pod: net1 of container c2 (network net-b) has it; wait until that pod is gone, or name another master",
        ),
        (
            RdmaError::Unlisted {
                device: "mlx5_0".to_owned(),
            },
            11,
            "RDMA device mlx5_0 is not moved into the pod: RDMA netlink lists no such device; its driver still starts, or udev renames it; try again",
        ),
        (
            RdmaError::Lost {
                device: "mlx5_0".to_owned(),
                waited: Duration::from_secs(5),
            },
            11,
            "RDMA device mlx5_0 did not come back from the pod within 5s: the kernel still removes its namespace, or the pod moved the device on; try again once that namespace is gone",
        ),
    ];
    for (error, code, text) in table {
        assert_eq!((error.code().0, error.to_string()), (code, text.to_owned()));
    }
    let other_way = RdmaError::Mode {
        asked: NetnsMode::Shared,
        is: NetnsMode::Exclusive,
    };
    assert!(other_way.to_string().contains("netns_mode=1"), "{other_way}");
}
